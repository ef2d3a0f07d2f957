// The first step of a chain: when does a request make its first call? After its own work, or after a wait.
#include "model.hpp"

namespace tapscope::match {
namespace {

// The order of starts repeats in part what the gaps say.
constexpr float kOrderTemper = 0.5f;

}  // namespace

void Model::bind_waits() {
    std::vector<std::int32_t> before;
    for (const auto& child : child_) before.push_back(child.before_on_conn);
    hand_over_.bind(before);
    idle_order_.bind(before);
    pool_wait_.bind(before);
}

void Model::add_wait(std::int32_t p, std::int32_t c, Time gap, bool from_arrival,
                     Parts& parts) const noexcept {
    float work = kOrderTemper * order_.evidence(p, c, gap);
    if (!from_arrival) {
        const auto ways = pool_wait_.ways(p, c, load_before(p, kStart));
        work += ways.work;
        parts.wait = ways.wait - work;
        parts.wait_gap = ways.gap;
    }
    parts.rest += work;
}

std::vector<float> Model::find_waits(const std::vector<std::int32_t>& parent_of) const {
    const auto& parents = problem_.parents;
    std::vector<float> waited(parents.size(), -1.0f);
    for (std::size_t i = 0; i < parent_of.size(); ++i) {
        const auto p = parent_of[i];
        if (p == kNone || waited[p] >= 0) continue;
        const auto c = static_cast<std::int32_t>(i);
        const auto [from, to, wall, parallel, gap, log_speed] = look(p, Tip{}, c);
        const Cell& first = cell(parents.cls[p], from, to, load_before(p, kStart));
        const float work =
            density(first, false)[problem_.gaps.bin(gap)] + log_speed + kOrderTemper * order_.evidence(p, c, wall);
        waited[p] = pool_wait_.waited(p, c, load_before(p, kStart), work);
    }
    return waited;
}

}  // namespace tapscope::match
