#include "recall.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace tapscope::match {
namespace {

constexpr double kLeast = 0.2;    // share of hits below which a habit is none; the first links are poor
constexpr double kEnough = 30.0;  // chances after which that is said
constexpr double kMost = 0.9;     // no habit is trusted further: people change
constexpr double kTemper = 0.6, kIndependent = 3.0;
constexpr std::int32_t kMostVotes = 4;  // that a value can have ahead of the others
constexpr std::size_t kMostHabits = 4096, kMostPlaces = 4096;
// Of those, when a table is full: what has told most, so that what comes later finds room.
constexpr std::size_t kStaying = 3072;
constexpr std::size_t kMostKept =
    1 << 20;  // values and what is remembered of them; then the past is forgotten,
constexpr std::size_t kLatelyNamed = kMostKept / 4;  // but for so much

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
    a ^= b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2);
    a *= 0xD6E8FEB86659FD93ull;
    return a ^ (a >> 32);
}

std::uint64_t pair_key(std::int32_t a, std::uint32_t b) noexcept {
    return (static_cast<std::uint64_t>(a) + 1) << 32 | b;
}

}  // namespace

void Recall::forget() {
    for (auto* map : {&values_, &places_, &habit_at_}) map->clear(64);
}

void Recall::bind() {
    for (auto& memories : memories_) {
        for (auto& memory : memories) {
            if (memory.round != round_) continue;
            memory.before = memory.now;
            memory.had_before = true;
        }
    }
    no_longer_remembered_ = 0;
    if (kept_ + value_.size() > kMostKept) drop_past();
    if (habits_.size() == kMostHabits || place_.size() == kMostPlaces) make_room();
    ++round_;
    const auto& parents = problem_.parents.tokens;
    const auto& children = problem_.children;
    value_at_.clear();
    const auto tokens = static_cast<std::size_t>(parents.offset[problem_.parents.size()]);
    for (std::size_t j = 0; j < tokens; ++j) {
        value_at_.push_back(value_of(std::max<std::uint64_t>(mix(parents.slot[j], parents.hash[j]), 1)));
    }
    place_at_.resize(children.tokens.slot.size());
    for (std::size_t c = 0; c < children.size(); ++c) {
        for (auto i = children.tokens.offset[c]; i < children.tokens.offset[c + 1]; ++i) {
            place_at_[i] = place_of(children.cls[c], children.tokens.slot[i]);
        }
    }
    find_asked();
    expected_.clear();
    expected_until_.clear();
    for (std::size_t p = 0; p < problem_.parents.size(); ++p) expect(static_cast<std::int32_t>(p));
    group();
}

std::int32_t Recall::place_of(std::int32_t child_class, std::uint32_t slot) {
    const auto key = pair_key(child_class, slot);
    if (place_.size() == kMostPlaces) return places_.find(key);
    const auto at = places_.insert(key);
    if (at == static_cast<std::int32_t>(place_.size())) place_.push_back(key);
    return at;
}

void Recall::find_asked() {
    const auto& tokens = problem_.children.tokens;
    words_ = (place_.size() + 63) / 64;
    asked_.assign(problem_.parents.size() * words_, 0);
    std::vector<std::int32_t> places;
    for (std::size_t c = 0; c < problem_.children.size(); ++c) {
        places.clear();
        for (auto i = tokens.offset[c]; i < tokens.offset[c + 1]; ++i) {
            if (place_at_[i] != kNone) places.push_back(place_at_[i]);
        }
        for (const auto p : candidates_.of(c)) {
            auto* const words = asked_.data() + static_cast<std::size_t>(p) * words_;
            for (const auto place : places) words[place / 64] |= std::uint64_t{1} << (place % 64);
        }
    }
}

// What was named lately stays: in the latest stretch, and before it as long as there is room for all of a stretch.
void Recall::drop_past() {
    std::vector<std::uint32_t> rounds;  // of all memories
    rounds.reserve(kept_);
    for (const auto& memories : memories_) {
        for (const auto& memory : memories) rounds.push_back(memory.round);
    }
    std::uint32_t gone = 0;  // up to here; there is no room for all of that round
    if (rounds.size() > kLatelyNamed) {
        std::nth_element(rounds.begin(), rounds.begin() + kLatelyNamed, rounds.end(), std::greater<>());
        gone = std::min(rounds[kLatelyNamed], round_ - 1);
    }
    const auto memories = std::move(memories_);
    const auto keys = std::move(value_);
    values_.clear(1024);
    value_.clear();
    memories_.clear();
    kept_ = 0;
    for (std::size_t v = 0; v < keys.size(); ++v) {
        for (const auto& memory : memories[v]) {
            if (memory.round <= gone) continue;
            memories_[value_of(keys[v])].push_back(memory);
            ++kept_;
        }
    }
    no_longer_remembered_ += rounds.size() - kept_;
}

