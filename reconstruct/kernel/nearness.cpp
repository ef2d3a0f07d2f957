#include "nearness.hpp"

#include <algorithm>

namespace tapscope::match {

// Works out the steps that are not known any more. Returns whether there were any.
bool Nearness::refresh(const Chains& chains) {
    const auto parents = problem_.parents.size();
    const bool none = known_version_.size() != parents || step_.size() != candidates_.parent.size();
    if (none) find_ranges();
    stale_.assign(parents, none);
    stale_here_.assign(problem_.children.size() + 1, 0);
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
    touched_.assign(problem_.children.size(), 0);
    if (!any) return false;
    step_.resize(candidates_.parent.size());
    tip_.assign(parents, {});
    const auto& parent_of = chains.parent_of();
    std::int32_t stale_now = 0;
    for (std::size_t i = 0; i < parent_of.size(); ++i) {
        stale_now += stale_here_[i];
        if (stale_now == 0) continue;
        const auto c = static_cast<std::int32_t>(i);
        for (auto k = candidates_.offset[i]; k < candidates_.offset[i + 1]; ++k) {
            const auto p = candidates_.parent[k];
            if (!stale_[p] && (starts_known_ || tip_[p].latest != kStart)) continue;
            step_[k] = model_.parts(p, tip_[p], c);
            touched_[i] = 1;
        }
        if (const auto own = parent_of[i]; own != kNone) model_.advance(own, tip_[own], c);
    }
    starts_known_ = true;
    return true;
}

void Nearness::find_ranges() {
    first_.assign(problem_.parents.size(), kNone);
    last_ = first_;
    for (std::size_t i = 0; i < problem_.children.size(); ++i) {
        for (const auto p : candidates_.of(i)) {
            if (first_[p] == kNone) first_[p] = static_cast<std::int32_t>(i);
            last_[p] = static_cast<std::int32_t>(i);
        }
    }
}

void Nearness::look(std::size_t child, std::int32_t own, float width) {
    const auto here = candidates_.of(child);
    const auto first = candidates_.offset[child];
    score_.resize(here.size());
    const float nobody = model_.orphan(static_cast<std::int32_t>(child));
    float least = nobody;
    for (std::size_t k = 0; k < here.size(); ++k) {
        const auto at = first + static_cast<std::int64_t>(k);
        score_[k] = model_.tempered(step_[at]) + candidates_.content[at];
        if (here[k] == own) least = score_[k];
    }
    least -= width;
    const auto c = static_cast<std::int32_t>(child);
    for (std::size_t k = 0; k < here.size(); ++k) {
        const auto p = here[k];
        if (score_[k] < least || p == own) continue;
        near_.push_back({c, std::min(p, own), std::max(p, own)});
    }
    if (own != kNone && nobody >= least) near_.push_back({c, kNone, own});
}

void Nearness::find(const Chains& chains, float width) {
    const bool fresh = refresh(chains);
    const bool whole = width != width_ || model_.temper().gaps != temper_;
    if (!fresh && !whole) return;
    width_ = width;
    temper_ = model_.temper().gaps;
    const auto& parent_of = chains.parent_of();
    std::swap(near_, near_before_);
    near_.clear();
    std::size_t at = 0;
    for (std::size_t i = problem_.decided(); i < parent_of.size(); ++i) {
        const auto c = static_cast<std::int32_t>(i);
        if (!whole && !touched_[i]) {
            for (; at < near_before_.size() && near_before_[at].child <= c; ++at) {
                if (near_before_[at].child == c) near_.push_back(near_before_[at]);
            }
        } else if (!candidates_.of(i).empty()) {
            look(i, parent_of[i], width);
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
