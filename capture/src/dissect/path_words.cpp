#include "dissect/path_words.hpp"

#include <algorithm>
#include <string>

#include "dissect/route_words.hpp"
#include "evidence.hpp"

namespace tapscope {

void PathWords::look(std::size_t cls, ClassDictionary& classes, HashKey key) {
    if (cls >= of_class_.size()) of_class_.resize(cls + 1);
    Range& range = of_class_[cls];
    if (range.told == kNever) add(range, classes.entries()[cls].text, key);
    const auto begin = words_.begin() + range.first;
    const auto end = std::stable_partition(
        begin, begin + range.count, [&](const Word& word) { return different_[word.place] >= kEnough; });
    range.tokens = static_cast<std::uint32_t>(end - begin);
    range.told = told_;
}

// A class is one word at each of its places, as what stands around that is the place.
void PathWords::add(Range& range, std::string_view text, HashKey key) {
    range.first = static_cast<std::uint32_t>(words_.size());
    const std::size_t path = text.find(' ');
    if (!text.substr(std::min(path, text.size())).starts_with(" /")) return;
    const std::size_t end = std::min(text.find(" ?", path), text.size());
    std::string around, scratch;
    std::uint32_t segment = 0;
    for (std::size_t at = path + 2; at <= end && range.count < kMostWords; ++segment) {
        const std::size_t next = std::min(text.find('/', at), end);
        const std::string_view word = text.substr(at, next - at);
        const bool folded = word.starts_with(kFolded);
        if (folded ||
            (!word.empty() && word.front() != '{')) {  // other braces: a placeholder, which has a token
            const std::string_view ending = word_ending(word),
                                   stem = word.substr(0, word.size() - ending.size());
            around.assign(text.substr(0, at)).append(kFolded).append(ending).append(text.substr(next));
            const std::uint32_t slot = slot_of_name(around);
            const auto place =
                place_of_slot_.try_emplace(slot, static_cast<std::uint32_t>(different_.size())).first->second;
            if (place == different_.size()) different_.push_back(0);
            told_ += ++different_[place] == kEnough;
            const auto value = without_wildcards(as_bytes(url_decode(stem, false, scratch)));
            words_.push_back({slot, segment, place, folded, folded ? 0 : siphash13(key, value)});
            ++range.count;
        }
        at = next + 1;
    }
}

}  // namespace tapscope
