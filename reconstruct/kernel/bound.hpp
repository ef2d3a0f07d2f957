// Connections that belong together: does what comes on one connection go on by the same connection as before?
//
// A middleware opens a connection behind for each that it is asked for, and keeps the two together until both are
// closed; a worker that holds the connection of its client and one of its own does so as well. Then the connection of a
// call names the connection that its parent came on. In a pool that any request may take from it names nothing.
//
// A visit is a request and a connection that it used. Visits say how often the connections of both sides met, out of
// how often each of them was used: of the connection of a candidate parent, and of that of the call. Which of the two
// tells, and how much, is learned, as other habits are, from the visits of an assignment and from all that could have
// made them. The visit at hand, and that of who has the call now, never speak for themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "content.hpp"
#include "habit.hpp"
#include "key_map.hpp"
#include "problem.hpp"

namespace tapscope::match {

class Bound {
public:
    // Keeps references: both must outlive it.
    Bound(const Problem& problem, Candidates& candidates) : problem_(problem), candidates_(candidates) {}

    // The rows of the problem have been replaced by those of another stretch. What was learned stays.
    void bind();

    // Learns from an assignment of the present rows, after what was counted before has been weighed with `keep` (0:
    // forgotten).
    void estimate(const std::vector<std::int32_t>& parent_of, double keep);

    // Adds what connections say to the content of all candidates. A request that makes many calls on one says it once.
    void score() const;

private:
    // How often one connection met the other, of the times that it was used: never, seldom, mostly, nearly always; few
    // times tell less than many.
    static constexpr int kShares = 7, kUnknown = 0, kNeverOfFew = 1, kNever = 3;
    static bool never_met(int share) noexcept { return share == kNeverOfFew || share == kNever; }
    static int share(float used, float met) noexcept;
    using Meetings = Habit<kShares * kShares>;

    std::uint64_t name_of_parent(std::int32_t p) const noexcept;
    std::uint64_t name_of_child(std::size_t c) const noexcept;
    // A connection's name, and the visits that used it.
    struct Used {
        std::uint64_t name = 0;
        float visits = 0;
    };
    std::vector<Used> used_by_parents() const;
    Used used_by_child(std::size_t c) const noexcept;
    // Of candidate p for child c, which `owner` has now, where it came on `ahead` and the child went out on `behind`.
    int bucket(std::int32_t p, std::size_t c, std::int32_t owner, const Used& ahead,
               const Used& behind) const noexcept;
    bool visits(std::int32_t p, std::size_t c) const noexcept;

    const Problem& problem_;
    Candidates& candidates_;
    ValueCounts count_;  // visits by connection, of either side, and by both together
    KeyMap visit_;       // of the assignment that was learned from last: parent and connection
    std::vector<std::int32_t> parent_of_;  // that assignment; empty behind bind()
    std::vector<std::int32_t> visits_of_;  // by parent
    Meetings habit_;
    Meetings::Ratios ratio_{};
    bool tells_ = false;
    float once_ = 1;  // visits for each call
};

}  // namespace tapscope::match
