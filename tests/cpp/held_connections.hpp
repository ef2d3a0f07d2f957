// A world of requests that hold a connection while they work, and what a model says of who made which call in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "chains.hpp"
#include "model.hpp"
#include "pair.hpp"
#include "request_rows.hpp"

namespace tapscope::test {

inline constexpr std::int32_t kClasses = 12;

// Requests that each hold one of ten connections and ask one to six statements, in any order.
inline RequestRows held_connections(unsigned seed, int requests) {
    struct Call {
        match::Time begin, end;
        std::int32_t parent, cls, conn;
    };
    std::mt19937 random(seed);
    std::exponential_distribution<double> apart(1.0 / 2.5e6);
    std::lognormal_distribution<double> own(0.0, 0.8), answered(0.5, 0.6);
    RequestRows out;
    std::vector<Call> calls;
    std::vector<match::Time> free_at(10, 0);
    double now = 0;
    for (int k = 0; k < requests; ++k) {
        now += apart(random);
        const auto arrive = static_cast<match::Time>(now);
        std::vector<std::int32_t> idle;
        for (std::int32_t conn = 0; conn < 10; ++conn) {
            if (free_at[static_cast<std::size_t>(conn)] < arrive) idle.push_back(conn);
        }
        if (idle.empty()) continue;
        const auto conn = idle[random() % idle.size()];
        const auto parent = static_cast<std::int32_t>(out.parent_cls.size());
        match::Time at = arrive;
        for (auto left = 1 + random() % 6; left > 0; --left) {
            const match::Time begin = at + static_cast<match::Time>(own(random) * 1e6);
            at = begin + static_cast<match::Time>(answered(random) * 1e6);
            calls.push_back({begin, at, parent, static_cast<std::int32_t>(random() % kClasses), conn});
        }
        at += static_cast<match::Time>(own(random) * 1e6);
        free_at[static_cast<std::size_t>(conn)] = at;
        out.request(arrive, at);
    }
    std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin < b.begin; });
    for (const auto& call : calls) out.call(call.parent, call.cls, call.begin, call.end, call.conn);
    return out;
}

// Nats of all chains together, calls of nobody included.
inline double score_of(const match::Problem& problem, const match::Model& model,
                       const std::vector<std::int32_t>& parent_of) {
    std::vector<match::Tip> tip(problem.parents.size());
    double score = 0;
    for (std::size_t c = 0; c < parent_of.size(); ++c) {
        const auto p = parent_of[c];
        const auto child = static_cast<std::int32_t>(c);
        if (p == match::kNone) {
            score += model.orphan(child);
            continue;
        }
        score += model.step(p, tip[static_cast<std::size_t>(p)], child);
        model.advance(p, tip[static_cast<std::size_t>(p)], child);
    }
    for (std::size_t p = 0; p < tip.size(); ++p) {
        score += model.step(static_cast<std::int32_t>(p), tip[p], match::kEnd);
    }
    return score;
}

// Each child goes to any of its candidates.
inline std::vector<std::int32_t> anyhow(const match::Candidates& candidates, std::size_t children,
                                        unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::int32_t> out(children);
    for (std::size_t c = 0; c < children; ++c) {
        const auto here = candidates.of(c);
        out[c] = here[random() % here.size()];
    }
    return out;
}

// Shares children out between all pairs until none gains.
inline void climb_by_pairs(match::Chains& chains, match::PairSplit& split) {
    for (bool improved = true; improved;) {
        improved = false;
        for (std::int32_t p = 0; p < chains.parents(); ++p) {
            for (std::int32_t q = p + 1; q < chains.parents(); ++q) {
                if (!split.load(p, q, chains.held(p), chains.held(q)) || split.best() < 1e-3f) continue;
                chains.take(p, q, split);
                improved = true;
            }
        }
    }
}

inline int wrong(const std::vector<std::int32_t>& found, const std::vector<std::int32_t>& truth) {
    int out = 0;
    for (std::size_t c = 0; c < truth.size(); ++c) out += found[c] != truth[c];
    return out;
}

}  // namespace tapscope::test
