#include "guess.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapscope::match {
namespace {

constexpr double kBeside = 4.0;      // nats against a call that overlaps the next one of its request
constexpr double kOneTooMany = 3.0;  // and against each call of a class more than a request makes
constexpr double kLeast = 1e-3;      // calls of a class, where requests make none

}  // namespace

float Guess::score(std::int64_t candidate, std::int32_t cls, Time gap, By by,
                   const Affinity& expected) const {
    const auto p = candidates_.parent[static_cast<std::size_t>(candidate)];
    const double usual = expected(problem_.parents.cls[static_cast<std::size_t>(p)], cls);
    const auto kind = kinds_.find(key(p, cls));
    const double many = 1.0 + (kind == kNone ? 0.0 : has_[static_cast<std::size_t>(kind)]);
    const double length = std::log(static_cast<double>(kLeastGap + std::abs(gap)));
    double out =
        std::log(std::min(usual, 1.0) + kLeast) - kOneTooMany * std::max(many - std::max(usual, 1.0), 0.0);
    if (by == By::soonest) out -= length;
    if (by == By::longest && gap >= -kSlack) out += length;
    if (gap < -kSlack) out -= kBeside;
    return static_cast<float>(out) + candidates_.content[static_cast<std::size_t>(candidate)];
}

std::vector<std::int32_t> Guess::parents(By by, const Affinity& expected) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    const bool back = by == By::soonest;
    std::vector<std::int32_t> out(children.size(), kNone);
    std::vector<Time> at(parents.size());  // of the nearest event: the answer, or the arrival; then a call
    for (std::size_t p = 0; p < parents.size(); ++p) {
        at[p] = back ? parents.response_begin[p] : parents.request_end[p];
    }
    kinds_.clear(children.size());
    has_.clear();
    for (std::size_t i = 0; i < children.size(); ++i) {
        const auto c = back ? children.size() - 1 - i : i;
        auto& best = out[c];
        if (c < problem_.decided()) {
            best = problem_.decided_parent[c];
        } else if (candidates_.certain(c)) {
            best = candidates_.certain_parent[c];
        } else {
            float top = -std::numeric_limits<float>::infinity();
            for (auto k = candidates_.offset[c]; k < candidates_.offset[c + 1]; ++k) {
                const auto p = candidates_.parent[static_cast<std::size_t>(k)];
                const Time gap = back ? at[p] - children.end[c] : children.begin[c] - at[p];
                const float here = score(k, children.cls[c], gap, by, expected);
                if (here > top) top = here, best = p;
            }
        }
        if (best == kNone) continue;
        at[best] = back ? std::min(at[best], children.begin[c]) : std::max(at[best], children.end[c]);
        const auto kind = static_cast<std::size_t>(kinds_.insert(key(best, children.cls[c])));
        if (kind == has_.size()) has_.push_back(0.0);
        has_[kind] += 1;
    }
    return out;
}

}  // namespace tapscope::match
