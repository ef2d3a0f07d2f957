// Calls that only set up the next one on their connection go with it.
//
// Before a request can ask what it came for, it may have to open a session, ask the server for its settings, prepare the
// statement, or look whether the connection is still alive: now and then, whoever comes first. To the grammar of chains
// these are rare calls in any place, and so are the steps to and from them; but whose they are is no question: they are
// of whoever makes the next call on the connection, right behind them. So the row of such a call and the next one are one
// row for the matcher, that begins with the first and is the second in everything else.
//
// Which calls open sessions, prepare statements and only ask for a sign of life is known from the protocol
// (MessageFlag.SETUP). What else comes at the beginning of sessions (settings) is learned: classes of calls that come
// nowhere else. So is whether the node goes on by itself: a middleware that prepares a statement for one request, and
// executes it for another, has answered somebody in between every time.
// So is whose they are: where a pool opens sessions, or asks idle connections for a sign of life, whoever gets the
// connection may have come behind that. Then nobody need have been there all along, who does it himself always was.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "assign.hpp"
#include "problem.hpp"

namespace tapscope::match {

class SetupCalls {
public:
    // The problem with such calls joined: the one that is given where there are none. `setup` has a flag for each
    // child. What is returned refers to both, and is valid until the next call.
    const Problem& join(const Problem& problem, std::span<const std::uint8_t> setup);
    // The answer for the rows of the problem that was given.
    Assignment apart(Assignment joined) const;

private:
    struct Columns {
        std::vector<std::int32_t> cls, conn, before, as_parent, server;
        std::vector<std::int64_t> conn_name;
        std::vector<Time> begin, response_begin, end;
        std::vector<float> answer_bytes;
        std::vector<std::int64_t> token_offset, result_offset;
        std::vector<std::uint32_t> token_slot, result_slot;
        std::vector<std::uint64_t> token_hash, result_hash;
    };

    // Finds the rows at the beginnings of sessions.
    void find_openings(const Children& children, std::span<const std::uint8_t> setup);
    // Finds with which row each one may go, or kNone.
    void find_next(const Problem& problem, std::span<const std::uint8_t> setup);
    // Learns which kinds do, and drops the others, and rows that nobody can have made together.
    void keep_likely(const Problem& problem);
    void copy(const Children& from);
    // Kinds of steps: within the beginning of a session, from there on, and from what is prepared.
    enum Kind : std::uint8_t { kWithin, kFromOpening, kFromPrepared, kKinds };
    // The first row of the session that c is of the beginning of; c itself where it is of none.
    std::size_t first_row(const Children& children, std::size_t c) const noexcept;
    Kind kind_of(std::size_t c) const noexcept {
        if (!opening_[c]) return kFromPrepared;
        return opening_[static_cast<std::size_t>(next_[c])] ? kWithin : kFromOpening;
    }

    std::vector<std::uint8_t> opening_class_;  // stays from stretch to stretch
    // Steps so far: how many of them nobody was answered in, and how many that would be by chance.
    struct Steps {
        double all = 0, undisturbed = 0, by_chance = 0;
        bool go_on() const noexcept;
    };
    // What was set up so far: somebody was there for what it was for, and from its first row on.
    struct Attended {
        double at_all = 0, all_along = 0;
        bool by_requests() const noexcept;
    };
    Steps steps_[kKinds];
    std::vector<Steps> steps_of_class_;       // from what is prepared, by class
    std::vector<Attended> attended_;          // by class of the first row
    std::vector<std::uint8_t> opening_;       // by row
    std::vector<std::int32_t> next_;          // by row: with which it goes
    std::vector<std::int32_t> first_, last_;  // by joined row
    std::vector<std::int32_t> joined_;        // by row
    Columns columns_;
    Problem problem_;
};

}  // namespace tapscope::match
