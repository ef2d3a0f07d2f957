#include "path_values.hpp"

#include <algorithm>
#include <numeric>

namespace tapscope::match {
namespace {

// So many different words at least, and so large a share of them that is named by calls of most who have it.
constexpr std::int32_t kWords = 3;
constexpr double kNamedWords = 0.5, kNamedBy = 0.5;

std::uint64_t key_of(std::uint32_t slot) noexcept { return std::uint64_t{slot} + 1; }

struct Word {
    std::int32_t place = kNone;
    std::int32_t requests = 0, named = 0;
};

}  // namespace

void PathValues::find(const Parents& parents, const Children& children) {
    const auto& said = parents.tokens;
    KeyMap places, words, values;
    std::vector<std::uint32_t> slots;
    std::vector<Word> word;
    for (std::size_t p = 0; p < parents.size(); ++p) {
        for (auto t = said.offset[p]; t < said.offset[p + 1]; ++t) {
            if (!of_word(said.slot[t])) continue;
            const auto place = places.insert(key_of(said.slot[t]));
            if (static_cast<std::size_t>(place) == slots.size()) slots.push_back(said.slot[t]);
            values.insert(said.hash[t] | 1);
        }
    }
    if (slots.empty()) return;
    // When each value is named, in the order of time.
    std::vector<std::vector<Time>> named(static_cast<std::size_t>(values.size()));
    for (std::size_t c = 0; c < children.size(); ++c) {
        for (auto t = children.tokens.offset[c]; t < children.tokens.offset[c + 1]; ++t) {
            if (!of_text(children.tokens.slot[t])) continue;
            const auto value = values.find(children.tokens.hash[t] | 1);
            if (value != kNone) named[static_cast<std::size_t>(value)].push_back(children.begin[c]);
        }
    }
    for (std::size_t p = 0; p < parents.size(); ++p) {
        for (auto t = said.offset[p]; t < said.offset[p + 1]; ++t) {
            if (!of_word(said.slot[t])) continue;
            const auto place = places.find(key_of(said.slot[t]));
            const auto value = values.find(said.hash[t] | 1);
            const auto key =
                (static_cast<std::uint64_t>(place) + 1) << 32 | static_cast<std::uint64_t>(value);
            const auto at = static_cast<std::size_t>(words.insert(key));
            if (at == word.size()) word.push_back({place});
            const auto& times = named[static_cast<std::size_t>(value)];
            const auto next = std::lower_bound(times.begin(), times.end(), parents.arrive[p] - kSlack);
            ++word[at].requests;
            word[at].named += next != times.end() && *next <= parents.depart[p] + kSlack;
        }
    }
    std::vector<std::int32_t> different(slots.size(), 0), handed_on(slots.size(), 0);
    for (const auto& each : word) {
        const auto at = static_cast<std::size_t>(each.place);
        ++different[at];
        handed_on[at] += each.named >= kNamedBy * each.requests;
    }
    for (std::size_t i = 0; i < slots.size(); ++i) {
        if (different[i] >= kWords && handed_on[i] >= kNamedWords * different[i])
            places_.insert(key_of(slots[i]));
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
    for (std::size_t p = 0; p < parents.size(); ++p) {
        for (auto t = said.offset[p]; t < said.offset[p + 1]; ++t) {
            if (of_word(said.slot[t])) {
                const auto place = places_.find(key_of(said.slot[t]));
                if (place == kNone) continue;
                auto& first = first_[static_cast<std::size_t>(place)];
                if (first == kNone) first = parents.cls[p];
                const auto one = joined(first), other = joined(parents.cls[p]);
                as_[static_cast<std::size_t>(std::max(one, other))] = std::min(one, other);
            }
            slot_.push_back(said.slot[t]);
            hash_.push_back(said.hash[t]);
        }
        offset_.push_back(static_cast<std::int64_t>(slot_.size()));
    }
    cls_.clear();
    for (const auto cls : parents.cls) cls_.push_back(joined(cls));
    parents.cls = cls_;
    parents.tokens = {offset_, slot_, hash_};
}

std::int32_t PathValues::joined(std::int32_t cls) noexcept {
    while (as_[static_cast<std::size_t>(cls)] != cls) cls = as_[static_cast<std::size_t>(cls)];
    return cls;
}

}  // namespace tapscope::match
