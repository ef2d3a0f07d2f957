// Lexical pieces of SQL text: what a byte can be, and where comments, numbers and strings end.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sql_fingerprint.hpp"
#include "sql_strings.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tapscope::sql {

enum CharClass : std::uint8_t { kOther = 0, kIdent = 1, kDigit = 2, kSpace = 4, kSpecial = 8 };

constexpr std::array<std::uint8_t, 256> make_classes() {
    std::array<std::uint8_t, 256> table{};
    for (int c = 0; c < 256; ++c) {
        std::uint8_t bits = 0;
        if (c >= '0' && c <= '9') bits |= kDigit | kIdent;
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c >= 0x80)
            bits |= kIdent;
        if (c == ' ' || (c >= 9 && c <= 13)) bits |= kSpace;
        table[static_cast<std::size_t>(c)] = bits;
    }
    for (const char c : {'\'', '"', '`', '/', '-', '#', '(', '?', '\t', '\n', '\v', '\f', '\r'}) {
        table[static_cast<unsigned char>(c)] |= kSpecial;
    }
    return table;
}

constexpr auto kClasses = make_classes();

inline bool is(char c, std::uint8_t bits) noexcept {
    return (kClasses[static_cast<unsigned char>(c)] & bits) != 0;
}
inline char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

inline bool equals_folded(const char* word, std::size_t size, std::string_view lowercase) noexcept {
    if (size != lowercase.size()) return false;
    for (std::size_t i = 0; i < size; ++i) {
        if (lower(word[i]) != lowercase[i]) return false;
    }
    return true;
}

inline bool is_hex(char c) noexcept { return is(c, kDigit) || (lower(c) >= 'a' && lower(c) <= 'f'); }

#if defined(__SSE2__)
inline __m128i in_range(__m128i bytes, char low, unsigned char span) noexcept {
    const __m128i shifted = _mm_sub_epi8(bytes, _mm_set1_epi8(low));
    return _mm_cmpeq_epi8(_mm_min_epu8(shifted, _mm_set1_epi8(static_cast<char>(span))), shifted);
}
#endif

// First byte at or behind `p` that needs a look: a digit that starts a token, a quote, a comment sign, a blank
// behind a blank, other white space, an opening parenthesis (or `close`), a placeholder.
// There is a byte before `p`.
template <SqlDialect D>
const char* find_special(const char* p, const char* end, char close) noexcept {
#if defined(__SSE2__)
    const __m128i closes = _mm_set1_epi8(close);
    for (; p + 16 <= end; p += 16) {
        const __m128i cur = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        const __m128i prev = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p - 1));
        const __m128i prev_letter = in_range(_mm_or_si128(prev, _mm_set1_epi8(0x20)), 'a', 25);
        const __m128i prev_ident =
            _mm_or_si128(_mm_or_si128(prev_letter, in_range(prev, '0', 9)),
                         _mm_or_si128(_mm_cmpeq_epi8(prev, _mm_set1_epi8('_')),
                                      _mm_or_si128(_mm_cmpeq_epi8(prev, _mm_set1_epi8('$')),
                                                   _mm_cmpgt_epi8(_mm_setzero_si128(), prev))));
        const __m128i number = _mm_andnot_si128(prev_ident, in_range(cur, '0', 9));
        const __m128i blank = _mm_set1_epi8(' ');
        const __m128i blanks = _mm_and_si128(_mm_cmpeq_epi8(cur, blank), _mm_cmpeq_epi8(prev, blank));
        // `"` `#` (22 23), `'` `(` (27 28), '-' (2d), '/' (2f), '?' (3f), '`' (60)
        __m128i hit = _mm_or_si128(in_range(cur, '"', 1), in_range(cur, '\'', 1));
        hit = _mm_or_si128(hit,
                           _mm_cmpeq_epi8(_mm_or_si128(cur, _mm_set1_epi8(2)), _mm_set1_epi8('/')));  // - /
        hit = _mm_or_si128(hit, _mm_cmpeq_epi8(cur, _mm_set1_epi8('?')));
        hit = _mm_or_si128(hit, _mm_cmpeq_epi8(cur, _mm_set1_epi8('`')));
        hit = _mm_or_si128(hit, in_range(cur, '\t', 4));
        hit = _mm_or_si128(hit, _mm_cmpeq_epi8(cur, closes));
        if constexpr (D != SqlDialect::mysql)
            hit = _mm_or_si128(hit, _mm_or_si128(_mm_cmpeq_epi8(cur, _mm_set1_epi8('$')),
                                                 _mm_cmpeq_epi8(cur, _mm_set1_epi8('['))));
        hit = _mm_or_si128(hit, _mm_or_si128(number, blanks));
        const auto mask = static_cast<unsigned>(_mm_movemask_epi8(hit));
        if (mask != 0) return p + std::countr_zero(mask);
    }
#endif
    for (; p < end; ++p) {
        const char c = *p;
        if (is(c, kSpecial) || c == close) return p;
        if (D != SqlDialect::mysql && (c == '$' || c == '[')) return p;
        if (is(c, kDigit) && !is(p[-1], kIdent)) return p;
        if (c == ' ' && p[-1] == ' ') return p;
    }
    return end;
}

