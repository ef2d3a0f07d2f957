#include "carried.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace tapscope::match {
namespace {

constexpr double kPrior = 30.0;        // steps that say "no habit" before any step is seen
constexpr float kMost = 5.0f;          // nats that a step may say, either way
constexpr float kWorthALook = 0.2f;    // nats
constexpr double kCopiedAnyway = 0.3;  // share of copies of the request from which on a slot is content.hpp's
constexpr std::size_t kSources = 12;   // answers with one value, from which on it is everybody's
constexpr std::size_t kLineage = 16;   // calls that one goes back to
constexpr int kOthers = 4;             // candidates of a call that did not make it, and are asked

// The latest answers that had a value.
struct Holders {
    std::array<std::int32_t, kSources> latest{};
    std::uint32_t count = 0;
    void add(std::int32_t c) noexcept {
        if (count > 0 && latest[(count - 1) % kSources] == c) return;
        latest[count++ % kSources] = c;
    }
};

}  // namespace

void Carried::bind() { find_sources(); }

void Carried::find_sources() {
    const auto& children = problem_.children;
    sources_.clear();
    lineage_.clear();
    if (children.results.hash.empty()) return;
    const auto n = children.size();
    std::vector<std::int32_t> by_end(n);
    for (std::size_t c = 0; c < n; ++c) by_end[c] = static_cast<std::int32_t>(c);
    std::sort(by_end.begin(), by_end.end(), [&](std::int32_t a, std::int32_t b) {
        return children.end[a] != children.end[b] ? children.end[a] < children.end[b] : a < b;
    });
    KeyMap values;
    std::vector<Holders> holders;
    std::size_t ended = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const auto c = static_cast<std::int32_t>(i);
        for (; ended < n && children.end[by_end[ended]] <= children.begin[i] + kSlack; ++ended) {
            const auto s = static_cast<std::size_t>(by_end[ended]);
            for (auto t = children.results.offset[s]; t < children.results.offset[s + 1]; ++t) {
                const auto at = static_cast<std::size_t>(
                    values.insert(std::max<std::uint64_t>(children.results.hash[t], 1)));
                if (at == holders.size()) holders.emplace_back();
                holders[at].add(by_end[ended]);
            }
        }
        const auto first = sources_.item.size();
        const auto could = candidates_.of(i);
        // Nobody who could have made the call holds an answer from before that.
        const Time since = could.empty() ? children.begin[i] : problem_.parents.arrive[could.front()];
        for (auto t = children.tokens.offset[i]; t < children.tokens.offset[i + 1]; ++t) {
            if (copied_.contains(place(children.cls[i], children.tokens.slot[t]))) continue;
            const auto at = values.find(std::max<std::uint64_t>(children.tokens.hash[t], 1));
            if (at == kNone) continue;
            const auto& found = holders[static_cast<std::size_t>(at)];
            const auto known = std::span(found.latest).first(std::min<std::size_t>(found.count, kSources));
            const auto held = [&](std::int32_t s) { return s != c && children.begin[s] >= since - kSlack; };
            if (std::count_if(known.begin(), known.end(), held) == kSources) continue;  // and more, perhaps
            std::copy_if(known.begin(), known.end(), std::back_inserter(sources_.item), held);
        }
        const auto begin = sources_.item.begin() + static_cast<std::ptrdiff_t>(first);
        std::sort(begin, sources_.item.end());
        sources_.item.erase(std::unique(begin, sources_.item.end()), sources_.item.end());
        sources_.close();
        lineage_.item.push_back(c);
        const auto own = lineage_.item.size();
        for (const auto s : sources_.of(c)) {
            if (s > c) continue;  // within the slack
            for (const auto back : lineage_.of(s)) {
                const auto from = lineage_.item.begin() + static_cast<std::ptrdiff_t>(own);
                if (lineage_.item.size() - own >= kLineage) break;
                if (std::find(from, lineage_.item.end(), back) == lineage_.item.end()) {
                    lineage_.item.push_back(back);
                }
            }
        }
        lineage_.close();
    }
}

bool Carried::holds(std::int32_t c, std::span<const std::int32_t> from) const noexcept {
    for (const auto back : lineage_.of(c)) {
        if (std::find(from.begin(), from.end(), back) != from.end()) return true;
    }
    return false;
}

// Whether other slots than before are copies of what requests name.
bool Carried::find_copied(const std::vector<std::int32_t>& parent_of, double keep) {
    const auto& parents = problem_.parents.tokens;
    const auto& children = problem_.children;
    for (auto& [slot, copies] : copies_) {
        copies.copied *= keep;
        copies.all *= keep;
    }
    for (std::size_t c = problem_.decided(); c < std::min(problem_.settled, parent_of.size()); ++c) {
        const auto p = parent_of[c];
        if (p == kNone) continue;
        for (auto t = children.tokens.offset[c]; t < children.tokens.offset[c + 1]; ++t) {
            auto& copies = copies_[place(children.cls[c], children.tokens.slot[t])];
            const auto begin = parents.hash.begin() + parents.offset[p];
            const auto end = parents.hash.begin() + parents.offset[static_cast<std::size_t>(p) + 1];
            copies.all += 1;
            copies.copied += std::find(begin, end, children.tokens.hash[t]) != end;
        }
    }
    std::unordered_set<std::uint64_t> copied;
    for (const auto& [slot, copies] : copies_) {
        if (copies.copied > kCopiedAnyway * copies.all) copied.insert(slot);
    }
    if (copied == copied_) return false;
    copied_ = std::move(copied);
    return true;
}

void Carried::estimate(const std::vector<std::int32_t>& parent_of, double keep) {
    const auto& children = problem_.children;
    for (auto& habit : habits_) habit.fade(keep);
    if (!children.results.hash.empty()) {
        if (keep > 0 || rounds_-- > 0) {
            if (find_copied(parent_of, keep)) find_sources();
        }
        std::vector<std::int32_t> latest(problem_.parents.size(), kNone);
        for (std::size_t i = 0; i < std::min(problem_.settled, parent_of.size()); ++i) {
            const auto p = parent_of[i];
            if (p == kNone) continue;
            const auto c = static_cast<std::int32_t>(i);
            const auto from = sources(c);
            if (i >= problem_.decided() && !from.empty() && latest[p] != kNone) {
                const auto note = [&](std::int32_t q) {
                    const auto at = static_cast<std::size_t>(
                        pairs_.insert(pair(children.cls[latest[q]], children.cls[i])));
                    if (at == habits_.size()) habits_.emplace_back();
                    const bool held = holds(latest[q], from);
                    habits_[at].possible[held] += 1;
                    if (q == p) habits_[at].chosen[held] += 1;
                };
                note(p);
                int others = kOthers;
                for (const auto q : candidates_.of(i)) {
                    if (q == p || latest[q] == kNone || others-- <= 0) continue;
                    note(q);
                }
            }
            latest[p] = c;
        }
    }
    ratios_.clear();
    for (const auto& habit : habits_) {
        const auto found = habit.ratios(kPrior, kMost);
        const bool tells = found[1] > kWorthALook;
        ratios_.push_back(tells ? Ratios{found[0], found[1]} : Ratios{});
    }
}

Carried::Ratios Carried::ratios(std::int32_t previous_cls, std::int32_t next_cls) const noexcept {
    const auto at = pairs_.find(pair(previous_cls, next_cls));
    return at == kNone || static_cast<std::size_t>(at) >= ratios_.size()
               ? Ratios{}
               : ratios_[static_cast<std::size_t>(at)];
}

}  // namespace tapscope::match
