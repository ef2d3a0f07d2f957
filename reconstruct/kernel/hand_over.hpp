// Connections that pass from one request to the next: when does the one that had it answer?
//
// Where requests wait for a connection of a pool, the first call of the next request on it follows at once when the
// one before has given it back, which most do when they answer. So if child d was the last of parent p, and e comes
// after d on its connection, then e begins within a fraction of a millisecond of p's answer, where the answer of another
// parent that might have made d comes at any time. Like the order of arrivals this is a habit that the data may show
// or not: the log ratio of how often a distance between answer and next use occurs for the pairs of an assignment
// and for candidate pairs at large, among pairs whose last child is as old (so that it adds to what that gap says).
// Where connections lie idle, or are given back after each statement, the ratios are near 0.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gaps.hpp"
#include "habit.hpp"
#include "problem.hpp"

namespace tapscope::match {

class HandOver {
public:
    // The rows have been replaced. `before_on_conn`: previous child on the same connection, or kNone.
    void bind(const std::vector<std::int32_t>& before_on_conn);

    // Counts of before weigh `keep` (0: forgotten).
    void estimate(const Problem& problem, const Candidates& candidates,
                  const std::vector<std::int32_t>& parent_of, double keep);

    // Log ratio for child c being the last that parent p waited for; 0 where nobody used its connection again.
    float evidence(const Problem& problem, std::int32_t p, std::int32_t c) const noexcept {
        const auto server = problem.server_of_child(static_cast<std::size_t>(c));
        if (server >= ratio_.size() || next_on_conn_[c] == kNone) return 0.0f;
        const auto [group, bin] = place(problem, p, c);
        return ratio_[server][static_cast<std::size_t>(group)][static_cast<std::size_t>(bin)];
    }

private:
    static constexpr int kBinsPerGroup = 8;  // gap bins that share their ratios: two octaves
    static constexpr int kGapGroups = kGapBins / kBinsPerGroup;
    static constexpr int kGroups = kGapGroups + 1;  // one more: the answer had begun before the child ended
    static constexpr int kSide =
        kGapBins / 2;  // half octaves, of the next use after the answer and before it
    static constexpr int kBins = 2 * kSide;
    using Distant = Habit<kBins>;
    struct Place {
        int group, bin;
    };
    Place place(const Problem& problem, std::int32_t p, std::int32_t c) const noexcept;

    std::vector<std::int32_t> next_on_conn_;  // by child
    // By server that the connection leads to.
    std::vector<std::array<Distant, kGroups>> habit_;
    std::vector<std::array<Distant::Ratios, kGroups>> ratio_;
};

}  // namespace tapscope::match
