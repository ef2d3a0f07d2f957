#include "forgotten.hpp"

#include <algorithm>
#include <limits>

namespace tapscope::match {
namespace {

// So many calls, and such a share of their class, are more than those whose parents were not seen.
constexpr double kLeastCalls = 5.0, kLeastShare = 0.002;
constexpr double kMostAlone = 0.1;  // calls that nobody was there for, for each one that outlasts all

}  // namespace

void Forgotten::count(const Problem& problem, double keep) {
    const auto& parents = problem.parents;
    const auto& children = problem.children;
    const auto classes = static_cast<std::size_t>(children.n_classes);
    for (auto* counts : {&made_, &outlast_, &alone_}) {
        counts->resize(classes, 0.0);
        for (double& x : *counts) x *= keep;
    }
    std::size_t next = 0;
    Time latest = std::numeric_limits<Time>::min();  // when all who came so far have left
    for (std::size_t c = 0; c < std::min(problem.settled, children.size()); ++c) {
        while (next < parents.size() && parents.arrive[next] <= children.begin[c] + kSlack) {
            latest = std::max(latest, parents.depart[next++]);
        }
        if (c < problem.decided()) continue;
        const auto k = static_cast<std::size_t>(children.cls[c]);
        if (latest + kSlack < children.begin[c]) {
            alone_[k] += 1;
            continue;
        }
        made_[k] += 1;
        outlast_[k] += latest + kSlack < children.response_begin[c];
    }
    forgotten_.resize(classes);
    for (std::size_t k = 0; k < classes; ++k) {
        forgotten_[k] = outlast_[k] >= std::max(kLeastCalls, kLeastShare * made_[k]) &&
                        alone_[k] <= kMostAlone * outlast_[k];
    }
}

}  // namespace tapscope::match
