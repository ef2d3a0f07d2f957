// Lines and words of RESP.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "bytes.hpp"
#include "dissect/dissector.hpp"
#include "dissect/text_line.hpp"

namespace tapscope::redis {

inline constexpr std::size_t kMaxLine = 64 * 1024;     // PROTO_INLINE_MAX_SIZE of the server
inline constexpr std::size_t kMaxNumberLine = 32;      // a type, a number, CRLF
inline constexpr std::uint64_t kMaxBulk = 1ull << 32;  // proto-max-bulk-len is 512 MB unless raised
inline constexpr std::uint64_t kMaxElements = 1ull << 31;
inline constexpr std::size_t kMaxName = 32;       // of a command
inline constexpr std::size_t kMaxTokenText = 64;  // longer values give no token; a key may have kMaxKey
inline constexpr std::uint32_t kMaxTokens = 16;   // of a command or a reply
inline constexpr std::uint32_t kSubscribe = 1;    // tag: answered by a push

inline bool equals_folded(std::string_view text, std::string_view lower) noexcept {
    return text.size() == lower.size() && std::equal(text.begin(), text.end(), lower.begin(),
                                                     [](char a, char b) { return (a | 0x20) == b; });
}

inline bool is_name_character(char c) noexcept {
    return is_alpha(c) || is_digit(c) || c == '.' || c == '_' || c == '-';
}

// A command name in capitals, or nothing when it cannot be one.
inline std::string_view command_name(std::string_view text, std::array<char, kMaxName>& buffer) noexcept {
    if (text.empty() || text.size() > kMaxName || !is_alpha(text[0])) return {};
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (!is_name_character(text[i])) return {};
        buffer[i] = text[i] >= 'a' && text[i] <= 'z' ? static_cast<char>(text[i] - 32) : text[i];
    }
    return {buffer.data(), text.size()};
}

inline bool take_line(Bytes bytes, std::string_view& line, std::size_t& size) noexcept {
    return take_text_line(bytes, kMaxLine, line, size);
}

// The number behind the type byte of a line; false when there is none.
inline bool number_of(std::string_view line, std::int64_t& number) noexcept {
    if (line.size() < 2) return false;
    const auto [end, error] = std::from_chars(line.data() + 1, line.data() + line.size(), number);
    return error == std::errc{} && end == line.data() + line.size();
}

inline bool is_type(char c) noexcept { return c != 0 && std::strchr("+-:_#,($!=*~%>|", c) != nullptr; }

// Does a command in the array form start here?
Probe starts_command(Bytes bytes) noexcept;

}  // namespace tapscope::redis