template <SqlDialect D>
bool starts_line_comment(const char* p, std::size_t left) noexcept {
    if (left < 2 || p[1] != '-') return false;
    return D != SqlDialect::mysql || left == 2 || is(p[2], kSpace) || static_cast<unsigned char>(p[2]) < 32;
}

// May the string at `quote` go on with the one that ended at `from`? PostgreSQL joins strings with a line end between
// them, and an escape string stays one.
inline bool continues_string(const char* from, const char* quote) noexcept {
    bool line_end = false;
    while (from < quote) {
        if (is(*from, kSpace)) {
            line_end |= *from == '\n' || *from == '\r';
            ++from;
        } else if (*from == '-' && quote - from > 1 && from[1] == '-') {
            while (from < quote && *from != '\n' && *from != '\r') ++from;
        } else {
            return false;
        }
    }
    return line_end;
}

// Length of the opening of a comment that stays: an executable one or an optimiser hint; 0 of one that goes.
inline int kept_comment(const char* p, std::size_t left) noexcept {
    if (left > 3 && p[2] == 'M' && p[3] == '!') return 4;
    return left > 2 && (p[2] == '!' || p[2] == '+') ? 3 : 0;
}

// One past the comment whose first byte inside is `p`; PostgreSQL's nest.
template <SqlDialect D>
const char* end_of_comment(const char* p, const char* end) noexcept {
    int depth = 1;
    for (; p + 1 < end; ++p) {
        if (p[0] == '*' && p[1] == '/') {
            if (--depth == 0) return p + 2;
            ++p;
        } else if (D != SqlDialect::mysql && p[0] == '/' && p[1] == '*') {
            ++depth;
            ++p;
        }
    }
    return end;
}

// One past the number that starts at `p` (digit or dot), nullptr when the digits begin an identifier (1st_name).
// PostgreSQL 16 has 0o17, and 1_000_000 with a digit on both sides of each bar.
template <SqlDialect D>
const char* number_end(const char* p, const char* end) noexcept {
    constexpr bool postgres = D != SqlDialect::mysql;
    const auto digits = [end](const char* from, const auto& is_digit) {
        while (from < end &&
               (is_digit(*from) || (postgres && *from == '_' && from + 1 < end && is_digit(from[1]))))
            ++from;
        return from;
    };
    const auto decimal = [](char c) { return is(c, kDigit); };
    if (*p == '0' && p + 2 < end) {
        const char* q = nullptr;
        const char base = postgres ? lower(p[1]) : p[1];
        if (base == 'x')
            q = digits(p + 2, is_hex);
        else if (base == 'b')
            q = digits(p + 2, [](char c) { return c == '0' || c == '1'; });
        else if (postgres && base == 'o')
            q = digits(p + 2, [](char c) { return c >= '0' && c <= '7'; });
        if (q != nullptr && q > p + 2 && (q == end || !is(*q, kIdent))) return q;
    }
    const char* q = digits(p, decimal);
    bool fraction = false;
    if (q < end && *q == '.' && !(q + 1 < end && q[1] == '.')) {
        fraction = true;
        ++q;
        if (q < end && decimal(*q)) q = digits(q, decimal);
    }
    if (q < end && (*q == 'e' || *q == 'E')) {
        const char* e = q + 1;
        if (e < end && (*e == '+' || *e == '-')) ++e;
        if (e < end && is(*e, kDigit)) {
            while (e < end && is(*e, kDigit)) ++e;
            if (e == end || !is(*e, kIdent)) return e;
        }
    }
    if (q < end && is(*q, kIdent) && !fraction) return nullptr;
    return q;
}

// The byte behind may be the second one of a character (TwoByte), not a backslash or a backtick.
inline bool may_lead(char c) noexcept { return static_cast<unsigned char>(c) >= 0x80; }

// Finds the closing quote of the string whose first byte inside is `p`; end when it is missing, nullptr when backslashes
// leave in doubt which one it is. `two_byte`: a backslash behind a byte from 0x80 on may belong to its character.
// `escapes` is set when the text between needs unescaping.
inline const char* closing_quote(const char* p, const char* end, char quote, Backslash backslash,
                                 bool two_byte, bool& escapes) noexcept {
    for (;;) {
#if defined(__SSE2__)
        const __m128i quotes = _mm_set1_epi8(quote);
        const __m128i slashes = _mm_set1_epi8('\\');
        while (p + 16 <= end) {
            const __m128i cur = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
            const auto mask = static_cast<unsigned>(
                _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(cur, quotes), _mm_cmpeq_epi8(cur, slashes))));
            if (mask != 0) {
                p += std::countr_zero(mask);
                break;
            }
            p += 16;
        }
#endif
        while (p < end && *p != quote && *p != '\\') ++p;
        if (p >= end) return end;
        if (*p == '\\') {
            const char* const run = p++;
            if (backslash == Backslash::plain) continue;
            escapes = true;
            while (p < end && *p == '\\') ++p;
            if (p >= end) return end;
            const bool odd = (p - run) % 2 != 0;
            if (*p == quote && ((odd && backslash == Backslash::unknown) || (two_byte && may_lead(run[-1]))))
                return nullptr;
            if (odd) ++p;
            continue;
        }
        if (p + 1 < end && p[1] == quote) {
            escapes = true;
            p += 2;
            continue;
        }
        return p;
    }
}

}  // namespace tapscope::sql
