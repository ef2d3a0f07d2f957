#include "order.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace tapscope::match {
namespace {

constexpr double kPrior = 20.0;  // pairs that say "no order" before any pair is seen
constexpr float kMost = 4.0f;    // nats that order may say, either way

}  // namespace

int StartOrder::bucket(std::int32_t displacement) noexcept {
    const auto size = static_cast<std::uint32_t>(std::abs(displacement));
    const int step = std::min(size == 0 ? 0 : static_cast<int>(std::bit_width(size - 1)) + 1, kBuckets / 2);
    return kBuckets / 2 + (displacement < 0 ? -step : step);
}

void StartOrder::rank(const Problem& problem, const std::vector<std::int32_t>& parent_of) {
    const auto& parents = problem.parents;
    const auto& children = problem.children;
    // Children are sorted by begin, parents by arrival: ranks are running counts.
    first_.assign(parents.size(), kNone);
    start_rank_.resize(children.size());
    std::int32_t starts = 0;
    for (std::size_t c = 0; c < children.size(); ++c) {
        start_rank_[c] = starts;
        const auto p = parent_of[c];
        if (p == kNone || first_[p] != kNone) continue;
        first_[p] = static_cast<std::int32_t>(c);
        ++starts;
    }
    arrival_rank_.resize(parents.size());
    std::int32_t arrivals = 0;
    for (std::size_t p = 0; p < parents.size(); ++p) {
        arrival_rank_[p] = arrivals;
        arrivals += first_[p] != kNone;
    }
}

void StartOrder::estimate(const Problem& problem, const Candidates& candidates,
                          const std::vector<std::int32_t>& parent_of, double keep) {
    const auto& parents = problem.parents;
    const auto& children = problem.children;
    rank(problem, parent_of);
    for (auto* counts : {&chosen_, &possible_}) {
        for (auto& row : *counts) {
            for (double& x : row) x *= keep;
        }
    }
    for (std::size_t p = 0; p < parents.size(); ++p) {
        if (first_[p] == kNone) continue;
        const auto c = static_cast<std::size_t>(first_[p]);
        if (c < problem.decided() || c >= problem.settled) continue;
        for (const auto q : candidates.of(c)) {
            const Time gap = std::max<Time>(children.begin[c] - parents.request_end[q], 0);
            const int group = gap_bin(gap) / kBinsPerGroup;
            const int where = bucket(start_rank_[c] - arrival_rank_[q]);
            possible_[group][where] += 1;
            if (q == static_cast<std::int32_t>(p)) chosen_[group][where] += 1;
        }
    }
    for (int g = 0; g < kGroups; ++g) {
        double all_chosen = 0, all_possible = 0;
        for (int b = 0; b < kBuckets; ++b) {
            all_chosen += chosen_[g][b];
            all_possible += possible_[g][b];
        }
        for (int b = 0; b < kBuckets; ++b) {
            const double at_large = (possible_[g][b] + 1.0) / (all_possible + kBuckets);
            const double of_pairs = (chosen_[g][b] + kPrior * at_large) / (all_chosen + kPrior);
            ratio_[g][b] = std::clamp(static_cast<float>(std::log(of_pairs / at_large)), -kMost, kMost);
        }
    }
}

}  // namespace tapscope::match
