// Calls of one class, each of them one request off.
//
// Where requests that come soon after one another make a first call each that tells nothing of them, one mistake moves
// all of those behind it: a request has the call of the one before, and so on, until somebody has two, or none, or a call
// is left to nobody. Each exchange between two of them loses, and no two are near each other. So of each call that is
// nobody's, or that suits its request so little that it might as well be, it is asked who would have it in the place of
// one of the same class, who would have that one then, and so on: along the way on which all gain most together.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "chain_score.hpp"
#include "chains.hpp"
#include "model.hpp"
#include "problem.hpp"
#include "stop.hpp"

namespace tapscope::match {

class Shift {
public:
    // Keeps references.
    Shift(const Problem& problem, const Candidates& candidates, const Model& model,
          const AnswerLength& length, const Stop& stop)
        : problem_(problem),
          candidates_(candidates),
          model_(model),
          score_(problem, candidates, model, length),
          stop_(stop) {}

    // Whether anything changed. All chains together score better then. Weighs as many chains as there are children, at most,
    // beside those that are there.
    bool run(Chains& chains);

private:
    using Chain = std::vector<std::int32_t>;

    // A call that somebody would give away, if all before it on the way go where they would.
    struct Displaced {
        double gain = 0;  // of all so far; what this call is worth to whoever has it then is not in it
        std::int32_t call = kNone, owner = kNone;
        std::int32_t before = kNone;  // whose call the owner has in its place: of ways_
        bool asked = false;
    };
    // Who takes the last call of the best way, in the place of none; kNone: nobody.
    struct End {
        double gain = 0;
        std::int32_t last = kNone, taker = kNone;
    };

    // The children that may begin a way.
    Chain misfits(const Chains& chains);
    bool shift(Chains& chains, std::int32_t first);
    // Adds to ways_ and best_ what candidate p of a displaced call could do with it.
    void ask(const Chains& chains, std::int32_t at, std::int32_t p);
    bool on_the_way(std::int32_t at, std::int32_t p) const noexcept;
    double worth(const Chains& chains, std::int32_t p);
    // What p holds, `taken` in the place of `given`; kNone: of nothing.
    const Chain& instead(const Chains& chains, std::int32_t p, std::int32_t taken, std::int32_t given);

    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    ChainScore score_;
    const Stop& stop_;
    std::size_t left_ = 0;  // chains that may be weighed, so that the time is bounded
    std::vector<Displaced> ways_;
    End best_;
    Chain chain_;
    std::vector<float> step_;                             // by child
    std::vector<std::pair<std::int32_t, double>> worth_;  // of the chains of those on the ways
};

}  // namespace tapscope::match
