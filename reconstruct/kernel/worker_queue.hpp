// Requests that wait for one of k workers, first come, first served.
//
// While all workers of a node have a request, the next one lies where nobody looks at it: it makes no calls, and what it
// does is timed from the moment in which a worker takes it. Both are known from the times of requests and answers alone.
// Who comes while k of those before it are there waits until an answer leaves k - 1 of them.
//
// So is k. A request passes those before it that are still there when it is answered. A worker that has it cannot be one
// of theirs, so these are fewer than k; and k - 1 is nothing rare. Where nobody waits for a worker, each number is rarer
// than the one before it, by about the same factor each time. Where no request passes k, though many should by what the
// numbers before say, there are k workers. A search that supposes it must yet say more of its own assignment than one that
// does not (assign.cpp): connections that are held from first to last look alike.
#pragma once

#include <vector>

#include "problem.hpp"

namespace tapscope::match {

class WorkerQueue {
public:
    // For as many workers as the requests of a stretch look like.
    explicit WorkerQueue(const Problem& stretch);

    // The stretch with its requests as they are taken. It borrows from here until the next call.
    Problem serve(const Problem& stretch);

    // Whether hardly any of those who had to wait was answered before a worker took it.
    bool in_step() const noexcept;
    // Whether there seems to be such a queue: in the stretch that was looked at none passes more, in the one that was
    // served many had to wait, and it is in step.
    bool plausible() const noexcept;

private:
    int workers_ = 1;
    bool sharp_ = false;
    double requests_ = 0, waited_ = 0, answered_before_ = 0;
    std::vector<Time> taken_, request_end_;
};

}  // namespace tapscope::match