// Habits in order, without those that are none.
std::vector<std::int32_t> Recall::worth_keeping() const {
    std::vector<std::int32_t> out;
    for (std::size_t h = 0; h < habits_.size(); ++h) {
        if (!habits_[h].dropped) out.push_back(static_cast<std::int32_t>(h));
    }
    if (out.size() <= kStaying) return out;
    std::nth_element(out.begin(), out.begin() + kStaying, out.end(), [&](std::int32_t a, std::int32_t b) {
        const double left = habits_[a].hits, right = habits_[b].hits;
        return left != right ? left > right : a > b;  // the younger one had less time
    });
    out.resize(kStaying);
    std::sort(out.begin(), out.end());
    return out;
}

// What is given up is learned anew if it comes again.
void Recall::make_room() {
    const auto staying = worth_keeping();
    const auto habits = std::move(habits_);
    const auto places = std::move(place_);
    habits_.clear();
    place_.clear();
    places_.clear(kMostPlaces);
    habit_at_.clear(kMostHabits);
    std::vector<std::uint8_t> used(places.size(), 0);
    for (const auto h : staying) used[habits[h].place] = 1;
    std::vector<std::int32_t> place_now(places.size(), kNone), habit_now(habits.size(), kNone);
    for (std::size_t at = 0; at < places.size(); ++at) {
        if (!used[at]) continue;
        place_now[at] = places_.insert(places[at]);
        place_.push_back(places[at]);
    }
    for (const auto h : staying) {
        auto habit = habits[h];
        habit.place = place_now[habit.place];
        habit_now[h] = habit_at_.insert(pair_key(habit.place, habit.slot));
        habits_.push_back(habit);
    }
    // Both keep their order, and so does what a value has in memory.
    for (auto& memories : memories_) {
        const auto gone =
            std::erase_if(memories, [&](const Memory& memory) { return habit_now[memory.habit] == kNone; });
        kept_ -= gone;
        no_longer_remembered_ += gone;
        for (auto& memory : memories) {
            memory.place = place_now[memory.place];
            memory.habit = habit_now[memory.habit];
        }
    }
}

std::int32_t Recall::value_of(std::uint64_t key) {
    const auto at = values_.insert(key);
    if (at == static_cast<std::int32_t>(value_.size())) {
        value_.push_back(key);
        memories_.emplace_back();
    }
    return at;
}

Recall::Memory& Recall::memory_of(std::int32_t value, std::int32_t habit) {
    auto& memories = memories_[value];
    const auto place = habits_[habit].place;
    const auto at =
        std::lower_bound(memories.begin(), memories.end(), std::pair(place, habit),
                         [](const Memory& memory, const std::pair<std::int32_t, std::int32_t>& name) {
                             return std::pair(memory.place, memory.habit) < name;
                         });
    if (at != memories.end() && at->habit == habit) return *at;
    ++kept_;
    Memory made;
    made.place = place;
    made.habit = habit;
    return *memories.insert(at, made);
}

std::int32_t Recall::habit_of(std::int32_t place, std::uint32_t slot) {
    const auto key = pair_key(place, slot);
    if (habits_.size() == kMostHabits) return habit_at_.find(key);
    const auto at = habit_at_.insert(key);
    if (at == static_cast<std::int32_t>(habits_.size())) habits_.push_back({0, 0, place, slot, false});
    return at;
}

