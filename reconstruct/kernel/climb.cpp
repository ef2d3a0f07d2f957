// Moves that only gain, until none does; and draws among those that hardly lose.
#include "search.hpp"

namespace tapscope::match {
namespace {

constexpr float kGainWorthTaking = 1e-3f;     // nats; below it an exchange is rounding
constexpr double kExchangeWorthTaking = 1.0;  // nats over all chains; the auction is exact only to its bids
constexpr double kLive = 1e-3;  // probability of another parent from which on a pair is drawn again

}  // namespace

// Pairwise splits of near parents until nothing improves.
void Matcher::Search::climb(int max_sweeps, float reach) {
    for (int sweep = 0; sweep < max_sweeps; ++sweep) {
        nearness_.find(chains_, reach, learned_ ? Nearness::Whom::open : Nearness::Whom::all);
        bool improved = adopt_or_leave();
        for (const auto& [p, q] : nearness_.pairs()) {
            stop_.poll();
            if (!chains_.ask(p, q, model_.temper().gaps)) continue;
            if (!split_.load(p, q, chains_.held(p), chains_.held(q))) continue;
            if (move_.best() < kGainWorthTaking) continue;
            improved = true;
            chains_.take(p, q, split_);
            chains_.ask(p, q, model_.temper().gaps);  // in its new, best state
        }
        if (!improved && !exchange_chains()) break;
    }
}

bool Matcher::Search::exchange_chains() {
    if (!chains_.ask_all(model_.temper().gaps)) return false;
    exchange_.load(chains_, nearness_.paired());
    if (exchange_.best() < kExchangeWorthTaking) return false;
    chains_.restore(exchange_.parent_of(chains_));
    return true;
}

// Exchanges between each parent and the orphans.
bool Matcher::Search::adopt_or_leave() {
    bool improved = false;
    if (nearness_.near_nobody().empty()) return false;
    auto orphans = chains_.orphans();
    for (const auto p : nearness_.near_nobody()) {
        stop_.poll();
        std::erase_if(orphans[p], [&](std::int32_t c) { return chains_.parent_of()[c] != kNone; });
        if (chains_.held(p).empty() && orphans[p].empty()) continue;
        if (!chains_.ask(p, orphans[p], model_.temper().gaps)) continue;
        if (!split_.load(p, kNobody, chains_.held(p), orphans[p])) continue;
        if (move_.best() < kGainWorthTaking) continue;
        improved = true;
        chains_.take(p, kNobody, split_);
    }
    return improved;
}

// Pairs between which something is undecided. The others would be drawn the same way again and again.
void Matcher::Search::find_live_pairs() {
    live_.clear();
    std::vector<double> to_q;
    for_pairs(Nearness::Whom::open, [&](std::int32_t p, std::int32_t q) {
        move_.marginals(to_q);
        for (std::size_t i = 0; i < to_q.size(); ++i) {
            const double away = chains_.parent_of()[split_.children()[i]] == p ? to_q[i] : 1 - to_q[i];
            if (away < kLive) continue;
            live_.emplace_back(p, q);
            break;
        }
    });
}

void Matcher::Search::draw() {
    for (const auto& [p, q] : live_) {
        stop_.poll();
        if (!split_.load(p, q, chains_.held(p), chains_.held(q))) continue;
        if (move_.draw()) chains_.take(p, q, split_);
    }
}

}  // namespace tapscope::match
