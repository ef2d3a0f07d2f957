// Names that programs make up for one use: of savepoints, cursors and prepared statements ("s139_x7",
// pdo_stmt_00000012). They are `?` in a fingerprint when they hold a digit, or each would be a class of its own.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include "sql_lex.hpp"

namespace tapscope::sql {

namespace detail {

struct NamePlace {
    std::string_view before;  // in lower case, with one blank
    bool ends = true;         // the statement ends with the name
};

inline constexpr NamePlace kNamePlaces[] = {
    {"savepoint "},     {"release savepoint "},  {"release "}, {"rollback to savepoint "},
    {"rollback to "},   {"deallocate prepare "}, {"close "},   {"deallocate "},
    {"declare ", false}};

// One past the name at `from`, quoted or not; `from` when there is none.
inline std::size_t name_end(std::string_view text, std::size_t from) noexcept {
    if (from >= text.size()) return from;
    const char first = text[from];
    if (first == '"' || first == '`') {
        const std::size_t close = text.find(first, from + 1);
        return close == std::string_view::npos ? from : close + 1;
    }
    std::size_t at = from;
    while (at < text.size() && is(text[at], kIdent)) ++at;
    return at;
}

// Of FETCH and MOVE: where the cursor's name starts, behind the last FROM or IN; 0 when there is none.
inline std::size_t cursor_name(std::string_view text) noexcept {
    if (text.size() < 7 ||
        !(equals_folded(text.data(), 6, "fetch ") || equals_folded(text.data(), 5, "move ")))
        return 0;
    std::size_t at = text.rfind(' ') + 1;
    const std::string_view ahead = text.substr(0, at);
    for (const std::string_view word : {" from ", " in "})
        if (ahead.size() > word.size() &&
            equals_folded(ahead.data() + ahead.size() - word.size(), word.size(), word))
            return at;
    return 0;
}

}  // namespace detail

// Replaces such a name in the fingerprint [text, text + size); returns the new size.
inline std::size_t fold_made_up_name(char* text, std::size_t size) noexcept {
    const std::string_view whole(text, size);
    if (size < 8 || std::string_view("srcdfmSRCDFM").find(text[0]) == std::string_view::npos) return size;
    std::size_t from = detail::cursor_name(whole), to = from > 0 ? detail::name_end(whole, from) : 0;
    for (const detail::NamePlace& place : detail::kNamePlaces) {
        if (from > 0 || size <= place.before.size() ||
            !equals_folded(text, place.before.size(), place.before))
            continue;
        const std::size_t end = detail::name_end(whole, place.before.size());
        if (place.ends ? end != size : end == size || whole[end] != ' ') continue;
        from = place.before.size();
        to = end;
    }
    if (from == to || whole.substr(from, to - from).find_first_of("0123456789") == std::string_view::npos)
        return size;
    text[from] = '?';
    std::memmove(text + from + 1, text + to, size - to);
    return size - (to - from) + 1;
}

}  // namespace tapscope::sql
