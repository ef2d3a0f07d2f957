#include "probability.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "content.hpp"

namespace tapscope::match {
namespace {

constexpr double kNeverSure = 1e-6;  // probability that something else is true, at least

}  // namespace

Draws::Draws(const Candidates& candidates, const Chains& chains, const std::vector<Pair>& live)
    : candidates_(candidates), drawn_(candidates.parent.size(), 0), moving_(chains.parent_of().size(), 0) {
    for (const auto& [p, q] : live) {
        for (const auto owner : {p, q}) {
            for (const auto c : chains.held(owner)) {
                if (!moving_[c]) moving_children_.push_back(c);
                moving_[c] = 1;
            }
        }
    }
}

void Draws::count(const Chains& chains) {
    for (const auto c : moving_children_) ++drawn_[candidates_.find(c, chains.parent_of()[c])];
}

Assignment Probabilities::weigh(const Draws& drawn) {
    const std::size_t n = problem_.children.size();
    const auto& parent_of = chains_.parent_of();
    auto odds = odds_of_pairs();
    exchange_.load(chains_, nearness_.paired());
    const auto chain = exchange_.marginals();

    Assignment out{parent_of, std::vector<double>(n), std::move(odds.alternative), std::vector<double>(n),
                   split_.too_large()};
    const double draws = draws_;
    for (std::size_t c = 0; c < n; ++c) {
        double p = 1.0 / (1.0 + odds.sum[c] + kNeverSure);
        double second = p * odds.best[c];
        if (drawn.moving(c) && parent_of[c] != kNone && draws_ > 0) {
            const double times = drawn.times(candidates_.find(c, parent_of[c]));
            if (times < draws) p = std::min(p, (times + 0.5) / (draws + 1));
            double most = 0;
            for (auto k = candidates_.offset[c]; k < candidates_.offset[c + 1]; ++k) {
                if (candidates_.parent[k] == parent_of[c] || drawn.times(k) <= most) continue;
                most = drawn.times(k);
                out.runner_up[c] = candidates_.parent[k];
                second = most / (draws + 1);
            }
        }
        if (parent_of[c] != kNone) {
            const auto& whole = chain[parent_of[c]];
            p = std::min(p, std::max(whole.own, kNeverSure));
            if (whole.other_probability > second) {
                second = whole.other_probability;
                out.runner_up[c] = whole.other;
            }
        }
        out.probability[c] = p;
        out.runner_up_probability[c] = std::min(second, 1 - p);
    }
    return out;
}

Probabilities::Odds Probabilities::odds_of_pairs() {
    const std::size_t n = problem_.children.size();
    Odds odds{std::vector<double>(n, 0.0), std::vector<double>(n, 0.0), std::vector<std::int32_t>(n, kNone)};
    for (std::size_t c = 0; c < n; ++c) {
        if (candidates_.certain(c)) odds.sum[c] = std::exp(-kNamed);
    }
    for (const auto& [p, q] : nearness_.pairs()) {
        stop_.poll();
        if (split_.load(p, q, chains_.held(p), chains_.held(q))) add_pair(p, q, odds);
    }
    const auto orphans = chains_.orphans();
    for (const auto p : nearness_.near_nobody()) {
        stop_.poll();
        if (chains_.held(p).empty() && orphans[p].empty()) continue;
        if (split_.load(p, kNobody, chains_.held(p), orphans[p])) add_pair(p, kNobody, odds);
    }
    return odds;
}

void Probabilities::add_pair(std::int32_t p, std::int32_t q, Odds& odds) {
    const auto& parent_of = chains_.parent_of();
    move_.marginals(to_q_);
    for (std::size_t i = 0; i < to_q_.size(); ++i) {
        const auto c = split_.children()[i];
        const bool held_by_p = parent_of[c] == p;
        const double away = std::clamp(held_by_p ? to_q_[i] : 1 - to_q_[i], 0.0, 1 - kNeverSure);
        const double odds_here = away / (1 - away);
        odds.sum[c] += odds_here;
        if (odds_here > odds.best[c]) {
            odds.best[c] = odds_here;
            odds.alternative[c] = held_by_p ? (q == kNobody ? kNone : q) : p;
        }
    }
}

}  // namespace tapscope::match
