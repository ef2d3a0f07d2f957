// Joint assignment of all children of a node to its parents: a forward pass, exact pairwise splits until nothing
// improves, re-estimation of the model, and again; then a probability for every edge.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace tapscope::match {

struct Options {
    int content_rounds = 6;
    int learn_rounds = 5;       // model re-estimations
    int max_sweeps = 12;        // of pairwise splits in the last round
};

struct Assignment {
    std::vector<std::int32_t> parent;           // row of parents, or kNone
    std::vector<double> probability;            // of that choice (of having no parent here, where kNone)
    std::vector<std::int32_t> runner_up;        // row of parents, or kNone
    std::vector<double> runner_up_probability;
    std::uint64_t pairs_split = 0, pairs_too_large = 0;
    double score = 0;
};

Assignment assign(const Problem& problem, const Options& options, const std::atomic<bool>& stop);

}  // namespace tapscope::match
