#include "forward.hpp"

#include <limits>
#include <vector>

namespace tapscope::match {

void Forward::run(Chains& chains) {
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
    for (const auto c : open) {
        const auto last = lent_.once() ? lent_.last_behind(problem_, c) : kNone;
        float top = -std::numeric_limits<float>::infinity();
        std::int32_t best = kNone;
        for (auto k = candidates_.offset[c]; k < candidates_.offset[c + 1]; ++k) {
            const auto p = candidates_.parent[k];
            if (nearness_.apart(p)) continue;
            auto& [tip, at] = ahead[p];
            const auto& held = chains.held(p);
            while (at < held.size() && held[at] < c) model_.advance(p, tip, held[at++]);
            const auto parts = model_.parts(p, tip, c);
            nearness_.know(k, parts);
            const float score = model_.tempered(parts) + candidates_.content[k] -
                                model_.log_survival(p, tip.latest, children.begin[c]);
            const float both = last == kNone ? score : score + model_.step(p, last, kEnd);
            if (score > model_.orphan(c) && both > top) top = both, best = p;
        }
        if (best != kNone) chains.insert(best, ahead[best].at, c);
    }
    nearness_.know_all(chains);
}

}  // namespace tapscope::match
