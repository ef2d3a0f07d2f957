// Connections that lie idle: is the one that was given back last the first to be taken, or the last, or any?
//
// A pool keeps its idle connections as a stack, as a queue, or in no order. A connection lies idle from when a request
// gave it back until another one takes it. Two such times that overlap are nested, or they cross:
//     nested   given back A, given back B, taken B, taken A      as in a stack
//     crossed  given back A, given back B, taken A, taken B      as in a queue
// If child c was the last of parent p, its connection lay idle from p's answer until its next use, and in a stack no
// other crosses that, in a queue no other is nested with it. So the order in which connections are taken tells whose
// they were, where nothing but time tells requests apart. Which order it is, is learned, as other habits are: from how
// many cross and how many are nested, of pairs of the assignment and of candidate pairs at large, among pairs with
// about as many others and whose answer is about as far back (so that it adds to what that distance says:
// hand_over.hpp).
//
// When the others were given back is told by an assignment, as the ranks of order.hpp are. Of p itself it is told as
// if p and the parent that has c now changed places: else each of the two would find its own connection in its way.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gaps.hpp"
#include "habit.hpp"
#include "problem.hpp"

namespace tapscope::match {

class IdleOrder {
public:
    // The rows have been replaced. `before_on_conn`: previous child on the same connection, or kNone.
    void bind(const std::vector<std::int32_t>& before_on_conn);

    // Tells by an assignment of the present rows which connections lie idle when; what was learned stays.
    void rank(const Problem& problem, const std::vector<std::int32_t>& parent_of);

    // Ranks, and learns the habit from the same assignment. Counts of before weigh `keep` (0: forgotten).
    void estimate(const Problem& problem, const Candidates& candidates,
                  const std::vector<std::int32_t>& parent_of, double keep);

    // Log ratio for child c being the last that parent p waited for; 0 where nobody used its connection again, where
    // it was used before p could give it back, and where no other lay idle in between.
    float evidence(const Problem& problem, std::int32_t p, std::int32_t c) const noexcept {
        if (idle_.empty() || next_on_conn_[c] == kNone) return 0.0f;
        const auto server = problem.server_of_child(static_cast<std::size_t>(c));
        if (server >= of_server_.size() || !of_server_[server].tells) return 0.0f;
        const auto around = look(problem, p, c);
        if (around.crossed + around.nested == 0) return 0.0f;
        return of_server_[server]
            .ratio[static_cast<std::size_t>(group(around))][static_cast<std::size_t>(bucket(around))];
    }

    // Others that lay idle at a time together with the connection of c, had p given it back.
    struct Around {
        int crossed = 0, nested = 0;
        Time idle = 0;  // how long it lay idle; < 0 where it was used before
    };
    Around look(const Problem& problem, std::int32_t p, std::int32_t c) const noexcept;

private:
    static constexpr int kSteps = 6;  // 0, 1, 2, 3-4, 5-8, 9 and more of a kind
    static constexpr int kBuckets = kSteps * kSteps;
    static constexpr int kMostOthers = 8;       // numbers of others that are told apart
    static constexpr int kBinsPerDistance = 8;  // gap bins: two octaves
    static constexpr int kDistances = kGapBins / kBinsPerDistance;
    using Ordered = Habit<kBuckets>;
    static int group(const Around& around) noexcept {
        return gap_bin(around.idle) / kBinsPerDistance * kMostOthers +
               std::min(around.crossed + around.nested, kMostOthers) - 1;
    }
    static int bucket(const Around& around) noexcept {
        return step(around.crossed) * kSteps + step(around.nested);
    }
    static int step(int others) noexcept;

    // When p gives back the connection of c, its last child: when it answers, or when it is done if it had begun to
    // answer before.
    static Time given_back(const Problem& problem, std::int32_t p, std::int32_t c) noexcept {
        const Time answer = problem.parents.response_begin[p];
        return answer >= problem.children.end[c] ? answer : problem.parents.depart[p];
    }
    void find_returns(const Problem& problem, const std::vector<std::int32_t>& parent_of);

    // What lies idle when the connection of a child is used next, without itself. The ends of the list are kept, and
    // one more than decides a bucket, because p's own is looked at with other eyes.
    static constexpr std::size_t kListed = 4;
    struct Idle {
        std::int32_t others = 0;
        std::int32_t taken = 0;                     // so many connections were taken before
        std::array<Time, kListed> last{}, first{};  // when they were given back
    };
    struct Taken {
        Time at, given_back;
    };

    std::vector<std::int32_t> before_on_conn_, next_on_conn_;  // by child
    std::vector<std::int32_t> latest_;       // by parent: its child that ended last, as ranked
    std::vector<Time> by_parent_;            // when it gave back the connection of that child
    std::vector<Time> by_child_;             // the same, by that child
    std::vector<Idle> idle_;                 // by child
    std::vector<std::vector<Taken>> taken_;  // by pool: all that were taken, in order
    // What is known of the connections to one server.
    struct OfServer {
        bool tells = false;
        std::array<Ordered, kDistances * kMostOthers> habit{};
        std::array<Ordered::Ratios, kDistances * kMostOthers> ratio{};
        void learn();
    };
    std::vector<OfServer> of_server_;
};

}  // namespace tapscope::match
