#include "recall.hpp"

#include <algorithm>

namespace tapscope::match {
namespace {

constexpr double kLeast = 0.2;    // share of hits below which a habit is none; the first links are poor
constexpr double kEnough = 30.0;  // chances after which that is said
constexpr double kMost = 0.9;     // no habit is trusted further: people change
constexpr double kTemper = 0.6, kIndependent = 3.0;
constexpr std::int32_t kMostVotes = 4;      // that a value can have ahead of the others
constexpr std::size_t kMostHabits = 4096;   // and
constexpr std::size_t kMostKept = 1 << 20;  // values that are kept; then the past is forgotten

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
    a ^= b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2);
    a *= 0xD6E8FEB86659FD93ull;
    return a ^ (a >> 32);
}

}  // namespace

void Recall::bind() {
    if (past_.size() + present_.size() > kMostKept) past_.clear();
    for (const auto& [key, value] : present_) past_[key] = value;
    present_.clear();
    offset_.assign(1, 0);
    expected_.clear();
    expected_by_.clear();
    for (std::size_t p = 0; p < problem_.parents.size(); ++p) expect(static_cast<std::int32_t>(p));
}

const Recall::Named* Recall::last(std::uint64_t key) const {
    if (const auto now = present_.find(key); now != present_.end()) return &now->second;
    const auto before = past_.find(key);
    return before == past_.end() ? nullptr : &before->second;
}

// Of the parents, in order: what is known when p arrives.
void Recall::expect(std::int32_t p) {
    const auto& tokens = problem_.parents.tokens;
    for (auto j = tokens.offset[p]; j < tokens.offset[p + 1]; ++j) {
        const auto habits = habits_of_slot_.find(tokens.slot[j]);
        if (habits == habits_of_slot_.end()) continue;
        for (const auto h : habits->second) {
            const auto& habit = habits_[h];
            if (habit.dropped) continue;
            const auto* named = last(mix(mix(static_cast<std::uint64_t>(h), 1), tokens.hash[j]));
            if (named == nullptr) continue;
            const double share = habit.hits / (habit.chances + 2.0);
            expected_.push_back({habit.where, named->value, static_cast<float>(std::min(share, kMost))});
            expected_by_.push_back(h);
        }
    }
    offset_.push_back(static_cast<std::int64_t>(expected_.size()));
}

void Recall::learn(const std::vector<std::int32_t>& parent_of, double keep) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    for (auto& habit : habits_) {
        habit.hits *= keep;
        habit.chances *= keep;
    }
    present_.clear();
    offset_.assign(1, 0);
    expected_.clear();
    expected_by_.clear();
    std::size_t arrived = 0;
    double recalled = 0, requests = 1;
    std::vector<std::uint8_t> asks(parents.size(), 0);
    for (std::size_t c = 0; c < std::min(problem_.settled, parent_of.size()); ++c) {
        for (; arrived < parents.size() && parents.arrive[arrived] <= children.begin[c]; ++arrived) {
            expect(static_cast<std::int32_t>(arrived));
        }
        const auto p = parent_of[c];
        if (p == kNone || c < problem_.decided()) continue;
        for (auto i = children.tokens.offset[c]; i < children.tokens.offset[c + 1]; ++i) {
            const auto where = place(children.cls[c], children.tokens.slot[i]);
            bool known = false;
            for (auto j = parents.tokens.offset[p]; j < parents.tokens.offset[p + 1]; ++j) {
                // What the request itself names is a copy: content.cpp knows how often it is one.
                if (parents.tokens.hash[j] == children.tokens.hash[i]) continue;
                const auto slot = parents.tokens.slot[j];
                const auto name = mix(where, slot);
                auto at = habit_of_.find(name);
                if (at == habit_of_.end()) {
                    if (habits_.size() >= kMostHabits) continue;
                    at = habit_of_.emplace(name, static_cast<std::int32_t>(habits_.size())).first;
                    habits_of_slot_[slot].push_back(at->second);
                    habits_.push_back({where, 0, 0, false});
                }
                auto& habit = habits_[at->second];
                if (habit.dropped) continue;
                const auto key = mix(mix(static_cast<std::uint64_t>(at->second), 1), parents.tokens.hash[j]);
                const auto value = children.tokens.hash[i];
                Named named{value, 0};
                if (const auto* before = last(key); before != nullptr) {
                    named = *before;
                    habit.chances += 1;
                    habit.hits += named.value == value;
                    known = true;
                }
                if (named.value == value) {
                    named.votes = std::min(named.votes + 1, kMostVotes);
                } else if (--named.votes <= 0) {
                    named = {value, 1};
                }
                present_[key] = named;
            }
            recalled += known;
            requests += known && !asks[p];
            asks[p] |= known;
        }
    }
    for (; arrived < parents.size(); ++arrived) expect(static_cast<std::int32_t>(arrived));
    for (auto& habit : habits_) {
        habit.dropped = habit.dropped || (habit.chances > kEnough && habit.hits < kLeast * habit.chances);
    }
    temper_ = kTemper * std::min(1.0, kIndependent * requests / std::max(recalled, 1.0));
    for (std::size_t k = 0; k < expected_.size(); ++k) {
        const auto& habit = habits_[expected_by_[k]];
        const double share = habit.hits / (habit.chances + 2.0);
        expected_[k].weight = habit.dropped ? 0.0f : static_cast<float>(std::min(share, kMost));
    }
}

}  // namespace tapscope::match
