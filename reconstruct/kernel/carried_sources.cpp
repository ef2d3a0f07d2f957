// Which calls held the values of a call before it, and what they go back to.
#include <algorithm>
#include <array>
#include <iterator>

#include "carried.hpp"

namespace tapscope::match {
namespace {

constexpr std::size_t kSources = 12;  // calls that hold one value, from which on it is everybody's
constexpr double kCommon = 0.1;       // and share of the calls that name it in one place
constexpr std::size_t kLineage = 16;  // calls that one goes back to

// The latest calls that held a value, or requests that asked for it.
struct Holders {
    std::array<std::int32_t, kSources> latest{};
    std::uint32_t count = 0;
    void add(std::int32_t c) noexcept {
        if (count > 0 && latest[(count - 1) % kSources] == c) return;
        latest[count++ % kSources] = c;
    }
    template <class Which>
    bool any(Which&& which) const {
        return std::any_of(latest.begin(), latest.begin() + std::min<std::ptrdiff_t>(count, kSources), which);
    }
    // Adds those that `may` hold it. Returns whether these are all: else it is everybody's.
    template <class May>
    bool list(May&& may, std::vector<std::int32_t>& out) const {
        const auto before = out.size();
        const auto last = latest.begin() + std::min<std::ptrdiff_t>(count, kSources);
        std::copy_if(latest.begin(), last, std::back_inserter(out), may);
        return out.size() - before < kSources;
    }
};

// Values, and who held them: had them in the answer, or named them.
class Held {
public:
    Holders& answered(std::uint64_t hash) { return at(hash).answered; }
    Holders& named(std::uint64_t hash) { return at(hash).named; }

private:
    struct Value {
        Holders answered, named;
    };
    Value& at(std::uint64_t hash) {
        const auto at = static_cast<std::size_t>(values_.insert(std::max<std::uint64_t>(hash, 1)));
        if (at == held_.size()) held_.emplace_back();
        return held_[at];
    }
    KeyMap values_;
    std::vector<Value> held_;
};

void sort_once(std::vector<std::int32_t>& calls) {
    std::sort(calls.begin(), calls.end());
    calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
}

}  // namespace

// By token of a child: whether a request that may have made it names the same.
std::vector<std::uint8_t> Carried::asked_for() const {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    std::vector<std::uint8_t> out;
    KeyMap values;
    values.clear(parents.tokens.hash.size());
    std::vector<Holders> asked;
    std::size_t arrived = 0;
    for (std::size_t c = 0; c < children.size(); ++c) {
        for (; arrived < parents.size() && parents.arrive[arrived] <= children.begin[c] + kSlack; ++arrived) {
            for (auto t = parents.tokens.offset[arrived]; t < parents.tokens.offset[arrived + 1]; ++t) {
                const auto at = static_cast<std::size_t>(
                    values.insert(std::max<std::uint64_t>(parents.tokens.hash[t], 1)));
                if (at == asked.size()) asked.emplace_back();
                asked[at].add(static_cast<std::int32_t>(arrived));
            }
        }
        for (auto t = children.tokens.offset[c]; t < children.tokens.offset[c + 1]; ++t) {
            const auto at = values.find(std::max<std::uint64_t>(children.tokens.hash[t], 1));
            out.push_back(at != kNone && asked[static_cast<std::size_t>(at)].any(
                                             [&](std::int32_t p) { return candidates_.find(c, p) >= 0; }));
        }
    }
    return out;
}

// By token of a child: whether only those that held it before may tell whose it is: no request that may have made the call
// names it, nor do many calls in that place.
std::vector<std::uint8_t> Carried::telling() const {
    const auto& children = problem_.children;
    auto asked = asked_for();
    for (std::size_t t = 0; t < asked.size(); ++t) asked[t] |= of_endpoint(children.tokens.slot[t]);
    KeyMap places, values;
    std::vector<std::int32_t> place_at(asked.size(), kNone), value_at(asked.size(), kNone);
    std::vector<double> at_place, of_value;
    const auto count = [](KeyMap& map, std::uint64_t key, std::vector<double>& counts) {
        const auto at = map.insert(std::max<std::uint64_t>(key, 1));
        counts.resize(static_cast<std::size_t>(map.size()), 0.0);
        counts[static_cast<std::size_t>(at)] += 1;
        return at;
    };
    for (std::size_t c = 0; c < children.size(); ++c) {
        for (auto i = children.tokens.offset[c]; i < children.tokens.offset[c + 1]; ++i) {
            const auto t = static_cast<std::size_t>(i);
            if (asked[t]) continue;
            const auto place =
                (static_cast<std::uint64_t>(children.cls[c]) + 1) << 32 | children.tokens.slot[t];
            place_at[t] = count(places, place, at_place);
            value_at[t] = count(values, place * 0x9E3779B97F4A7C15ull ^ children.tokens.hash[t], of_value);
        }
    }
    std::vector<std::uint8_t> out(asked.size(), 0);
    for (std::size_t t = 0; t < out.size(); ++t) {
        if (asked[t]) continue;
        const double others = of_value[static_cast<std::size_t>(value_at[t])] - 1;
        out[t] = others <= kCommon * (at_place[static_cast<std::size_t>(place_at[t])] - 1);
    }
    return out;
}

void Carried::bind() {
    const auto& children = problem_.children;
    sources_.clear();
    lineage_.clear();
    asked_at_.clear();
    asked_.clear();
    gone_back_to_.assign(children.size(), 0);
    const auto tells = telling();
    if (std::find(tells.begin(), tells.end(), 1) == tells.end()) return;
    const auto n = children.size();
    std::vector<std::int32_t> by_end(n);
    for (std::size_t c = 0; c < n; ++c) by_end[c] = static_cast<std::int32_t>(c);
    std::sort(by_end.begin(), by_end.end(), [&](std::int32_t a, std::int32_t b) {
        return children.end[a] != children.end[b] ? children.end[a] < children.end[b] : a < b;
    });
    Held held;
    std::vector<std::int32_t> answered, named;  // by whom the values of the call at hand were held
    std::vector<std::int32_t> family;           // of that call
    std::size_t ended = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const auto c = static_cast<std::int32_t>(i);
        for (; !children.results.hash.empty() && ended < n; ++ended) {
            const auto s = static_cast<std::size_t>(by_end[ended]);
            if (children.end[s] > children.begin[i] + kSlack) break;
            for (auto t = children.results.offset[s]; t < children.results.offset[s + 1]; ++t) {
                held.answered(children.results.hash[t]).add(by_end[ended]);
            }
        }
        const auto could = candidates_.of(i);
        // Nobody who could have made the call holds anything from before that.
        const Time since = could.empty() ? children.begin[i] : problem_.parents.arrive[could.front()];
        const auto lately = [&](std::int32_t s) { return s != c && children.begin[s] >= since - kSlack; };
        const auto of_another = [&](std::int32_t s) {
            return lately(s) && children.cls[s] != children.cls[i];
        };
        answered.clear();
        named.clear();
        for (auto t = children.tokens.offset[i]; t < children.tokens.offset[i + 1]; ++t) {
            if (!tells[static_cast<std::size_t>(t)]) continue;
            const auto value = children.tokens.hash[t];
            const auto answers = answered.size(), names = named.size();
            if (!held.answered(value).list(lately, answered) || !held.named(value).list(of_another, named)) {
                answered.resize(answers);
                named.resize(names);
            }
            held.named(value).add(c);
        }
        sort_once(answered);
        sort_once(named);
        std::set_union(answered.begin(), answered.end(), named.begin(), named.end(),
                       std::back_inserter(sources_.item));
        sources_.close();
        for (const auto s : sources_.of(c)) gone_back_to_[static_cast<std::size_t>(s)] = 1;
        // Apart, as long as those of others are looked at: where it goes they may have to move.
        family.assign(1, c);
        // An answer has what a whole family names; of what was named the latest goes back to the others.
        answered.insert(answered.end(), named.rbegin(), named.rend());
        for (const auto s : answered) {
            if (s > c) continue;  // within the slack
            for (const auto back : lineage_.of(s)) {
                if (family.size() > kLineage) break;  // itself not counted
                if (std::find(family.begin(), family.end(), back) == family.end()) family.push_back(back);
            }
        }
        lineage_.item.insert(lineage_.item.end(), family.begin(), family.end());
        lineage_.close();
        const bool any = !sources_.of(c).empty();
        asked_at_.push_back(any ? static_cast<std::int32_t>(asked_.size()) : kNone);
        if (any) asked_.emplace_back();
    }
}

}  // namespace tapscope::match
