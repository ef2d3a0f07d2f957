#include "chains.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace tapscope::match {
namespace {

constexpr std::size_t kMostAsked = 1 << 20;  // 8 MB

std::uint64_t scramble(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// A chain's version is the sum of these.
std::uint64_t mark(std::int32_t child) noexcept {
    return scramble(static_cast<std::uint64_t>(child) + 0x9E3779B97F4A7C15ull);
}

}  // namespace

void Chains::resize(std::size_t parents, std::size_t children) {
    parent_of_.assign(children, kNone);
    held_.resize(parents);
    for (auto& held : held_) held.clear();
    version_.assign(parents, 0);
    const auto room = std::bit_ceil(std::clamp<std::size_t>(candidates_.parent.size(), 64, kMostAsked));
    asked_.assign(room, 0);
    forget();
}

void Chains::insert(std::int32_t p, std::size_t at, std::int32_t c) {
    parent_of_[c] = p;
    held_[p].insert(held_[p].begin() + static_cast<std::ptrdiff_t>(at), c);
    version_[p] += mark(c);
}

void Chains::append(std::int32_t p, std::int32_t c) {
    parent_of_[c] = p;
    held_[p].push_back(c);
    version_[p] += mark(c);
}

void Chains::take(std::int32_t p, std::int32_t q, const PairSplit& split) {
    for (const auto owner : {p, q}) {
        if (owner == kNobody) continue;
        held_[owner].clear();
        version_[owner] = 0;
    }
    for (std::size_t i = 0; i < split.children().size(); ++i) {
        const auto c = split.children()[i];
        const auto owner = split.side()[i] ? q : p;
        parent_of_[c] = kNone;
        if (owner != kNobody) append(owner, c);
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
        version_[p] = 0;
    }
    parent_of_ = parent_of;
    for (std::size_t c = 0; c < parent_of_.size(); ++c) {
        const auto p = parent_of_[c];
        if (p != kNone && differs[p]) append(p, static_cast<std::int32_t>(c));
    }
}

void Chains::restore(const std::vector<std::pair<std::int32_t, std::vector<std::int32_t>>>& before) {
    for (const auto& [p, chain] : before) {
        held_[p].clear();
        version_[p] = 0;
        for (const auto c : chain) append(p, c);
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

bool Chains::ask(std::int32_t p, const std::vector<std::int32_t>& orphans, float temper) noexcept {
    std::uint64_t others = 0;
    for (const auto c : orphans) others += mark(c);
    return ask(p, kNobody, temper, others);
}

bool Chains::ask(std::int32_t p, std::int32_t q, float temper, std::uint64_t others) noexcept {
    const auto who = static_cast<std::uint64_t>(p) << 32 | static_cast<std::uint32_t>(q);
    const auto fingerprint = scramble(scramble(scramble(who ^ scramble(how(temper))) + version_[p]) + others);
    auto& place = asked_[fingerprint & (asked_.size() - 1)];
    if (place == fingerprint) return false;
    place = fingerprint;
    return true;
}

bool Chains::ask_all(float temper) noexcept {
    auto fingerprint = how(temper);
    for (const auto version : version_) fingerprint = scramble(fingerprint + version);
    return std::exchange(all_asked_, fingerprint) != fingerprint;
}

}  // namespace tapscope::match
