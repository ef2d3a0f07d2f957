// Words of paths as tokens. A word stands in the class of a request, so it needs no token to tell what is asked for; but
// it may be a value ("/tag/garden"), which the calls of that request name. Which words are values only the calls can
// tell: where kEnough different ones have stood at a place, all that come are tokens of it, which the matcher can ask
// about. Bounded: kMostWords for each class, of which the dictionary has kMaxClasses at most.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "class_dictionary.hpp"
#include "hash.hpp"

namespace tapscope {

class PathWords {
public:
    static constexpr std::uint32_t kEnough = 3;
    static constexpr std::uint32_t kMostWords = 8;  // of one path that are looked at

    struct Word {
        std::uint32_t slot = 0;     // the place: the class with "{*}" for this word, hashed as a name is
        std::uint32_t segment = 0;  // of the path
        std::uint32_t place = 0;
        bool folded = false;     // "{*}" in the class: each request has a word of its own
        std::uint64_t hash = 0;  // of the word, decoded and without its ending
    };

    // The words of a class of requests ("GET /a/b ?c") that are tokens by now. Valid until the next call.
    std::span<const Word> of(std::int32_t cls, ClassDictionary& classes, HashKey key) {
        const auto at = static_cast<std::size_t>(cls);
        if (at >= of_class_.size() || of_class_[at].told != told_) [[unlikely]]
            look(at, classes, key);
        return std::span<const Word>(words_).subspan(of_class_[at].first, of_class_[at].tokens);
    }

private:
    static constexpr std::uint32_t kNever = ~0u;

    struct Range {
        std::uint32_t first = 0, count = 0, tokens = 0;  // in words_; those that are tokens go first
        std::uint32_t told = kNever;
    };

    void look(std::size_t cls, ClassDictionary& classes, HashKey key);
    void add(Range& range, std::string_view text, HashKey key);

    std::vector<Range> of_class_;
    std::vector<Word> words_;
    std::unordered_map<std::uint32_t, std::uint32_t> place_of_slot_;
    std::vector<std::uint32_t> different_;  // words, by place
    std::uint32_t told_ = 0;                // places that have had enough
};

}  // namespace tapscope
