// Joint assignment of all children of a node to its parents.
//
//   learn    forward passes and exact pairwise splits, with the model re-estimated from each result, give a good
//            assignment and a model that is too sure of itself: it was fitted to its own best guess
//   soften   assignments are drawn from their conditional distribution (block Gibbs over pairs of parents) and the
//            model is re-estimated from the draws (stochastic EM), so that gaps get their true width
//   decide   the model stays; draws are counted, and pairwise splits climb to the best assignment
//   weigh    probability of an edge: share of the draws that have it, refined by the exact marginals of its pairs
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace tapscope::match {

struct Options {
    int content_rounds = 6;
    int learn_rounds = 5;    // model re-estimations from the best assignment
    int forward_rounds = 3;  // the first of them begin with a new forward pass
    int soften_rounds = 8;   // model re-estimations from draws
    int draws = 24;          // counted draws
    int max_sweeps = 12;     // of pairwise splits
};

struct Assignment {
    std::vector<std::int32_t> parent;     // row of parents, or kNone
    std::vector<double> probability;      // of that choice (of having no parent here, where kNone)
    std::vector<std::int32_t> runner_up;  // row of parents, or kNone
    std::vector<double> runner_up_probability;
    std::uint64_t pairs_too_large = 0;  // pairs that kept what they had: see kMaxSplit
};

// Deterministic: the same problem gives the same assignment. `stop` ends it early with what is done.
Assignment assign(const Problem& problem, const Options& options, const std::atomic<bool>& stop);

}  // namespace tapscope::match
