#include "chains.hpp"

#include <algorithm>

namespace tapscope::match {

void Chains::resize(std::size_t parents, std::size_t children) {
    parent_of_.assign(children, kNone);
    held_.resize(parents);
    for (auto& held : held_) held.clear();
    version_.assign(parents, 1);
    forget();
}

void Chains::clear() {
    for (auto& held : held_) held.clear();
    for (auto& version : version_) ++version;
    std::fill(parent_of_.begin(), parent_of_.end(), kNone);
}

void Chains::append(std::int32_t p, std::int32_t c) {
    parent_of_[c] = p;
    held_[p].push_back(c);
    ++version_[p];
}

void Chains::take(std::int32_t p, std::int32_t q, const PairSplit& split) {
    held_[p].clear();
    ++version_[p];
    if (q != kNobody) {
        held_[q].clear();
        ++version_[q];
    }
    for (std::size_t i = 0; i < split.children().size(); ++i) {
        const auto c = split.children()[i];
        const auto owner = split.side()[i] ? q : p;
        parent_of_[c] = owner == kNobody ? kNone : owner;
        if (owner != kNobody) held_[owner].push_back(c);
    }
}

void Chains::restore(const std::vector<std::int32_t>& parent_of) {
    std::vector<std::uint8_t> differs(held_.size(), 0);
    for (std::size_t c = 0; c < parent_of.size(); ++c) {
        if (parent_of[c] == parent_of_[c]) continue;
        for (const auto p : {parent_of[c], parent_of_[c]}) {
            if (p != kNone) differs[p] = 1;
        }
    }
    for (std::size_t p = 0; p < held_.size(); ++p) {
        if (!differs[p]) continue;
        held_[p].clear();
        ++version_[p];
    }
    parent_of_ = parent_of;
    for (std::size_t c = 0; c < parent_of_.size(); ++c) {
        const auto p = parent_of_[c];
        if (p != kNone && differs[p]) held_[p].push_back(static_cast<std::int32_t>(c));
    }
}

std::vector<std::vector<std::int32_t>> Chains::orphans() const {
    std::vector<std::vector<std::int32_t>> out(held_.size());
    for (std::size_t c = 0; c < parent_of_.size(); ++c) {
        if (parent_of_[c] != kNone) continue;
        for (const auto p : candidates_.of(c)) out[p].push_back(static_cast<std::int32_t>(c));
    }
    return out;
}

bool Chains::changed(std::int32_t p, std::int32_t q) {
    const auto low = static_cast<std::uint64_t>(std::min(p, q)),
               high = static_cast<std::uint64_t>(std::max(p, q));
    const auto at = asked_.insert((low << 32 | high) + 1);
    const std::uint64_t now = static_cast<std::uint64_t>(version_[low]) << 32 | version_[high];
    if (at == static_cast<std::int32_t>(asked_version_.size())) {
        asked_version_.push_back(now);
        return true;
    }
    if (asked_version_[at] == now) return false;
    asked_version_[at] = now;
    return true;
}

void Chains::forget() {
    asked_.clear(1024);
    asked_version_.clear();
}

}  // namespace tapscope::match
