// Calls that were cut off from those that they follow.
//
// Where two requests have each other's calls, and one of them came later or is over earlier, some calls of the other have
// no place in it, and are left to nobody: the exchange gains with those calls only, and to adopt them gains behind the
// exchange only. So of each call of nobody whose connection a request has used before or behind it, everybody else who
// could have made it is asked for the best split of his calls, that request's, and this one; and for what else of nobody's
// he would take then.
#pragma once

#include <cstdint>
#include <vector>

#include "chain_score.hpp"
#include "chains.hpp"
#include "model.hpp"
#include "pair.hpp"
#include "problem.hpp"
#include "stop.hpp"

namespace tapscope::match {

class CutOff {
public:
    // Keeps references.
    CutOff(const Problem& problem, const Candidates& candidates, const Model& model,
           const AnswerLength& length, PairSplit& split, const Stop& stop)
        : problem_(problem),
          candidates_(candidates),
          model_(model),
          score_(problem, candidates, model, length),
          split_(split),
          stop_(stop) {}

    // Whether anything changed. All chains together score better then. Asks as many pairs as there are children, at most.
    bool run(Chains& chains);

private:
    using Chain = std::vector<std::int32_t>;

    // Whether somebody takes orphan c, and shares his calls out with who made `beside`. `orphans`: those that each parent
    // could have made.
    bool take_back(Chains& chains, std::int32_t c, std::int32_t beside, const std::vector<Chain>& orphans);
    // What all gain if p takes orphan c, shares its calls out with q, and takes what it likes of the orphans around it; 0
    // where that cannot be. The chains are in share_ then.
    double ask(const Chains& chains, std::int32_t c, std::int32_t p, std::int32_t q, const Chain& orphans);

    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    ChainScore score_;
    PairSplit& split_;
    const Stop& stop_;
    Chain next_on_conn_;         // by child
    std::size_t asks_left_ = 0;  // so that the time is bounded
    Chain with_, share_[2];
};

}  // namespace tapscope::match
