#include "path_values.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>

namespace tapscope::match {
namespace {

// So many different words at least, and so large a share of them that is named by calls of most who have it.
constexpr std::int32_t kWords = 3;
constexpr double kNamedWords = 0.5, kNamedBy = 0.5;

// Share of what differs between requests that their classes may tell, at most; and how many more requests than classes it
// takes to say so. Values under heavy load came to 0.3 with twenty more, and with two more to anything.
constexpr double kTold = 0.5, kMoreRequests = 8;

std::uint64_t key_of(std::uint32_t slot) noexcept { return std::uint64_t{slot} + 1; }
std::uint64_t key_of(std::uint64_t value) noexcept { return value | 1; }

struct Word {
    std::int32_t place = kNone;
    std::int32_t requests = 0, named = 0;
};

bool says(const Tokens& tokens, std::size_t row, std::uint32_t slot) noexcept {
    const auto* at = tokens.slot.data();
    return std::find(at + tokens.offset[row], at + tokens.offset[row + 1], slot) !=
           at + tokens.offset[row + 1];
}

// Of each child, one part in so many as were there when it was made.
std::vector<double> parts(const Parents& parents, const Children& children) {
    std::priority_queue<Time, std::vector<Time>, std::greater<>> departures;
    std::vector<double> out;
    std::size_t next = 0;
    for (const auto at : children.begin) {
        while (next < parents.size() && parents.arrive[next] <= at) departures.push(parents.depart[next++]);
        while (!departures.empty() && departures.top() < at) departures.pop();
        out.push_back(1.0 / static_cast<double>(std::max<std::size_t>(departures.size(), 1)));
    }
    return out;
}

// Whether requests that have a word at this place make the same calls, whatever their class: which calls are made during
// each, in parts, differs within classes, too, and not only between them (adjusted R squared). A system may name what it
// is asked for in a log or a check of permissions, and that is no value.
bool alike(const Parents& parents, const Children& children, const std::vector<double>& part,
           std::uint32_t slot) {
    struct Class {
        double requests = 0;
        std::vector<double> calls;
    };
    std::map<std::int32_t, Class> classes;
    const auto kinds = static_cast<std::size_t>(children.n_classes);
    std::vector<double> made(kinds), all(kinds);
    double squares = 0, requests = 0;
    for (std::size_t p = 0; p < parents.size(); ++p) {
        if (!says(parents.tokens, p, slot)) continue;
        std::fill(made.begin(), made.end(), 0.0);
        const auto first = std::lower_bound(children.begin.begin(), children.begin.end(), parents.arrive[p]);
        for (auto c = static_cast<std::size_t>(first - children.begin.begin());
             c < children.size() && children.begin[c] <= parents.depart[p]; ++c) {
            made[static_cast<std::size_t>(children.cls[c])] += part[c];
        }
        auto& mine = classes[parents.cls[p]];
        mine.calls.resize(kinds, 0.0);
        for (std::size_t k = 0; k < kinds; ++k) {
            mine.calls[k] += made[k];
            all[k] += made[k];
            squares += made[k] * made[k];
        }
        ++mine.requests;
        ++requests;
    }
    const auto square = [](const std::vector<double>& v) {
        return std::inner_product(v.begin(), v.end(), v.begin(), 0.0);
    };
    const double total = squares - square(all) / requests;
    double within = squares;
    for (const auto& [cls, each] : classes) within -= square(each.calls) / each.requests;
    const double more = requests - static_cast<double>(classes.size());
    return more < kMoreRequests || within / more >= (1 - kTold) * total / (requests - 1);
}

// Calls f(row, slot, value) for each word that the rows say.
template <class F>
void each_word(const Tokens& said, std::size_t rows, F&& f) {
    for (std::size_t row = 0; row < rows; ++row) {
        for (auto t = said.offset[row]; t < said.offset[row + 1]; ++t) {
            if (of_word(said.slot[t])) f(row, said.slot[t], said.hash[t]);
        }
    }
}

// When each of these values is named as a literal, in the order of time.
std::vector<std::vector<Time>> when_named(const KeyMap& values, const Children& children) {
    std::vector<std::vector<Time>> out(static_cast<std::size_t>(values.size()));
    for (std::size_t c = 0; c < children.size(); ++c) {
        for (auto t = children.tokens.offset[c]; t < children.tokens.offset[c + 1]; ++t) {
            if (!of_text(children.tokens.slot[t])) continue;
            const auto value = values.find(key_of(children.tokens.hash[t]));
            if (value != kNone) out[static_cast<std::size_t>(value)].push_back(children.begin[c]);
        }
    }
    return out;
}

}  // namespace

void PathValues::find(const Parents& parents, const Children& children) {
    KeyMap places, values, words;
    std::vector<std::uint32_t> slots;
    each_word(parents.tokens, parents.size(), [&](std::size_t, std::uint32_t slot, std::uint64_t value) {
        const auto place = places.insert(key_of(slot));
        if (static_cast<std::size_t>(place) == slots.size()) slots.push_back(slot);
        values.insert(key_of(value));
    });
    if (slots.empty()) return;
    const auto named = when_named(values, children);
    std::vector<Word> word;
    each_word(parents.tokens, parents.size(), [&](std::size_t p, std::uint32_t slot, std::uint64_t value) {
        const auto place = places.find(key_of(slot)), which = values.find(key_of(value));
        const auto key = (static_cast<std::uint64_t>(place) + 1) << 32 | static_cast<std::uint64_t>(which);
        const auto at = static_cast<std::size_t>(words.insert(key));
        if (at == word.size()) word.push_back({place});
        const auto& times = named[static_cast<std::size_t>(which)];
        const auto next = std::lower_bound(times.begin(), times.end(), parents.arrive[p] - kSlack);
        ++word[at].requests;
        word[at].named += next != times.end() && *next <= parents.depart[p] + kSlack;
    });
    std::vector<std::int32_t> different(slots.size(), 0), handed_on(slots.size(), 0);
    for (const auto& each : word) {
        const auto at = static_cast<std::size_t>(each.place);
        ++different[at];
        handed_on[at] += each.named >= kNamedBy * each.requests;
    }
    std::vector<double> part;
    for (std::size_t i = 0; i < slots.size(); ++i) {
        if (different[i] < kWords || handed_on[i] < kNamedWords * different[i]) continue;
        if (part.empty()) part = parts(parents, children);
        if (alike(parents, children, part, slots[i])) places_.insert(key_of(slots[i]));
    }
    first_.resize(static_cast<std::size_t>(places_.size()), kNone);
}

void PathValues::apply(Parents& parents) {
    const auto known = as_.size();
    as_.resize(std::max(known, static_cast<std::size_t>(parents.n_classes)));
    std::iota(as_.begin() + static_cast<std::ptrdiff_t>(known), as_.end(), static_cast<std::int32_t>(known));
    const auto& said = parents.tokens;
    if (places_.size() == 0 && std::none_of(said.slot.begin(), said.slot.end(), of_word)) return;
    offset_.assign(1, 0);
    slot_.clear();
    hash_.clear();
    cls_.clear();
    for (std::size_t p = 0; p < parents.size(); ++p) {
        auto cls = parents.cls[p];
        for (auto t = said.offset[p]; t < said.offset[p + 1]; ++t) {
            if (of_word(said.slot[t])) {
                const auto place = places_.find(key_of(said.slot[t]));
                if (place == kNone) continue;
                auto& first = first_[static_cast<std::size_t>(place)];
                if (cls == shared_) {
                    if (first != kNone) cls = first;
                } else {
                    if (first == kNone) first = cls;
                    const auto one = joined(first), other = joined(cls);
                    as_[static_cast<std::size_t>(std::max(one, other))] = std::min(one, other);
                }
            }
            slot_.push_back(said.slot[t]);
            hash_.push_back(said.hash[t]);
        }
        cls_.push_back(cls);
        offset_.push_back(static_cast<std::int64_t>(slot_.size()));
    }
    for (auto& cls : cls_) cls = joined(cls);
    parents.cls = cls_;
    parents.tokens = {offset_, slot_, hash_};
}

std::int32_t PathValues::joined(std::int32_t cls) noexcept {
    while (as_[static_cast<std::size_t>(cls)] != cls) cls = as_[static_cast<std::size_t>(cls)];
    return cls;
}

}  // namespace tapscope::match
