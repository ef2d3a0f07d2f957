#include "cut_off.hpp"

#include <algorithm>
#include <utility>

namespace tapscope::match {
namespace {

constexpr double kWorthIt = 0.5;       // nats
constexpr std::ptrdiff_t kAround = 4;  // other orphans that are looked at, before one and behind it

}  // namespace

bool CutOff::run(Chains& chains) {
    const auto& before_on_conn = problem_.children.before_on_conn;
    if (before_on_conn.empty()) return false;
    next_on_conn_.assign(before_on_conn.size(), kNone);
    for (std::size_t c = 0; c < before_on_conn.size(); ++c) {
        const auto before = before_on_conn[c];
        if (before != kNone) next_on_conn_[static_cast<std::size_t>(before)] = static_cast<std::int32_t>(c);
    }
    const auto orphans = chains.orphans();
    asks_left_ = before_on_conn.size();
    bool any = false;
    for (auto c = problem_.decided(); c < before_on_conn.size(); ++c) {
        if (chains.parent_of()[c] != kNone || candidates_.certain(c)) continue;
        const bool back = take_back(chains, static_cast<std::int32_t>(c), before_on_conn[c], orphans) ||
                          take_back(chains, static_cast<std::int32_t>(c), next_on_conn_[c], orphans);
        any = any || back;
    }
    return any;
}

bool CutOff::take_back(Chains& chains, std::int32_t c, std::int32_t beside,
                       const std::vector<Chain>& orphans) {
    const auto q = beside == kNone ? kNone : chains.parent_of()[static_cast<std::size_t>(beside)];
    if (q == kNone || model_.fans_out(q)) return false;
    double most = kWorthIt;
    std::vector<std::pair<std::int32_t, Chain>> best;
    for (const auto p : candidates_.of(static_cast<std::size_t>(c))) {
        stop_.poll();
        if (p == q || model_.fans_out(p)) continue;
        if (asks_left_ == 0) break;
        --asks_left_;
        const double gain = ask(chains, c, p, q, orphans[static_cast<std::size_t>(p)]);
        if (gain <= most) continue;
        most = gain;
        best = {{p, share_[0]}, {q, share_[1]}};
    }
    if (best.empty()) return false;
    chains.restore(best);
    return true;
}

double CutOff::ask(const Chains& chains, std::int32_t c, std::int32_t p, std::int32_t q,
                   const Chain& orphans) {
    with_ = chains.held(p);
    with_.insert(std::lower_bound(with_.begin(), with_.end(), c), c);
    if (!split_.load(p, q, with_, chains.held(q))) return 0;
    split_.best();
    for (auto& share : share_) share.clear();
    for (std::size_t k = 0; k < split_.children().size(); ++k) {
        share_[split_.side()[k]].push_back(split_.children()[k]);
    }
    double after = score_(p, share_[0]) - model_.orphan(c);
    const auto here = std::lower_bound(orphans.begin(), orphans.end(), c);
    const auto last = here + std::min(kAround + 1, orphans.end() - here);
    for (auto other = here - std::min(kAround, here - orphans.begin()); other != last; ++other) {
        const auto o = *other;
        const auto at = static_cast<std::size_t>(o);
        if (o == c || at < problem_.decided() || chains.parent_of()[o] != kNone || candidates_.certain(at))
            continue;
        with_ = share_[0];
        with_.insert(std::lower_bound(with_.begin(), with_.end(), o), o);
        const double taken = after + score_(p, with_) - score_(p, share_[0]) - model_.orphan(o);
        if (taken <= after) continue;
        after = taken;
        std::swap(with_, share_[0]);
    }
    return after + score_(q, share_[1]) - score_(p, chains.held(p)) - score_(q, chains.held(q));
}

}  // namespace tapscope::match
