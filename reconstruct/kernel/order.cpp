#include "order.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace tapscope::match {
namespace {

constexpr double kPrior = 20.0;  // pairs that say "no order" before any pair is seen
constexpr float kMost = 4.0f;    // nats that order may say, either way
// First calls that have the same usual displacement, and how many before and behind them it is told from.
constexpr std::size_t kEvery = 16, kNear = 40;

// From a request to its first call.
Time gap_of(const Problem& problem, std::int32_t p, std::size_t c) noexcept {
    return std::max<Time>(
        problem.children.begin[c] - problem.parents.request_end[static_cast<std::size_t>(p)], 0);
}

}  // namespace

int StartOrder::bucket(std::int32_t displacement) noexcept {
    const auto size = static_cast<std::uint32_t>(std::abs(displacement));
    const int step = std::min(size == 0 ? 0 : static_cast<int>(std::bit_width(size - 1)) + 1, kBuckets / 2);
    return kBuckets / 2 + (displacement < 0 ? -step : step);
}

bool StartOrder::rank(const Problem& problem, const std::vector<std::int32_t>& parent_of) {
    const auto& parents = problem.parents;
    const auto& children = problem.children;
    // Children are sorted by begin, parents by arrival: ranks are running counts.
    first_.assign(parents.size(), kNone);
    std::swap(arrival_rank_, arrival_before_);
    std::swap(start_rank_, start_before_);
    start_rank_.resize(children.size());
    const bool several = problem.processes > 1;
    parent_process_ = several ? parents.process : decltype(parent_process_){};
    child_process_ = several ? children.process : decltype(child_process_){};
    std::vector<std::int32_t> starts(static_cast<std::size_t>(problem.processes)), arrivals = starts;
    for (std::size_t c = 0; c < children.size(); ++c) {
        start_rank_[c] = starts[problem.process_of_child(c)];
        const auto p = parent_of[c];
        if (p == kNone || first_[p] != kNone) continue;
        first_[p] = static_cast<std::int32_t>(c);
        ++starts[problem.process_of_parent(static_cast<std::size_t>(p))];
    }
    arrival_rank_.resize(parents.size());
    for (std::size_t p = 0; p < parents.size(); ++p) {
        auto& arrived = arrivals[problem.process_of_parent(p)];
        arrival_rank_[p] = arrived;
        arrived += first_[p] != kNone;
    }
    const auto shift_before = std::move(shift_);
    find_shift(problem);
    return arrival_rank_ != arrival_before_ || start_rank_ != start_before_ || shift_ != shift_before;
}

// Of the first calls at about the same time, the usual displacement: a request that has got none of its calls, or another
// one's, early or late, moves all behind it.
void StartOrder::find_shift(const Problem& problem) {
    const auto processes = static_cast<std::size_t>(problem.processes);
    std::vector<std::vector<std::int32_t>> displaced(processes), usual(processes);
    std::vector<std::int32_t> owner(problem.children.size(), kNone);
    for (std::size_t p = 0; p < first_.size(); ++p) {
        if (first_[p] != kNone) owner[first_[p]] = static_cast<std::int32_t>(p);
    }
    for (std::size_t c = 0; c < owner.size(); ++c) {
        const auto p = owner[c];
        if (p == kNone) continue;
        const auto process = static_cast<std::size_t>(problem.process_of_parent(static_cast<std::size_t>(p)));
        displaced[process].push_back(start_rank_[c] - arrival_rank_[p]);
    }
    std::vector<std::int32_t> near;
    for (std::size_t process = 0; process < processes; ++process) {
        const auto& all = displaced[process];
        auto& out = usual[process];
        for (std::size_t i = 0; i < all.size(); i += kEvery) {
            const auto from = all.begin() + static_cast<std::ptrdiff_t>(i - std::min(i, kNear));
            const auto to =
                all.begin() + static_cast<std::ptrdiff_t>(std::min(i + kEvery + kNear, all.size()));
            near.assign(from, to);
            const auto middle = near.begin() + static_cast<std::ptrdiff_t>(near.size() / 2);
            std::nth_element(near.begin(), middle, near.end());
            out.push_back(*middle);
        }
    }
    shift_.assign(start_rank_.size(), 0);
    for (std::size_t c = 0; c < shift_.size(); ++c) {
        const auto& here = usual[static_cast<std::size_t>(problem.process_of_child(c))];
        if (here.empty()) continue;
        shift_[c] = here[std::min(static_cast<std::size_t>(start_rank_[c]) / kEvery, here.size() - 1)];
    }
}

double StartOrder::says(const Problem& problem, const std::vector<std::int32_t>& parent_of) const {
    std::vector<std::uint8_t> begun(problem.parents.size(), 0);
    double nats = 0, choices = 0;
    for (std::size_t c = 0; c < parent_of.size(); ++c) {
        const auto p = parent_of[c];
        if (p == kNone || std::exchange(begun[p], 1) || c < problem.decided()) continue;
        nats += evidence(p, static_cast<std::int32_t>(c), gap_of(problem, p, c));
        choices += 1;
    }
    return nats / std::max(choices, 1.0);
}

void StartOrder::estimate(const Problem& problem, const Candidates& candidates,
                          const std::vector<std::int32_t>& parent_of, double keep) {
    rank(problem, parent_of);
    for (auto& habit : habit_) habit.fade(keep);
    for (std::size_t p = 0; p < first_.size(); ++p) {
        if (first_[p] == kNone) continue;
        const auto c = static_cast<std::size_t>(first_[p]);
        if (c < problem.decided() || c >= problem.settled) continue;
        for (const auto q : candidates.of(c)) {
            if (!known(q, static_cast<std::int32_t>(c))) continue;
            const int group = gap_bin(gap_of(problem, q, c)) / kBinsPerGroup;
            const int where = place(q, static_cast<std::int32_t>(c));
            habit_[group].possible[where] += 1;
            if (q == static_cast<std::int32_t>(p)) habit_[group].chosen[where] += 1;
        }
    }
    for (int g = 0; g < kGroups; ++g) ratio_[g] = habit_[g].ratios(kPrior, kMost);
}

}  // namespace tapscope::match
