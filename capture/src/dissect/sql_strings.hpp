// How the strings of an SQL text are to be read: a property of the connection that carries it, where that says so.
//
// Read the wrong way, 'C:\' swallows its own end, and the next literal stands where SQL is expected: it would be stored
// as a part of the class. So where the two readings of a backslash in front of a quote differ and nothing tells which
// one the server takes, nothing from there on is shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tapscope {

enum class Backslash : std::uint8_t {
    escapes,
    plain,  // a character like any other
    unknown,
};

// Has the character set characters of two bytes of which the second is a backslash or a backtick (Shift JIS, GBK, Big5
// and the like; never a quote)?
enum class TwoByte : std::uint8_t {
    no,
    unknown,  // not where the whole text is UTF-8
    yes,
};

struct SqlStrings {
    Backslash backslash = Backslash::unknown;
    TwoByte two_byte = TwoByte::unknown;

    // Different for what is read differently.
    std::uint64_t key() const noexcept {
        return static_cast<std::uint64_t>(backslash) | static_cast<std::uint64_t>(two_byte) << 8;
    }
};

namespace sql {

// Is this UTF-8, but for a character that the end of the text may have cut? Overlong forms are not looked for.
inline bool is_utf8(std::string_view text) noexcept {
    for (std::size_t i = 0; i < text.size();) {
        const auto first = static_cast<unsigned char>(text[i++]);
        if (first < 0x80) continue;
        if (first < 0xC2 || first > 0xF4) return false;
        for (int more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3; more > 0 && i < text.size(); --more, ++i)
            if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return false;
    }
    return true;
}

}  // namespace sql

}  // namespace tapscope
