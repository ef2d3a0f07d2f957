// Places in a path where any word can stand (user names, titles): no shape tells them from fixed words, only their number.
//
// Every place (the route up to a slash, or up to the names of its query parameters) may show kMaxWords different words; the ones that come later are "{*}" there.
// A word keeps its class for good, so that one address never has two. Which words are the first ones follows from the
// order of the requests alone, not from how packets cut them. Bounded: kMaxEntries places and words, then all that is
// new is "{*}".
// Names of parameters are bounded twice: each as a word, and all names of a request together as one word, as few names
// make many selections.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapscope {

inline constexpr std::string_view kFolded = "{*}";  // stands for a word that is one too many

// ".html" of a name; longer or odd endings belong to it.
std::string_view word_ending(std::string_view word) noexcept;

class RouteWords {
public:
    static constexpr std::uint32_t kMaxWords = 200;
    static constexpr std::size_t kMaxEntries = 64 * 1024;

    // `text` is a route, whose words begin at `from`; with "{*}" where a word is one too many. `scratch` holds the result.
    std::string_view fold(std::string_view text, std::size_t from, std::string& scratch);

private:
    struct Slot {
        std::uint64_t hash = 0;  // of a place or of a word at a place; 0 free
        std::uint32_t words = 0;
    };

    Slot* find(std::uint64_t hash) noexcept;
    Slot* add(std::uint64_t hash);
    bool admits(std::string_view place, std::string_view word);
    bool admits_segment(std::string& place, std::string_view word);
    void fold_names(std::string_view names, std::string& scratch);

    std::vector<Slot> slots_;  // open addressing, at most half full
    std::size_t used_ = 0;
};

}  // namespace tapscope
