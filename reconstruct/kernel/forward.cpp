#include "forward.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tapscope::match {
namespace {

constexpr float kPlace = 0.5f;  // nats for each request that waits before another one
// To whom the child is so much less likely (nats), he is not in its queue: his class makes no call, or another first.
constexpr float kOtherQueue = 2.0f;

// Log of how many first calls there are in 1 ns.
float log_rate(const Parents& parents) noexcept {
    const auto n = parents.size();
    if (n < 2) return 0;
    const auto span = static_cast<double>(parents.arrive[n - 1] - parents.arrive[0] + 1);
    return static_cast<float>(std::log(static_cast<double>(n) / span));
}

}  // namespace

void Forward::run(Chains& chains, Starts starts) {
    const auto& children = problem_.children;
    const auto& open = nearness_.find_open();
    auto others = chains.parent_of();
    for (const auto c : open) others[c] = kNone;
    for (std::size_t c = 0; c < others.size(); ++c) {
        if (c < problem_.decided()) others[c] = problem_.decided_parent[c];
        if (candidates_.certain(c)) others[c] = candidates_.certain_parent[c];
    }
    chains.restore(others);
    struct Ahead {
        Tip tip;             // of its chain before the child at hand,
        std::size_t at = 0;  // which begins with so many
    };
    std::vector<Ahead> ahead(problem_.parents.size());
    const float rate = log_rate(problem_.parents);
    for (const auto c : open) {
        stop_.poll();
        const auto last = lent_.once() ? lent_.last_behind(problem_, c) : kNone;
        float top = -std::numeric_limits<float>::infinity();
        std::int32_t best = kNone;
        in_queue_.clear();
        for (auto k = candidates_.offset[c]; k < candidates_.offset[c + 1]; ++k) {
            const auto p = candidates_.parent[k];
            if (nearness_.apart(p)) continue;
            auto& [tip, at] = ahead[p];
            const auto& held = chains.held(p);
            while (at < held.size() && held[at] < c) model_.advance(p, tip, held[at++]);
            const auto parts = model_.parts(p, tip, c);
            nearness_.know(k, parts);
            float score = 0;
            if (starts == Starts::in_order && tip.latest == kStart) {
                score = parts.rest + parts.order + candidates_.content[k];
                const auto before = std::count_if(in_queue_.begin(), in_queue_.end(),
                                                  [&](float other) { return other > score - kOtherQueue; });
                in_queue_.push_back(score);
                score += rate - kPlace * static_cast<float>(before);
            } else {
                score = model_.tempered(parts) + candidates_.content[k] -
                        model_.log_survival(p, tip.latest, children.begin[c]);
            }
            const float both = last == kNone ? score : score + model_.step(p, last, kEnd);
            if (score > model_.orphan(c) && both > top) top = both, best = p;
        }
        if (best != kNone) chains.insert(best, ahead[best].at, c);
    }
    nearness_.know_all(chains);
}

}  // namespace tapscope::match
