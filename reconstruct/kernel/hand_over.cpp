#include "hand_over.hpp"

#include <algorithm>
#include <cmath>

namespace tapscope::match {
namespace {

constexpr double kPrior = 100.0;  // pairs that say "no habit" before any pair is seen
constexpr float kMost = 4.0f;     // nats that a distance may say, either way

}  // namespace

void HandOver::bind(const std::vector<std::int32_t>& before_on_conn) {
    next_on_conn_.assign(before_on_conn.size(), kNone);
    for (std::size_t c = 0; c < before_on_conn.size(); ++c) {
        if (before_on_conn[c] != kNone) next_on_conn_[before_on_conn[c]] = static_cast<std::int32_t>(c);
    }
}

HandOver::Place HandOver::place(const Problem& problem, std::int32_t p, std::int32_t c) const noexcept {
    const auto& parents = problem.parents;
    const auto& children = problem.children;
    const Time gap = parents.response_begin[p] - children.end[c];
    const Time free = gap >= 0 ? parents.response_begin[p] : parents.depart[p];
    const Time after = children.begin[next_on_conn_[c]] - free;
    const int size = gap_bin(std::abs(after)) / 2;
    return {gap >= 0 ? gap_bin(gap) / kBinsPerGroup : kGapGroups,
            after >= 0 ? kSide + size : kSide - 1 - size};
}

void HandOver::estimate(const Problem& problem, const Candidates& candidates,
                        const std::vector<std::int32_t>& parent_of, double keep) {
    const auto& parents = problem.parents;
    const auto& children = problem.children;
    habit_.resize(std::max(habit_.size(), static_cast<std::size_t>(problem.servers)));
    for (auto& of_server : habit_) {
        for (auto& habit : of_server) habit.fade(keep);
    }
    std::vector<std::int32_t> latest(parents.size(), kNone);
    for (std::size_t c = 0; c < parent_of.size(); ++c) {
        const auto p = parent_of[c];
        if (p == kNone) continue;
        if (latest[p] == kNone || children.end[c] >= children.end[latest[p]]) {
            latest[p] = static_cast<std::int32_t>(c);
        }
    }
    for (std::size_t p = 0; p < parents.size(); ++p) {
        const auto c = latest[p];
        if (c == kNone || next_on_conn_[c] == kNone || !parents.answered[p]) continue;
        if (parents.depart[p] < problem.from || parents.depart[p] >= problem.until) continue;
        auto& habit = habit_[problem.server_of_child(static_cast<std::size_t>(c))];
        for (const auto q : candidates.of(static_cast<std::size_t>(c))) {
            if (!parents.answered[q]) continue;
            const auto [group, bin] = place(problem, q, c);
            habit[group].possible[bin] += 1;
            if (q == static_cast<std::int32_t>(p)) habit[group].chosen[bin] += 1;
        }
    }
    ratio_.resize(habit_.size());
    for (std::size_t server = 0; server < habit_.size(); ++server) {
        for (std::size_t g = 0; g < kGroups; ++g) ratio_[server][g] = habit_[server][g].ratios(kPrior, kMost);
    }
}

}  // namespace tapscope::match
