#include "idle_order.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tapscope::match {
namespace {

constexpr double kPrior = 100.0;     // pairs that say "no habit" before any pair is seen,
constexpr double kNearPrior = 50.0;  // and that say of one distance what all distances say together
constexpr float kMost = 4.0f;        // nats that others may say, either way
constexpr float kWorthALook = 0.1f;  // nats
constexpr int kWindow = 32;          // connections taken last that are looked back at
constexpr Time kUnknown = std::numeric_limits<Time>::min();

}  // namespace

int IdleOrder::step(int others) noexcept {
    constexpr std::array<int, kSteps - 1> kFrom = {1, 2, 3, 5, 9};
    int out = 0;
    for (const int from : kFrom) out += others >= from;
    return out;
}

void IdleOrder::bind(const std::vector<std::int32_t>& before_on_conn) {
    before_on_conn_ = before_on_conn;
    next_on_conn_.assign(before_on_conn.size(), kNone);
    for (std::size_t c = 0; c < before_on_conn.size(); ++c) {
        if (before_on_conn[c] != kNone) next_on_conn_[before_on_conn[c]] = static_cast<std::int32_t>(c);
    }
    idle_.clear();
}

void IdleOrder::find_returns(const Problem& problem, const std::vector<std::int32_t>& parent_of) {
    const auto& children = problem.children;
    latest_.assign(problem.parents.size(), kNone);
    for (std::size_t c = 0; c < parent_of.size(); ++c) {
        const auto p = parent_of[c];
        if (p == kNone) continue;
        if (latest_[p] == kNone || children.end[c] >= children.end[latest_[p]]) {
            latest_[p] = static_cast<std::int32_t>(c);
        }
    }
    by_parent_.assign(problem.parents.size(), kUnknown);
    by_child_.assign(parent_of.size(), kUnknown);
    for (std::size_t p = 0; p < latest_.size(); ++p) {
        const auto c = latest_[p];
        if (c == kNone || !problem.parents.answered[p]) continue;
        by_parent_[p] = by_child_[c] = given_back(problem, static_cast<std::int32_t>(p), c);
    }
}

void IdleOrder::rank(const Problem& problem, const std::vector<std::int32_t>& parent_of) {
    const auto& children = problem.children;
    find_returns(problem, parent_of);
    using Return = std::pair<Time, std::int32_t>;  // when, and by which child's end on the connection
    std::vector<Return> returns;
    for (std::size_t i = 0; i < parent_of.size(); ++i) {
        const auto next = next_on_conn_[i];
        if (next == kNone || (parent_of[i] != kNone && parent_of[next] == parent_of[i])) continue;
        // A parent that went on with another connection has given this one back before.
        const Time at = by_child_[i] == kUnknown ? children.end[i] : by_child_[i];
        if (at <= children.begin[next]) returns.emplace_back(at, static_cast<std::int32_t>(i));
    }
    std::sort(returns.begin(), returns.end());
    taken_.assign(problem.pools(), {});
    idle_.assign(parent_of.size(), {});
    // What is in each pool, in the order in which it was given back.
    std::vector<std::vector<Return>> pools(problem.pools());
    auto returned = returns.begin();
    for (std::size_t next = 0; next < parent_of.size(); ++next) {
        for (; returned != returns.end() && returned->first <= children.begin[next]; ++returned) {
            pools[problem.pool_of_child(static_cast<std::size_t>(returned->second))].push_back(*returned);
        }
        const auto c = before_on_conn_[next];
        const auto pool = problem.pool_of_child(next);
        auto& idle = pools[pool];
        auto& all_taken = taken_[pool];
        const auto taken = static_cast<std::int32_t>(all_taken.size());
        if (c == kNone) {  // new, or as old as the rows: older than all that are known
            all_taken.push_back({children.begin[next], kUnknown});
            continue;
        }
        const auto own =
            std::find_if(idle.begin(), idle.end(), [&](const Return& r) { return r.second == c; });
        if (own != idle.end()) {
            all_taken.push_back({children.begin[next], own->first});
            idle.erase(own);
        }
        auto& found = idle_[c];
        found.others = static_cast<std::int32_t>(idle.size());
        found.taken = taken;
        for (std::size_t k = 0; k < std::min(idle.size(), kListed); ++k) {
            found.first[k] = idle[k].first;
            found.last[k] = idle[idle.size() - 1 - k].first;
        }
    }
}

IdleOrder::Around IdleOrder::look(const Problem& problem, std::int32_t p, std::int32_t c) const noexcept {
    const auto& found = idle_[c];
    const Time back = given_back(problem, p, c);
    Around out{0, 0, problem.children.begin[next_on_conn_[c]] - back};
    if (out.idle < 0) return out;
    const Time own = by_parent_[p], instead = by_child_[c];
    const bool change = own != kUnknown && instead != kUnknown;
    const auto when = [&](Time at) { return change && at == own ? instead : at; };
    // Those that it left behind,
    const auto listed = std::min(static_cast<std::size_t>(found.others), kListed);
    for (std::size_t k = 0; k < listed; ++k) {
        out.crossed += when(found.last[k]) > back;
        out.nested += when(found.first[k]) < back;
    }
    // and those that were taken while it lay idle.
    const auto& taken = taken_[problem.pool_of_child(static_cast<std::size_t>(c))];
    const int since = std::max(found.taken - kWindow, 0);
    for (int k = found.taken; k-- > since && taken[k].at > back;) {
        const Time given = when(taken[k].given_back);
        out.crossed += given < back;
        out.nested += given > back;
    }
    return out;
}

void IdleOrder::estimate(const Problem& problem, const Candidates& candidates,
                         const std::vector<std::int32_t>& parent_of, double keep) {
    const auto& parents = problem.parents;
    rank(problem, parent_of);
    of_server_.resize(std::max(of_server_.size(), static_cast<std::size_t>(problem.servers)));
    for (auto& server : of_server_) {
        for (auto& habit : server.habit) habit.fade(keep);
    }
    for (std::size_t p = 0; p < parents.size(); ++p) {
        const auto c = latest_[p];
        if (c == kNone || next_on_conn_[c] == kNone || !parents.answered[p]) continue;
        if (parents.depart[p] < problem.from || parents.depart[p] >= problem.until) continue;
        for (const auto q : candidates.of(static_cast<std::size_t>(c))) {
            if (!parents.answered[q]) continue;
            const auto around = look(problem, q, c);
            if (around.crossed + around.nested == 0) continue;
            const auto server = problem.server_of_child(static_cast<std::size_t>(c));
            auto& habit = of_server_[server].habit[static_cast<std::size_t>(group(around))];
            habit.possible[bucket(around)] += 1;
            if (q == static_cast<std::int32_t>(p)) habit.chosen[bucket(around)] += 1;
        }
    }
    for (auto& server : of_server_) server.learn();
}

// Each distance says what all of them say together, until it has been seen often.
void IdleOrder::OfServer::learn() {
    tells = false;
    for (std::size_t others = 0; others < kMostOthers; ++others) {
        Ordered all;
        for (std::size_t g = others; g < habit.size(); g += kMostOthers) all.add(habit[g]);
        const auto expected = all.ratios(kPrior, kMost);
        for (std::size_t g = others; g < habit.size(); g += kMostOthers) {
            ratio[g] = habit[g].ratios(kNearPrior, kMost, expected);
            for (const float each : ratio[g]) tells = tells || std::abs(each) > kWorthALook;
        }
    }
}

}  // namespace tapscope::match
