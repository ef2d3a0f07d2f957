#include "lent.hpp"

#include <algorithm>
#include <cstdint>

#include "assign.hpp"

namespace tapscope::match {
namespace {

constexpr double kFewest = 20,
                 kShare = 0.97;  // connections, and the share of them that fit, that tell a habit

}  // namespace

void Lent::find(const Problem& problem) {
    const auto& children = problem.children;
    uses_.clear();
    for (std::size_t c = 0; c < children.size(); ++c) {
        const auto conn = static_cast<std::size_t>(children.conn[c]);
        if (conn >= uses_.size()) uses_.resize(conn + 1);
        // What is not answered may come late: a server closes its connection when the page is gone.
        if (children.response_begin[c] <= children.begin[c]) continue;
        auto& use = uses_[conn];
        if (use.calls++ == 0) {
            use.begin = children.begin[c];
            use.first = static_cast<std::int32_t>(c);
        }
        use.last = static_cast<std::int32_t>(c);
        use.due = std::max(use.due, children.response_begin[c]);
    }
    count(problem);
    once_ = seen_ >= kFewest && fit_ >= kShare * seen_;
}

void Lent::count(const Problem& problem) {
    const auto& parents = problem.parents;
    std::vector<Time> longest;  // latest departure of the parents that have arrived
    for (const Time depart : parents.depart) {
        longest.push_back(longest.empty() ? depart : std::max(depart, longest.back()));
    }
    for (const auto& use : uses_) {
        if (use.calls < 2) continue;
        seen_ += 1;
        const auto arrived =
            std::upper_bound(parents.arrive.begin(), parents.arrive.end(), use.begin + kSlack) -
            parents.arrive.begin();
        fit_ += arrived > 0 && longest[static_cast<std::size_t>(arrived) - 1] + kSlack >= use.due;
    }
}

void Lent::keep_whole(const Problem& problem, Candidates& candidates) const {
    const auto& parents = problem.parents;
    const auto& children = problem.children;
    std::vector<std::uint8_t> holds(candidates.parent.size(), 1);
    for (std::size_t c = problem.decided(); c < children.size(); ++c) {
        const auto& use = uses_[static_cast<std::size_t>(children.conn[c])];
        if (children.response_begin[c] <= children.begin[c]) continue;
        bool any = false;
        for (auto i = candidates.offset[c]; i < candidates.offset[c + 1]; ++i) {
            const auto p = candidates.parent[i];
            holds[i] = parents.arrive[p] <= use.begin + kSlack && parents.depart[p] + kSlack >= use.due;
            any |= holds[i] != 0;
        }
        if (any) continue;  // a connection that fits nowhere is no reason to take its calls from everybody
        for (auto i = candidates.offset[c]; i < candidates.offset[c + 1]; ++i) holds[i] = 1;
    }
    candidates.retain([&](std::int64_t i) { return holds[i] != 0; });
}

void Lent::keep_to_the_end(const Problem& problem, Assignment& assignment) const {
    std::vector<std::int32_t> latest;  // call with a parent, by connection
    for (std::size_t c = 0; c < assignment.parent.size(); ++c) {
        const auto conn = static_cast<std::size_t>(problem.children.conn[c]);
        if (conn >= latest.size()) latest.resize(conn + 1, kNone);
        const auto before = latest[conn];
        if (assignment.parent[c] == kNone && before != kNone) {
            assignment.parent[c] = assignment.parent[before];
            assignment.probability[c] = assignment.probability[before];
            assignment.runner_up[c] = assignment.runner_up[before];
            assignment.runner_up_probability[c] = assignment.runner_up_probability[before];
        }
        if (assignment.parent[c] != kNone) latest[conn] = static_cast<std::int32_t>(c);
    }
}

}  // namespace tapscope::match
