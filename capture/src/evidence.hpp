// What evidence tokens are made of: slots by name, and the shape of values that look like propagated ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dissect/dissector.hpp"
#include "hash.hpp"

namespace tapscope {

// Slot of a named value (query parameter, form field, cookie, header): a hash of its name, never 0x80000000 and above,
// which are the path segments.
std::uint32_t slot_of_name(std::string_view name) noexcept;

inline constexpr std::uint32_t kPathSegmentSlot = 0x80000000u;

// The value looks like an id that a program made up and handed on: it holds a UUID, 16 or more hexadecimal digits, or
// 20 or more characters of the base64url alphabet with letters and digits (words joined by '-' or '_' excepted), and
// that part (judged by its first 64 bytes) is at least half of it. Decimal numbers up to 19 digits are business keys
// and do not count.
bool looks_like_id(std::string_view value) noexcept;
inline constexpr std::size_t kShortestId = 16;
// The same with vectors of at most `widest` bits, whatever the processor has.
bool looks_like_id(std::string_view value, unsigned widest) noexcept;

inline constexpr bool is_digit(char c) noexcept { return static_cast<unsigned char>(c - '0') < 10; }
inline constexpr bool is_alpha(char c) noexcept { return static_cast<unsigned char>((c | 0x20) - 'a') < 26; }
inline constexpr bool is_hex(char c) noexcept {
    return is_digit(c) || static_cast<unsigned char>((c | 0x20) - 'a') < 6;
}
// Eight at a time. Most texts that are asked about begin with a letter, or are numbers of a few digits.
inline bool all_digits(std::string_view text) noexcept {
    if (text.empty() || !is_digit(text.front())) return false;
    const auto digits = [](std::uint64_t word) {  // '0' to '9' are 0x30 to 0x39
        constexpr std::uint64_t kHigh = 0xf0f0f0f0f0f0f0f0u, kZeros = 0x3030303030303030u;
        return (word & kHigh) == kZeros && ((word + 0x0606060606060606u) & kHigh) == kZeros;
    };
    const auto* p = reinterpret_cast<const std::uint8_t*>(text.data());
    std::size_t n = text.size();
    for (; n >= 8; p += 8, n -= 8)
        if (!digits(load_le64(p))) return false;
    return n == 0 || digits(detail::tail_word(p, n) | 0x3030303030303030u << 8 * n);
}
bool is_uuid(std::string_view text) noexcept;

// W3C Trace Context: 00-(trace id, 32 digits)-(caller's span)-flags. Every hop writes a span of its own: the trace's id is
// what is handed on. Any other text stays as it is.
inline constexpr std::string_view kTraceParent = "traceparent";
inline std::string_view trace_id(std::string_view value) noexcept {
    return value.size() >= 55 && value[2] == '-' && value[35] == '-' ? value.substr(3, 32) : value;
}

// Undoes %XX and, in forms and queries, '+'. Returns `text` itself when there is nothing to undo.
std::string_view url_decode(std::string_view text, bool plus_is_space, std::string& scratch);

// LIKE wants % around the text that a request asks for: both are the same text without them. A text of nothing else
// keeps one.
inline Bytes without_wildcards(Bytes text) noexcept {
    while (text.size() > 1 && text.front() == '%') text = text.subspan(1);
    while (text.size() > 1 && text.back() == '%') text = text.first(text.size() - 1);
    return text;
}

inline Bytes as_bytes(std::string_view text) noexcept {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
inline std::string_view as_text(Bytes bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace tapscope
