// Until when does a request hold a connection that it has gone on from? Until its answer, or only for its calls?
//
// Where requests hold their connection until they answer, as those of most pools do, nobody else uses it before: a
// request that made a call on a connection, went on with another one, and has not answered when the first is used
// again, did not make that call. Where connections are given back after each call, or where a request holds several
// and goes to and fro between them, it says nothing. Which it is, is learned, as other habits are, from all that
// requests were done with: the connections they went on from, and those of their last calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "habit.hpp"
#include "problem.hpp"

namespace tapscope::match {

class Hold {
public:
    // Log ratio for a request that has gone on from a connection which is used again before its answer, or later.
    // `server`: that the connection leads to.
    float evidence(std::size_t server, bool before_answer) const noexcept {
        return server < ratio_.size() ? ratio_[server][before_answer] : 0.0f;
    }

    // forget() comes first, finish() last. A pair: parent p was done with the connection of child c, which was used
    // again at `again`.
    void forget(double keep) {
        for (auto& habit : habit_) habit.fade(keep);
    }
    void observe(const Problem& problem, const Candidates& candidates, std::int32_t p, std::int32_t c,
                 Time again) {
        const auto server = problem.server_of_child(static_cast<std::size_t>(c));
        if (server >= habit_.size()) habit_.resize(server + 1);
        auto& habit = habit_[server];
        for (const auto q : candidates.of(static_cast<std::size_t>(c))) {
            const bool before = again < problem.parents.response_begin[q];
            habit.possible[before] += 1;
            if (q == p) habit.chosen[before] += 1;
        }
    }
    void finish() {
        ratio_.clear();
        for (const auto& habit : habit_) ratio_.push_back(habit.ratios(kPrior, kMost));
    }

private:
    static constexpr double kPrior = 100.0;  // pairs that say "no habit" before any pair is seen
    static constexpr float kMost = 3.0f;     // nats that it may say, either way

    std::vector<Habit<2>> habit_;  // by server
    std::vector<Habit<2>::Ratios> ratio_;
};

}  // namespace tapscope::match