// Of the parents, in order: what is known when p arrives, by place. What a value has in memory is in this order.
void Recall::expect(std::int32_t p) {
    const auto& tokens = problem_.parents.tokens;
    const auto first = static_cast<std::ptrdiff_t>(expected_.size());
    for (auto j = tokens.offset[p]; j < tokens.offset[p + 1]; ++j) {
        const auto middle = static_cast<std::ptrdiff_t>(expected_.size());
        const auto& memories = memories_[value_at_[j]];
        auto at = memories.begin();
        for_asked(p, [&](std::int32_t place) {
            at = std::lower_bound(at, memories.end(), place, [](const Memory& memory, std::int32_t name) {
                return memory.place < name;
            });
            for (; at != memories.end() && at->place == place; ++at) {
                const auto* named = last(*at);
                if (named == nullptr || habits_[at->habit].dropped) continue;
                expected_.push_back({place, at->habit, named->value, 0});
            }
        });
        const auto begin = expected_.begin();
        std::inplace_merge(begin + first, begin + middle, expected_.end(),
                           [](const Expected& a, const Expected& b) { return a.place < b.place; });
    }
    expected_until_.push_back(static_cast<std::int64_t>(expected_.size()));
}

// Groups what is expected by place, with the weights that habits have now.
void Recall::group() {
    groups_.clear();
    offset_.assign(1, 0);
    std::int64_t from = 0;
    for (const auto until : expected_until_) {
        for (auto k = from; k < until; ++k) {
            const auto& habit = habits_[expected_[k].habit];
            const double share = habit.hits / (habit.chances + 2.0);
            expected_[k].weight = habit.dropped ? 0.0f : static_cast<float>(std::min(share, kMost));
        }
        for (auto k = from; k < until; ++k) {
            if (k == from || expected_[k].place != expected_[k - 1].place) {
                groups_.push_back({expected_[k].place, 0, 0, k, k});
            }
            groups_.back().most = std::max(groups_.back().most, expected_[k].weight);
            groups_.back().end = k + 1;
        }
        for (auto g = offset_.back(); g < static_cast<std::int64_t>(groups_.size()); ++g) {
            groups_[g].log_missed = std::log(1 - static_cast<double>(groups_[g].most));
        }
        offset_.push_back(static_cast<std::int64_t>(groups_.size()));
        from = until;
    }
}

double Recall::score(std::int32_t p, std::int64_t child_token, double background) const {
    const auto first = groups_.begin() + offset_[p];
    const auto last = groups_.begin() + offset_[static_cast<std::size_t>(p) + 1];
    const auto place = place_at_[child_token];
    const auto group =
        std::lower_bound(first, last, place, [](const Group& g, std::int32_t at) { return g.place < at; });
    if (group == last || group->place != place || group->most <= 0) return 0;
    const auto value = problem_.children.tokens.hash[child_token];
    double right = 0;
    for (auto k = group->begin; k < group->end; ++k) {
        if (expected_[k].value == value) right = std::max(right, static_cast<double>(expected_[k].weight));
    }
    return temper_ * (right > 0 ? std::log(right / background + 1 - right) : group->log_missed);
}

void Recall::learn(const std::vector<std::int32_t>& parent_of, double keep) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    for (auto& habit : habits_) {
        habit.hits *= keep;
        habit.chances *= keep;
    }
    ++round_;
    expected_.clear();
    expected_until_.clear();
    std::size_t arrived = 0;
    double recalled = 0, requests = 1;
    not_remembered_ = 0;
    std::vector<std::uint8_t> asks(parents.size(), 0);
    for (std::size_t c = 0; c < std::min(problem_.settled, parent_of.size()); ++c) {
        for (; arrived < parents.size() && parents.arrive[arrived] <= children.begin[c]; ++arrived) {
            expect(static_cast<std::int32_t>(arrived));
        }
        const auto p = parent_of[c];
        if (p == kNone || c < problem_.decided()) continue;
        for (auto i = children.tokens.offset[c]; i < children.tokens.offset[c + 1]; ++i) {
            bool known = false;
            for (auto j = parents.tokens.offset[p]; j < parents.tokens.offset[p + 1]; ++j) {
                // What the request itself names is a copy: content.cpp knows how often it is one.
                if (parents.tokens.hash[j] == children.tokens.hash[i]) continue;
                const auto at =
                    place_at_[i] == kNone ? kNone : habit_of(place_at_[i], parents.tokens.slot[j]);
                not_remembered_ += at == kNone;
                if (at == kNone) continue;
                auto& habit = habits_[at];
                if (habit.dropped) continue;
                auto& memory = memory_of(value_at_[j], at);
                const auto value = children.tokens.hash[i];
                Named named{value, 0};
                if (const auto* before = last(memory); before != nullptr) {
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
                memory.now = named;
                memory.round = round_;
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
    group();
}

}  // namespace tapscope::match
