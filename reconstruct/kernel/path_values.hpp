// Words of paths that are values, not names of what is asked for.
//
// "/tag/garden" and "/tag/market" are two classes of requests, each with a model of its own, which a few requests
// cannot teach; and no class text tells "/tag/garden" from "/news/latest". Calls do: a value is handed on, and they name
// it. A place in the path where they name most of the words that stand there has values, unless other calls are made for
// each word. Requests that differ in such a word are one class, and the word is a token of theirs, which calls may copy.
// Other words are no tokens: what they tell, the class tells.
#pragma once

#include <cstdint>
#include <vector>

#include "key_map.hpp"
#include "problem.hpp"

namespace tapscope::match {

class PathValues {
public:
    // `shared`: the class of all requests for whose own class there was no room. It is joined with none: of it, those
    // that have a value are of the class of that place.
    explicit PathValues(std::int32_t shared) : shared_(shared) {}

    // Places of values, by the rows of a problem. Those that were found before stay such.
    void find(const Parents& parents, const Children& children);
    // From here on `parents` are of joined classes, and words at other places no tokens. What is borrowed for that lives
    // until the next call.
    void apply(Parents& parents);

private:
    std::int32_t joined(std::int32_t cls) noexcept;

    std::int32_t shared_;
    KeyMap places_;                    // of values, by slot
    std::vector<std::int32_t> first_;  // by place: a class whose requests have a word there, or kNone
    std::vector<std::int32_t> as_;     // by class: one of those that it is joined with, or itself
    std::vector<std::int32_t> cls_;    // what `parents` borrow
    std::vector<std::int64_t> offset_;
    std::vector<std::uint32_t> slot_;
    std::vector<std::uint64_t> hash_;
};

}  // namespace tapscope::match
