// When does a request make a call? After its own work, or after a wait for a connection.
#include <algorithm>
#include <cstddef>

#include "model.hpp"

namespace tapscope::match {

void Model::bind_waits() {
    std::vector<std::int32_t> before;
    for (const auto& child : child_) before.push_back(child.before_on_conn);
    lending_.resize(std::max(lending_.size(), static_cast<std::size_t>(problem_.servers)));
    server_of_class_.resize(static_cast<std::size_t>(problem_.children.n_classes), 0);
    hand_over_.bind(before);
    idle_order_.bind(before);
    pool_wait_.bind(before);
    pick_.bind(problem_, before);
    for (std::size_t c = 0; c < child_.size(); ++c) {
        auto& child = child_[c];
        child.log_pick = pick_.log_chance(static_cast<std::int32_t>(c), child.log_pick);
        child.server = static_cast<std::uint8_t>(problem_.server_of_child(c));
        server_of_class_[static_cast<std::size_t>(child.cls)] = child.server;
        if (pick_.strict(child.server) && child.before_on_conn != kNone) child.log_again = child.log_pick;
    }
}

void Model::add_wait(std::int32_t p, std::int32_t c, Time gap, bool from_arrival,
                     Parts& parts) const noexcept {
    parts.order = StartOrder::kTemper * order_.evidence(p, c, gap);
    if (from_arrival) return;
    const auto ways =
        pool_wait_.ways(PoolWait::Call::first, p, c, parent_[p].request_end, load_before(p, kStart));
    parts.rest += ways.work;
    parts.wait = ways.wait - ways.work;
    parts.wait_gap = ways.gap;
}

bool Model::may_have_waited(const Tip& tip, std::int32_t c) const noexcept {
    if (tip.latest == kStart) return true;
    const auto& before = child_[tip.latest];
    return child_[c].before_on_conn != tip.latest && before.end <= child_[c].begin + kSlack;
}

std::vector<float> Model::find_waits(const std::vector<std::int32_t>& parent_of) const {
    std::vector<float> waited(parent_of.size(), 0.0f);
    std::vector<Tip> tip(parent_.size());
    for (std::size_t i = 0; i < parent_of.size(); ++i) {
        const auto p = parent_of[i];
        if (p == kNone) continue;
        const auto c = static_cast<std::int32_t>(i);
        const auto latest = tip[p].latest;
        if (may_have_waited(tip[p], c)) {
            const auto [from, to, wall, parallel, gap, log_speed] = look(p, tip[p], c);
            const int load = load_before(p, latest);
            const float work =
                density(cell(parent_[p].cls, from, to, load), false)[problem_.gaps.bin(gap)] + log_speed;
            if (latest == kStart) {
                waited[i] = pool_wait_.waited(PoolWait::Call::first, p, c, parent_[p].request_end, load,
                                              work + StartOrder::kTemper * order_.evidence(p, c, wall));
            } else {
                waited[i] = pool_wait_.waited(PoolWait::Call::later, p, c, child_[latest].end, load, work);
            }
        }
        advance(p, tip[p], c);
    }
    return waited;
}

}  // namespace tapscope::match
