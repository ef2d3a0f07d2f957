// Class affinity: how often a request of class a causes a call of class k, told by the candidates of the calls alone.
//
// A call of class k belongs to one of its candidates, to each in proportion to W[a][k] and to what its content says. So
// the requests of a class that causes such calls are there whenever one is made, those of others only as often as they
// are there anyway. Where many are in flight the difference is small for each call, and EM needs hundreds of rounds
// to find it; but the classes of calls are told one by one, and some hundred calls of each are enough.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.hpp"
#include "stop.hpp"

namespace tapscope::match {

struct Affinity {
    std::int32_t n_parent = 0, n_child = 0;
    std::vector<double> weight;  // expected children of class k per parent of class a, row-major
    std::size_t at(std::int32_t a, std::int32_t k) const noexcept {
        return static_cast<std::size_t>(a) * static_cast<std::size_t>(n_child) + static_cast<std::size_t>(k);
    }
    double operator()(std::int32_t a, std::int32_t k) const noexcept { return weight[at(a, k)]; }
};

// The most likely affinity, from this one on: what the calls' candidates and their content say.
void sharpen(Affinity& affinity, const Problem& problem, const Candidates& candidates, const Stop& stop);

}  // namespace tapscope::match
