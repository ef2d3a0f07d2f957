#include "dissect/route_words.hpp"

#include <algorithm>
#include <array>

#include "hash.hpp"

namespace tapscope {
namespace {

constexpr std::uint64_t kPlace = 0x706c616365,
                        kWord = 0x776f7264;  // seeds: a place and a word are never the same

bool is_placeholder(std::string_view word) noexcept {
    static constexpr std::array<std::string_view, 6> known = {"{n}",    "{id}",   "{hex}",
                                                              "{uuid}", "{date}", "{value}"};
    return std::find(known.begin(), known.end(), word) != known.end();
}

}  // namespace

std::string_view word_ending(std::string_view word) noexcept {
    const std::size_t dot = word.rfind('.');
    if (dot == std::string_view::npos || dot == 0 || word.size() - dot < 2 || word.size() - dot > 6)
        return {};
    const std::string_view end = word.substr(dot);
    const bool plain = std::all_of(end.begin() + 1, end.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    return plain ? end : std::string_view{};
}

RouteWords::Slot* RouteWords::find(std::uint64_t hash) noexcept {
    if (slots_.empty()) return nullptr;
    for (std::size_t i = hash & (slots_.size() - 1); slots_[i].hash != 0; i = (i + 1) & (slots_.size() - 1))
        if (slots_[i].hash == hash) return &slots_[i];
    return nullptr;
}

RouteWords::Slot* RouteWords::add(std::uint64_t hash) {
    if (used_ >= kMaxEntries) return nullptr;
    if ((used_ + 1) * 2 > slots_.size()) {
        std::vector<Slot> old(std::max<std::size_t>(slots_.size() * 2, 256));
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (slot.hash == 0) continue;
            std::size_t i = slot.hash & (slots_.size() - 1);
            while (slots_[i].hash != 0) i = (i + 1) & (slots_.size() - 1);
            slots_[i] = slot;
        }
    }
    ++used_;
    std::size_t i = hash & (slots_.size() - 1);
    while (slots_[i].hash != 0) i = (i + 1) & (slots_.size() - 1);
    slots_[i].hash = hash;
    return &slots_[i];
}

bool RouteWords::admits(std::string_view place, std::string_view word) {
    const std::uint64_t place_hash = text_hash(place, kPlace) | 1;
    const std::uint64_t word_hash = text_hash(word, place_hash ^ kWord) | 1;
    if (find(word_hash) != nullptr) return true;
    Slot* here = find(place_hash);
    if (here == nullptr) here = add(place_hash);
    if (here == nullptr || here->words >= kMaxWords || used_ >= kMaxEntries) return false;
    ++here->words;  // before `add`, which may move it
    return add(word_hash) != nullptr;
}

// A placeholder of ours stays. What only begins like one ("{n}.html", or words of a client in braces) has places of its
// own, so that words do not use them up.
bool RouteWords::admits_segment(std::string& place, std::string_view word) {
    if (word.front() != '{') return admits(place, word);
    if (is_placeholder(word)) return true;
    place.push_back('{');
    const bool admitted = admits(place, word);
    place.pop_back();
    return admitted;
}

// Appends the names with one "{*}" for all that are too many.
void RouteWords::fold_names(std::string_view names, std::string& scratch) {
    const std::size_t path = scratch.size();
    scratch.append(" ?");
    const std::size_t begin = scratch.size();
    const std::string place = scratch;
    bool folded = false;
    std::size_t count = 0;
    while (true) {
        const std::size_t end = std::min(names.find('&'), names.size());
        const std::string_view name = names.substr(0, end);
        if (is_placeholder(name) || name == "..." || admits(place, name)) {
            if (count++ > 0) scratch.push_back('&');
            scratch.append(name);
        } else {
            folded = true;
        }
        if (end == names.size()) break;
        names.remove_prefix(end + 1);
    }
    if (folded) scratch.append(count++ > 0 ? "&{*}" : "{*}");
    const std::string_view all = scratch;
    if (count > 1 && !admits(all.substr(0, path + 1), all.substr(begin))) {
        scratch.resize(begin);
        scratch.append("{*}");
    }
}

std::string_view RouteWords::fold(std::string_view text, std::size_t from, std::string& scratch) {
    const std::size_t end = std::min(text.find(" ?", from), text.size());
    scratch.assign(text.substr(0, from));
    for (std::size_t at = from; at < end;) {
        if (text[at] == '/') {
            scratch.push_back('/');
            ++at;
            continue;
        }
        const std::string_view word = text.substr(at, std::min(text.find('/', at), end) - at);
        at += word.size();
        if (admits_segment(scratch, word)) {
            scratch.append(word);
        } else {
            scratch.append(kFolded);
            scratch.append(word_ending(word));
        }
    }
    if (end < text.size()) fold_names(text.substr(end + 2), scratch);
    return scratch;
}

}  // namespace tapscope
