#include "outlook.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace tapscope::match {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

}  // namespace

// Content of child c with p in place of `own`; -inf where it cannot go there.
float Outlook::moved(std::int32_t c, std::int32_t own, std::int32_t p) const noexcept {
    const auto i = static_cast<std::size_t>(c);
    if (candidates_.certain(i) || i < problem_.decided()) return kImpossible;
    float there = 0.0f;
    if (p != kNobody) {
        const auto at = static_cast<std::size_t>(p);
        if (problem_.parents.arrive[at] > problem_.children.begin[i] + kSlack ||
            problem_.parents.depart[at] + kSlack < problem_.children.begin[i]) {
            return kImpossible;
        }
        const auto where = candidates_.find(i, p);
        if (where < 0) return kImpossible;
        there = candidates_.content[static_cast<std::size_t>(where)];
    }
    return there - candidates_.content[static_cast<std::size_t>(candidates_.find(i, own))];
}

float Outlook::step(std::int32_t p, std::int32_t last, std::int32_t next) const {
    if (p != kNobody) return model_.step(p, last, next);
    return next == kEnd ? 0.0f : model_.orphan(next);
}

void Outlook::add(const Ends& last, float ahead) {
    for (auto& way : ways_) {
        if (way.last != last) continue;
        way.ahead = std::max(way.ahead, ahead);
        return;
    }
    ways_.push_back({last, ahead});
}

bool Outlook::open(const Chains& chains, std::int32_t c, std::int32_t own, std::int32_t other, float ahead,
                   float width) {
    for (const auto p : {own, other}) {
        if (p != kNobody && (model_.fans_out(p) || length_.judges(p))) return true;
    }
    const std::array<std::int32_t, 2> parent{own, other};
    std::array<std::span<const std::int32_t>, 2> behind;
    Ends now{kStart, kStart};  // of the chains at hand
    for (std::size_t x = 0; x < 2; ++x) {
        if (parent[x] == kNobody) continue;
        const auto& held = chains.held(parent[x]);
        const auto next = std::lower_bound(held.begin(), held.end(), c);
        if (next != held.begin()) now[x] = *(next - 1);
        behind[x] = {next, held.end()};
    }
    ways_.clear();
    add({now[0], other == kNobody ? kStart : c}, ahead);
    now[0] = c;
    behind[0] = behind[0].subspan(1);
    for (std::size_t calls = 0; calls < kMostCalls; ++calls) {
        if (behind[0].empty() && behind[1].empty()) return ends(parent, now, width);
        const std::size_t x =
            behind[1].empty() || (!behind[0].empty() && behind[0].front() < behind[1].front()) ? 0 : 1;
        const auto child = behind[x].front();
        behind[x] = behind[x].subspan(1);
        follow(parent, now, child, x, width);
        now[x] = child;
        if (ways_.empty()) return false;
        if (ways_.size() > kMostWays) return true;
        for (const auto& way : ways_) {
            if (way.last == now) return true;
        }
    }
    return true;
}

// All ways go on with a child of parent[x].
void Outlook::follow(const std::array<std::int32_t, 2>& parent, const Ends& now, std::int32_t child,
                     std::size_t x, float width) {
    const float here = step(parent[x], now[x], child);
    const float content = moved(child, parent[x], parent[1 - x]);
    std::swap(ways_, before_);
    ways_.clear();
    for (const auto& way : before_) {
        const float stays =
            way.last[x] == now[x] ? way.ahead : way.ahead + step(parent[x], way.last[x], child) - here;
        auto last = way.last;
        last[x] = child;
        if (stays >= -width) add(last, stays);
        if (content == kImpossible) continue;
        const float goes = way.ahead + step(parent[1 - x], way.last[1 - x], child) + content - here;
        last = way.last;
        if (parent[1 - x] != kNobody) last[1 - x] = child;
        if (goes >= -width) add(last, goes);
    }
}

// Whether some way comes to the end within reach.
bool Outlook::ends(const std::array<std::int32_t, 2>& parent, const Ends& now, float width) const {
    for (const auto& way : ways_) {
        float total = way.ahead;
        for (std::size_t x = 0; x < 2; ++x) {
            if (way.last[x] == now[x]) continue;
            total += step(parent[x], way.last[x], kEnd) - step(parent[x], now[x], kEnd);
        }
        if (total >= -width) return true;
    }
    return false;
}

}  // namespace tapscope::match
