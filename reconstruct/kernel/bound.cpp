#include "bound.hpp"

#include <algorithm>
#include <cmath>

namespace tapscope::match {
namespace {

constexpr double kPrior = 30.0;            // visits that say "no habit" before any visit is seen
constexpr float kMost = 6.0f;              // nats that it may say, either way
constexpr float kWorthALook = 0.2f;        // nats, in the mean over visits
constexpr double kMostBroken = 0.05;       // share of visits by connections that are known and never met
constexpr float kFew = 3.0f;               // visits that tell less
constexpr std::size_t kAsked = 1'000'000;  // candidates that teach the habit

std::uint64_t together(std::uint64_t a, std::uint64_t b) noexcept {
    a ^= b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2);
    a *= 0xD6E8FEB86659FD93ull;
    return a ^ (a >> 32);
}

// Names of connections of either side, so that they do not meet.
std::uint64_t named(std::int64_t conn, std::uint64_t side) noexcept {
    return together(static_cast<std::uint64_t>(conn) * 2 + side, 0x8EBC6AF09C88C6E3ull);
}

}  // namespace

std::uint64_t Bound::name_of_parent(std::int32_t p) const noexcept {
    return named(problem_.parents.conn[static_cast<std::size_t>(p)], 0);
}

std::uint64_t Bound::name_of_child(std::size_t c) const noexcept {
    return named(problem_.children.conn_name[c], 1);
}

int Bound::share(float used, float met) noexcept {
    if (used < 0.5f) return kUnknown;
    const bool few = used < kFew;
    if (met < 0.5f) return few ? kNeverOfFew : kNever;
    if (few) return 2;
    return met < 0.5f * used ? 4 : met < 0.9f * used ? 5 : 6;
}

bool Bound::visits(std::int32_t p, std::size_t c) const noexcept {
    const auto conn = static_cast<std::uint32_t>(problem_.children.conn[c]);
    return visit_.find((static_cast<std::uint64_t>(p) + 1) << 32 | conn) != kNone;
}

std::vector<Bound::Used> Bound::used_by_parents() const {
    std::vector<Used> out;
    for (std::size_t p = 0; p < problem_.parents.size(); ++p) {
        const auto name = name_of_parent(static_cast<std::int32_t>(p));
        out.push_back({name, count_.count(name)});
    }
    return out;
}

Bound::Used Bound::used_by_child(std::size_t c) const noexcept {
    const auto name = name_of_child(c);
    return {name, count_.count(name)};
}

int Bound::bucket(std::int32_t p, std::size_t c, std::int32_t owner, const Used& ahead,
                  const Used& behind) const noexcept {
    float met = count_.count(together(ahead.name, behind.name)), by_ahead = ahead.visits,
          by_behind = behind.visits;
    if (!parent_of_.empty()) {
        const bool own = visits(p, c);
        by_ahead -= static_cast<float>(visits_of_[static_cast<std::size_t>(p)]);
        by_behind -= own;
        met -= own;
        if (owner != kNone && owner != p) {
            const bool same = problem_.parents.conn[static_cast<std::size_t>(owner)] ==
                              problem_.parents.conn[static_cast<std::size_t>(p)];
            by_ahead -= same;
            by_behind -= 1;
            met -= same;
        }
    }
    return share(by_ahead, met) * kShares + share(by_behind, met);
}

void Bound::bind() {
    visit_.clear(64);
    parent_of_.clear();
}

void Bound::estimate(const std::vector<std::int32_t>& parent_of, double keep) {
    const auto& children = problem_.children;
    habit_.fade(keep);
    if (keep > 0) {
        count_.fade(keep);
    } else {
        count_ = {};
    }
    visit_.clear(64);
    parent_of_.clear();
    visits_of_.assign(problem_.parents.size(), 0);
    tells_ = false;
    if (problem_.parents.conn.empty() || children.conn_name.empty()) return;
    std::vector<std::size_t> first;  // child of each visit
    std::size_t made = 0, asked = 0;
    for (std::size_t c = problem_.decided(); c < std::min(problem_.settled, parent_of.size()); ++c) {
        const auto p = parent_of[c];
        if (p == kNone) continue;
        ++made;
        const auto at = visit_.insert((static_cast<std::uint64_t>(p) + 1) << 32 |
                                      static_cast<std::uint32_t>(children.conn[c]));
        if (at < static_cast<std::int32_t>(first.size())) continue;
        first.push_back(c);
        ++visits_of_[static_cast<std::size_t>(p)];
        asked += candidates_.of(c).size();
        const auto ahead = name_of_parent(p), behind = name_of_child(c);
        for (const auto name : {ahead, behind, together(ahead, behind)}) count_.add(name);
    }
    parent_of_ = parent_of;
    const auto used = used_by_parents();
    const auto stride = asked / kAsked + 1;
    for (std::size_t v = 0; v < first.size(); v += stride) {
        const auto c = first[v];
        if (candidates_.of(c).size() < 2) continue;  // nobody else could have made it: it tells nothing
        const auto behind = used_by_child(c);
        for (const auto p : candidates_.of(c)) {
            const auto at = static_cast<std::size_t>(
                bucket(p, c, parent_of[c], used[static_cast<std::size_t>(p)], behind));
            habit_.possible[at] += 1;
            if (p == parent_of[c]) habit_.chosen[at] += 1;
        }
    }
    ratio_ = habit_.ratios(kPrior, kMost);
    once_ = made == 0 ? 1.0f : static_cast<float>(first.size()) / static_cast<float>(made);
    double said = 0, visits = 1, known = 1, broken = 0;
    for (int ahead = 0; ahead < kShares; ++ahead) {
        for (int behind = 0; behind < kShares; ++behind) {
            const auto b = static_cast<std::size_t>(ahead * kShares + behind);
            said += habit_.chosen[b] * ratio_[b];
            visits += habit_.chosen[b];
            if (ahead == kUnknown || behind == kUnknown) continue;
            known += habit_.chosen[b];
            if (never_met(ahead) && never_met(behind)) broken += habit_.chosen[b];
        }
    }
    // Connections that are used at the same times meet again, too: a burst opens new ones on both sides. That is no
    // bond, and misleads where many are in flight. Bonds are hardly ever broken.
    tells_ = said / visits > kWorthALook && broken / known < kMostBroken;
}

void Bound::score() const {
    if (!tells_) return;
    const auto used = used_by_parents();
    for (std::size_t c = problem_.decided(); c < problem_.children.size(); ++c) {
        if (candidates_.certain(c)) continue;
        const auto owner = parent_of_.empty() ? kNone : parent_of_[c];
        const bool counted = c < problem_.settled;
        const auto behind = used_by_child(c);
        for (auto i = candidates_.offset[c]; i < candidates_.offset[c + 1]; ++i) {
            const auto p = candidates_.parent[i];
            const auto at = bucket(p, c, counted ? owner : kNone, used[static_cast<std::size_t>(p)], behind);
            candidates_.content[i] += once_ * ratio_[static_cast<std::size_t>(at)];
        }
    }
}

}  // namespace tapscope::match
