#include "orphans.hpp"

#include <algorithm>
#include <cmath>

namespace tapscope::match {
namespace {

constexpr double kUnlikely = -40.0;  // nats, before anything is known
// Of a class, and calls at all, before any is seen; and ns in which nothing was seen, either.
constexpr double kShare = 0.00002, kFew = 0.0001, kNothing = 1e9;
// Of a class, where nothing tells; and how many of these not to have seen where they would have shown leaves half of it.
constexpr double kHidden = 0.003, kUnseen = 0.5;
// Instants of a stretch at which it is asked for how long from there on a request is there; how far around a call they
// tell of it, and how many at least.
constexpr int kInstants = 4096, kFewest = 16;
constexpr double kAroundNs = 2.5e9;
constexpr float kMost = 10.0f;  // that one call may stand for

// For how long from each instant on a request is there that has come by then, of each process.
class Covered {
public:
    Covered(const Problem& problem, Time from, Time until)
        : from_(from),
          step_(std::max(static_cast<double>(until - from) / kInstants, 1.0)),
          reach_(std::clamp(static_cast<std::ptrdiff_t>(kAroundNs / step_),
                            static_cast<std::ptrdiff_t>(kFewest), static_cast<std::ptrdiff_t>(kInstants))),
          left_(static_cast<std::size_t>(problem.processes)) {
        const auto& parents = problem.parents;
        std::vector<Time> last(left_.size(), from);
        std::size_t next = 0;
        for (int i = 0; i < kInstants; ++i) {
            const Time now = from + static_cast<Time>((i + 0.5) * step_);
            for (; next < parents.size() && parents.arrive[next] <= now + kSlack; ++next) {
                auto& mine = last[static_cast<std::size_t>(problem.process_of_parent(next))];
                mine = std::max(mine, parents.depart[next] + kSlack);
            }
            for (std::size_t g = 0; g < left_.size(); ++g) left_[g].push_back(last[g] - now);
        }
        for (const auto& left : left_) all_.insert(all_.end(), left.begin(), left.end());
        std::sort(all_.begin(), all_.end());
    }

    // Around `when`, by how much is all the time more than that in which a call that takes so long finds nobody?
    float all_by_alone(std::int32_t process, Time when, Time takes) const {
        const auto& left = left_[static_cast<std::size_t>(process)];
        const auto at = static_cast<std::ptrdiff_t>(static_cast<double>(when - from_) / step_);
        const auto low = std::clamp<std::ptrdiff_t>(at - reach_, 0, kInstants);
        const auto high = std::clamp<std::ptrdiff_t>(at + reach_, low, kInstants);
        const auto alone =
            std::count_if(left.begin() + low, left.begin() + high, [&](Time stays) { return stays < takes; });
        return static_cast<float>(high - low + 1) / static_cast<float>(alone + 1);
    }

    // Share of all instants at which a call that takes so long finds nobody, in any process.
    double alone(double takes) const {
        const auto alone =
            std::lower_bound(all_.begin(), all_.end(), static_cast<Time>(takes)) - all_.begin();
        return static_cast<double>(alone) / static_cast<double>(all_.size());
    }

private:
    Time from_;
    double step_;  // ns
    std::ptrdiff_t reach_;
    std::vector<std::vector<Time>> left_;  // by process and instant
    std::vector<Time> all_;                // the same, ascending
};

}  // namespace

void Orphans::bind() {
    const auto& children = problem_.children;
    const auto classes = static_cast<std::size_t>(children.n_classes);
    streams_.resize(classes);
    log_rate_.resize(classes, static_cast<float>(kUnlikely));
    log_rate_in_doubt_.resize(classes, static_cast<float>(kUnlikely));
    supposed_.resize(classes, 1.0f);
    alone_.assign(classes, 0.0f);
    stands_for_.assign(children.size(), 0.0f);
    const auto decided = problem_.decided();
    if (children.size() <= decided) return;
    const Covered covered(problem_, children.begin[decided], children.begin.back());
    std::vector<double> takes_all(classes, 0.0), made(classes, 0.0);
    for (std::size_t c = decided; c < children.size(); ++c) {
        const Time takes = children.response_begin[c] - children.begin[c];
        takes_all[static_cast<std::size_t>(children.cls[c])] += static_cast<double>(takes);
        made[static_cast<std::size_t>(children.cls[c])] += 1;
        if (!candidates_.of(c).empty()) continue;
        stands_for_[c] =
            std::min(covered.all_by_alone(problem_.process_of_child(c), children.begin[c], takes), kMost);
    }
    for (std::size_t k = 0; k < classes; ++k) {
        if (made[k] > 0) alone_[k] = static_cast<float>(covered.alone(takes_all[k] / made[k]));
    }
}

void Orphans::estimate(double keep) {
    const auto& children = problem_.children;
    for (auto& stream : streams_) {
        stream.made *= keep;
        stream.expected *= keep;
        stream.alone *= keep;
    }
    span_ns_ *= keep;
    const auto settled = std::min(problem_.settled, children.size());
    for (std::size_t c = problem_.decided(); c < settled; ++c) {
        auto& stream = streams_[static_cast<std::size_t>(children.cls[c])];
        stream.made += 1;
        stream.expected += static_cast<double>(stands_for_[c]);
        stream.alone += static_cast<double>(alone_[static_cast<std::size_t>(children.cls[c])]);
    }
    if (problem_.decided() < settled) {
        span_ns_ += static_cast<double>(children.begin[settled - 1] - children.begin[problem_.decided()]);
    }
    const auto log_rate = [&](double calls) {
        return static_cast<float>(std::log(calls / (kNothing + span_ns_)));
    };
    for (std::size_t k = 0; k < streams_.size(); ++k) {
        const auto& [made, expected, alone] = streams_[k];
        const double calls = expected + kShare * made + kFew;
        supposed_[k] = static_cast<float>(1 - expected / calls);
        log_rate_[k] = log_rate(calls);
        log_rate_in_doubt_[k] = log_rate(calls + kHidden * made * kUnseen / (kUnseen + kHidden * alone));
    }
}

}  // namespace tapscope::match
