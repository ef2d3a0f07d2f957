#include "nearness.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace tapscope::match {
namespace {

constexpr auto kUnknown = std::numeric_limits<std::uint64_t>::max();  // version of a chain that no chain has
constexpr float kOutlook = 20.0f;  // nats that a split may fall behind before it gains: see outlook.hpp

}  // namespace

// Works out the steps that are not known any more. Returns whether there were any.
bool Nearness::refresh(const Chains& chains) {
    const auto parents = problem_.parents.size();
    const bool none = known_version_.size() != parents;
    if (none) find_open();
    stale_.assign(parents, none);
    stale_here_.assign(open_.size() + 1, 0);
    known_version_.resize(parents);
    bool any = none || !starts_known_;
    if (any) ++stale_here_.front();  // all children are looked at
    for (std::size_t p = 0; p < parents; ++p) {
        const auto now = chains.version(static_cast<std::int32_t>(p));
        if (!none && known_version_[p] == now) continue;
        known_version_[p] = now;
        if (first_[p] == kNone) continue;
        any = true;
        stale_[p] = 1;
        ++stale_here_[static_cast<std::size_t>(first_[p])];
        --stale_here_[static_cast<std::size_t>(last_[p]) + 1];
    }
    touched_.assign(open_.size(), 0);
    if (!any) return false;
    ahead_.assign(parents, {});
    std::int32_t stale_now = 0;
    for (std::size_t i = 0; i < open_.size(); ++i) {
        stale_now += stale_here_[i];
        if (stale_now == 0) continue;
        stop_.poll();
        const auto c = open_[i];
        for (auto k = candidates_.offset[c]; k < candidates_.offset[c + 1]; ++k) {
            const auto p = candidates_.parent[k];
            if (apart(p)) continue;
            const auto& held = chains.held(p);
            if (!stale_[p] && (starts_known_ || (!held.empty() && held.front() < c))) continue;
            auto& [tip, at] = ahead_[p];
            while (at < held.size() && held[at] < c) model_.advance(p, tip, held[at++]);
            step_[k] = model_.parts(p, tip, c);
            touched_[i] = 1;
        }
    }
    starts_known_ = true;
    return true;
}

const std::vector<std::int32_t>& Nearness::find_open() {
    step_.resize(candidates_.parent.size());
    open_.clear();
    first_.assign(problem_.parents.size(), kNone);
    last_ = first_;
    for (std::size_t c = problem_.decided(); c < problem_.children.size(); ++c) {
        if (candidates_.certain(c) || candidates_.of(c).empty()) continue;
        for (const auto p : candidates_.of(c)) {
            if (first_[p] == kNone) first_[p] = static_cast<std::int32_t>(open_.size());
            last_[p] = static_cast<std::int32_t>(open_.size());
        }
        open_.push_back(static_cast<std::int32_t>(c));
    }
    width_ = -1;  // who is in reach is another question from now on
    told_ = false;
    return open_;
}

void Nearness::narrow(const std::vector<std::uint8_t>& apart) {
    apart_ = apart;
    version_before_ = known_version_;
    find_open();
}

void Nearness::widen() {
    // Steps of these chains to children that were certain meanwhile are those of before.
    for (std::size_t p = 0; p < known_version_.size(); ++p) {
        if (known_version_[p] != version_before_[p]) known_version_[p] = kUnknown;
    }
    apart_.clear();
    find_open();
}

void Nearness::know_all(const Chains& chains) {
    known_version_.resize(problem_.parents.size());
    for (std::size_t p = 0; p < known_version_.size(); ++p) {
        known_version_[p] = chains.version(static_cast<std::int32_t>(p));
    }
    starts_known_ = true;
}

void Nearness::look(const Chains& chains, std::size_t child, std::int32_t own, float width) {
    const auto here = candidates_.of(child);
    const auto first = candidates_.offset[child];
    score_.resize(here.size());
    const float nobody = model_.orphan(static_cast<std::int32_t>(child));
    float least = nobody;
    for (std::size_t k = 0; k < here.size(); ++k) {
        const auto at = first + static_cast<std::int64_t>(k);
        if (apart(here[k])) {
            score_[k] = -std::numeric_limits<float>::infinity();
            continue;
        }
        score_[k] = model_.tempered(step_[at]) + candidates_.content[at];
        if (here[k] == own) least = score_[k];
    }
    const float held = least;
    least -= width;
    const auto c = static_cast<std::int32_t>(child);
    for (std::size_t k = 0; k < here.size(); ++k) {
        const auto p = here[k];
        if (score_[k] < least || p == own) continue;
        const bool open =
            !told_ || own == kNone || outlook_.open(chains, c, own, p, score_[k] - held, kOutlook);
        near_.push_back({c, std::min(p, own), std::max(p, own), open});
    }
    if (own == kNone || nobody < least) return;
    const bool open =
        !told_ || offered_[own] || outlook_.open(chains, c, own, kNobody, nobody - held, kOutlook);
    near_.push_back({c, kNone, own, open});
}

void Nearness::find(const Chains& chains, float width, Whom whom) {
    const bool fresh = refresh(chains);
    const bool whole = width != width_ || model_.temper().gaps != temper_ || (whom == Whom::open && !told_);
    if (!fresh && !whole) {
        if (std::exchange(whom_, whom) != whom) gather();
        return;
    }
    whom_ = whom;
    told_ = told_ || whom == Whom::open;
    width_ = width;
    temper_ = model_.temper().gaps;
    const auto& parent_of = chains.parent_of();
    offered_.assign(problem_.parents.size(), 0);
    for (const auto c : open_) {
        if (parent_of[c] != kNone) continue;
        for (const auto p : candidates_.of(static_cast<std::size_t>(c))) offered_[p] = 1;
    }
    std::swap(near_, near_before_);
    near_.clear();
    std::size_t at = 0;
    for (std::size_t i = 0; i < open_.size(); ++i) {
        const auto c = open_[i];
        stop_.poll();
        if (whole || touched_[i]) {
            look(chains, static_cast<std::size_t>(c), parent_of[c], width);
            continue;
        }
        for (; at < near_before_.size() && near_before_[at].child <= c; ++at) {
            if (near_before_[at].child == c) near_.push_back(near_before_[at]);
        }
    }
    gather();
}

void Nearness::gather() {
    const auto parents = problem_.parents.size();
    paired_.assign(parents, 0);
    lonely_.assign(parents, 0);
    keys_.clear();
    for (const auto& near : near_) {
        if (whom_ == Whom::open && !near.open) continue;
        if (near.p == kNone) {
            lonely_[near.q] = 1;
            continue;
        }
        const auto key = static_cast<std::uint64_t>(near.p) << 32 | static_cast<std::uint32_t>(near.q);
        if (keys_.empty() || keys_.back() != key) keys_.push_back(key);
    }
    std::sort(keys_.begin(), keys_.end());
    keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
    pairs_.clear();
    for (const auto key : keys_) {
        pairs_.emplace_back(static_cast<std::int32_t>(key >> 32),
                            static_cast<std::int32_t>(key & 0xFFFFFFFF));
        paired_[pairs_.back().first] = paired_[pairs_.back().second] = 1;
    }
    near_nobody_.clear();
    for (std::size_t p = 0; p < parents; ++p) {
        if (lonely_[p]) near_nobody_.push_back(static_cast<std::int32_t>(p));
    }
}

}  // namespace tapscope::match
