// Joint assignment of the children of a node to its parents, one stretch of time after the other.
//
// The first stretch teaches the model:
//   learn    forward passes and exact pairwise splits, with the model re-estimated from each result, give a good
//            assignment and a model that is too sure of itself: it was fitted to its own best guess
//   soften   assignments are drawn from their conditional distribution (block Gibbs over pairs of parents) and the
//            model is re-estimated from the draws (stochastic EM), so that gaps get their true width
// Where its requests look as if they waited for workers, it is also taken as the workers would (worker_queue.hpp); where
// much of it is in doubt, a second search says how far its links are to be trusted (second_opinion.cpp).
// Every stretch is then decided:
//   place    a forward pass and pairwise splits with the model as it is
//   decide   draws are counted, and pairwise splits climb to the best assignment
//   weigh    probability of an edge: share of the draws that have it, refined by the exact marginals of its pairs
//            (probability.hpp)
//   follow   the model takes in what the stretch showed, and slowly forgets what it knew before
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "problem.hpp"
#include "stop.hpp"
#include "worker_queue.hpp"

namespace tapscope::match {

struct Options {
    int content_rounds = 6;
    int learn_rounds = 12;   // model re-estimations from the best assignment, at most
    int forward_rounds = 3;  // the first of them begin with a new forward pass
    int soften_rounds = 8;   // model re-estimations from draws
    int draws = 24;          // counted draws
    int max_sweeps = 12;     // of pairwise splits
    double memory = 60'000;  // children after which what they taught counts 1/e
};

struct Assignment {
    std::vector<std::int32_t> parent;     // row of parents, or kNone
    std::vector<double> probability;      // of that choice (of having no parent here, where kNone)
    std::vector<std::int32_t> runner_up;  // row of parents, or kNone
    std::vector<double> runner_up_probability;
    std::uint64_t pairs_too_large = 0;  // pairs that kept what they had: see kMaxSplit
    // What calls named, and there was no room for; and what was forgotten to have some: recall.hpp.
    std::uint64_t not_remembered = 0, no_longer_remembered = 0;
};

// Keeps the model of one node between stretches.
class Matcher {
public:
    // At most so many classes of parents and of children will come. Throws Stopped when that is asked for.
    Matcher(std::int32_t parent_classes, std::int32_t child_classes, const Options& options,
            const Stop& stop);
    ~Matcher();

    // Deterministic: the same stretches in the same order give the same assignments. The rows are borrowed for the
    // time of the call; `idle` is idle_connections() of the children.
    Assignment match(const Problem& stretch, const std::vector<float>& idle);

private:
    class Search;
    // From what a search begins: the class affinity of some rounds of EM, and hardly anybody waits for a connection; or the
    // affinity that is most likely (affinity.hpp), and half of those who may wait do.
    enum class Course : std::uint8_t { plain, sharp };

    std::unique_ptr<Search> begun(Course course, const Problem& stretch,
                                  const std::vector<float>& idle) const;
    Problem begin(const Problem& as_it_came, const std::vector<float>& idle);
    Problem as_taken(const Problem& as_it_came);

    const std::int32_t parent_classes_, child_classes_;
    const Options options_;
    const Stop& stop_;
    std::unique_ptr<Search> search_;      // once there was a stretch
    std::unique_ptr<WorkerQueue> queue_;  // where requests wait for workers
};

}  // namespace tapscope::match
