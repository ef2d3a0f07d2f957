// Connections that serve one parent, from their first call to their last.
//
// Where requests open connections of their own (PHP and its like), all calls of one fit into one stay; those of a
// pool's connections, which live for hours, do not. That is told from times alone, before anything is assigned. A
// parent whose stay does not hold all calls of a connection then made none of them.
#pragma once

#include <vector>

#include "problem.hpp"

namespace tapscope::match {

struct Assignment;

class Lent {
public:
    // Looks at the connections of a stretch; the habit is told from all that were looked at so far.
    void find(const Problem& problem);
    bool once() const noexcept { return once_; }
    // Last call of the connection that begins with child c; kNone where c is not the first.
    std::int32_t last_behind(const Problem& problem, std::int32_t c) const noexcept {
        const auto& use = uses_[static_cast<std::size_t>(problem.children.conn[static_cast<std::size_t>(c)])];
        return use.first == c ? use.last : kNone;
    }
    // Drops the candidates that do not hold the whole connection of the child.
    void keep_whole(const Problem& problem, Candidates& candidates) const;
    // Where once(): the calls of a connection that come after the parent's answer are that parent's, too (a page that
    // goes on working when it has been sent).
    void keep_to_the_end(const Problem& problem, Assignment& assignment) const;

private:
    struct Use {
        Time begin = 0;                            // of the first call
        Time due = 0;                              // latest begin of an answer
        std::int32_t first = kNone, last = kNone;  // calls
        int calls = 0;
    };
    void count(const Problem& problem);

    std::vector<Use> uses_;      // by connection
    double seen_ = 0, fit_ = 0;  // connections of two calls and more; those that fit into one stay
    bool once_ = false;
};

}  // namespace tapscope::match
