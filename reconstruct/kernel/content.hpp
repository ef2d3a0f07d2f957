// Content evidence: which slots of a request reappear in which slots of the calls that it causes.
//
// Each token of a child is taken to be a copy of one of the parent's slots, or drawn from the background of its own
// slot. With weights w_r per copy rule r = (parent class, parent slot, child class, child slot) and background p(v),
//     P(v | parent) = sum_r w_r [v = value of r in the parent] + (1 - sum_r w_r) p(v)
// so a match counts for log(w/p(v)) and a mismatch against by log(1 - w): both are learned by EM over the candidate
// parents, together with the class affinity W[a][k] (how often a request of class a causes a call of class k).
#pragma once

#include <vector>

#include "problem.hpp"

namespace tapscope::match {

struct Affinity {
    std::int32_t n_parent = 0, n_child = 0;
    std::vector<double> weight;                 // expected children of class k per parent of class a, row-major
    double operator()(std::int32_t a, std::int32_t k) const noexcept {
        return weight[static_cast<std::size_t>(a) * n_child + k];
    }
};

// Fills candidates.content and returns the class affinity. Candidates whose weight is hopeless are removed.
Affinity learn_content(const Problem& problem, Candidates& candidates, int rounds);

}  // namespace tapscope::match
