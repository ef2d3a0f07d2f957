// Arrival order as evidence: do requests that wait get their first call in the order in which they came?
//
// Let a request be the i-th to arrive (of those that make calls), and a first call be the j-th to be made. If waiting
// requests are served first come, first served, j - i is 0 for true pairs; if they are served in any order, it is
// spread. Which it is, is learned: the log ratio of how often a displacement occurs for pairs of the assignment and for
// candidate pairs at large, among pairs with a like gap (so that it adds to what the gap says). A node whose queue has
// no order gets ratios near 0. Displacements are counted from the usual one of the first calls nearby: in an assignment
// that is wrong, each request that has no call moves all behind it, by hundreds after a while.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "gaps.hpp"
#include "habit.hpp"
#include "problem.hpp"

namespace tapscope::match {

class StartOrder {
public:
    // How much an order counts: it repeats in part what the gaps say, and what is ranked by an assignment is more in
    // order than the truth is, so that it vouches for itself.
    static constexpr float kTemper = 0.5f;

    // Counts of before weigh `keep` (0: forgotten).
    void estimate(const Problem& problem, const Candidates& candidates,
                  const std::vector<std::int32_t>& parent_of, double keep = 0.0);

    // Ranks the rows of a stretch by an assignment; what was learned stays. Returns whether ranks are others than before.
    bool rank(const Problem& problem, const std::vector<std::int32_t>& parent_of);
    // Rows whose order is not known yet have no evidence.
    void forget_ranks() { arrival_rank_.clear(); }

    // Nats that it says of each first call of an assignment, as ranked; the mean.
    double says(const Problem& problem, const std::vector<std::int32_t>& parent_of) const;

    // From here on, first come is supposed to be first served, by so many nats for each bucket; 0: as it was learned.
    void suppose(float nats) noexcept { supposed_ = nats; }

    // Displacements are told apart in buckets: 0, and 1, 2, 3-4, 5-8, ... on either side.
    static constexpr int kBuckets = 17;
    // That of child c as first call of parent p; the middle before rank().
    int place(std::int32_t p, std::int32_t c) const noexcept {
        return known(p, c) ? bucket(start_rank_[c] - shift_[c] - arrival_rank_[p]) : kBuckets / 2;
    }

    // Log ratio for child c being the first call of parent p, `gap` ns after its arrival; 0 before rank().
    float evidence(std::int32_t p, std::int32_t c, Time gap) const noexcept {
        if (!known(p, c)) return 0.0f;
        if (supposed_ > 0) {
            const int from_own_place = bucket(start_rank_[c] - arrival_rank_[p]) - kBuckets / 2;
            return -supposed_ * static_cast<float>(std::abs(from_own_place));
        }
        return ratio_[gap_bin(gap) / kBinsPerGroup][place(p, c)];
    }

private:
    static constexpr int kBinsPerGroup = 8;  // gap bins that share their ratios: two octaves
    static constexpr int kGroups = kGapBins / kBinsPerGroup;
    using Displaced = Habit<kBuckets>;

    static int bucket(std::int32_t displacement) noexcept;
    void find_shift(const Problem& problem);
    // Each worker process has a queue of its own: ranks are of requests of one process.
    bool known(std::int32_t p, std::int32_t c) const noexcept {
        return !arrival_rank_.empty() && (parent_process_.empty() || parent_process_[p] == child_process_[c]);
    }

    std::span<const std::int32_t> parent_process_, child_process_;  // as ranked; empty: all are of one
    std::vector<std::int32_t> arrival_rank_, start_rank_;           // by parent, by child
    std::vector<std::int32_t> shift_;                          // by child: how far all are displaced there
    std::vector<std::int32_t> arrival_before_, start_before_;  // as ranked before
    std::vector<std::int32_t> first_;                          // first child of each parent, as ranked
    float supposed_ = 0;
    std::array<Displaced, kGroups> habit_{};
    std::array<Displaced::Ratios, kGroups> ratio_{};
};

}  // namespace tapscope::match
