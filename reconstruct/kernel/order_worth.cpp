// Does the order of arrivals say anything that gaps do not?
//
// Of requests that wait for nothing, each makes its first call when it is done with its own work: who has waited for
// longer is likelier to be next only as far as gaps say so. Candidates at large do not show that, as a call that comes
// early or late in the order mostly had only one who could have made it, and once the order counts, what is found by it
// shows more of it. So at each first call it is asked how likely it was that this one of those who wait had it, by gaps
// and grammar alone, and with the order as it was learned: it counts where that says more. While it does not count,
// what is found knows nothing of it.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace tapscope::match {
namespace {

// Nats for each first call that somebody else may have had, and in all.
constexpr double kWorthEach = 0.01, kWorthAtAll = 10.0;

}  // namespace

bool Model::order_tells(const std::vector<std::int32_t>& parent_of) const {
    std::vector<std::int32_t> first(parent_.size(), kNone);
    for (std::size_t c = parent_of.size(); c-- > 0;) {
        if (parent_of[c] != kNone)
            first[static_cast<std::size_t>(parent_of[c])] = static_cast<std::int32_t>(c);
    }
    const auto& survival = survival_[static_cast<std::size_t>(problem_.children.n_classes)];
    // How likely q is to make its first call when c is made, not having made it before.
    const auto hazard = [&](std::int32_t q, std::int32_t c) {
        const auto [from, to, wall, parallel, gap, log_speed] = look(q, Tip{}, c);
        const auto& way = cell(parent_[static_cast<std::size_t>(q)].cls, from, to, load_before(q, kStart));
        const float log_density =
            density(way, false)[static_cast<std::size_t>(problem_.gaps.bin(gap))] + log_speed;
        return std::exp(way.log_p + log_density -
                        survival[static_cast<std::size_t>(problem_.gaps.bin(wall))]);
    };
    double nats = 0, choices = 0;
    for (std::size_t i = problem_.decided(); i < std::min(problem_.settled, parent_of.size()); ++i) {
        const auto c = static_cast<std::int32_t>(i), p = parent_of[i];
        if (p == kNone || first[static_cast<std::size_t>(p)] != c) continue;
        double own = 0, own_in_order = 0, all = 0, all_in_order = 0;
        int waiting = 0;
        for (const auto q : candidates_.of(i)) {
            const auto its_first = first[static_cast<std::size_t>(q)];
            if (its_first != kNone && its_first < c) continue;
            const double chance = hazard(q, c);
            const double in_order =
                chance * std::exp(StartOrder::kTemper * order_.learned(q, c, since_arrival(q, c)));
            all += chance;
            all_in_order += in_order;
            ++waiting;
            if (q != p) continue;
            own = chance;
            own_in_order = in_order;
        }
        if (waiting < 2 || own <= 0) continue;
        choices += 1;
        nats += std::log(own_in_order / all_in_order) - std::log(own / all);
    }
    return nats > std::max(kWorthAtAll, kWorthEach * choices);
}

}  // namespace tapscope::match
