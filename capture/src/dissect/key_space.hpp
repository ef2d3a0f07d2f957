// Keys of caches as class and evidence, the same for every protocol that looks things up by key: "user:42:name" is of the
// class "user:*", a token TEXT as a whole, a token NUMBER for each part that is a number, and a token TEXT for each other
// part behind the first: who asks for "session:3f9a.." was told "3f9a..", by a cookie or another answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "evidence.hpp"
#include "record.hpp"

namespace tapscope {

inline constexpr std::size_t kMaxKey = 512;   // longer keys give no token
inline constexpr std::size_t kLeastPart = 2;  // shorter texts in a key give none of their own

// What stands in front of the first ':' when it is a word of at most 24 letters, '_' and '-': the name space, which
// programs set, and not what users do. Empty when there is none.
inline std::string_view key_space(std::string_view key) noexcept {
    const std::size_t colon = key.substr(0, 25).find(':');
    if (colon == std::string_view::npos || colon == 0 || !is_alpha(key[0])) return {};
    for (char c : key.substr(0, colon))
        if (!is_alpha(c) && c != '_' && c != '-') return {};
    return key.substr(0, colon);
}

inline void key_evidence(Recorder& recorder, MessageRef ref, std::uint32_t slot, std::string_view key) {
    if (key.empty() || key.size() > kMaxKey) return;
    recorder.token(ref, slot, all_digits(key) ? TokenKind::number : TokenKind::text, as_bytes(key));
    if (key.find(':') == std::string_view::npos) return;
    std::uint32_t part = 0;
    for (std::string_view rest = key; !rest.empty() && part < 8; ++part) {
        const std::size_t colon = std::min(rest.find(':'), rest.size());
        const std::string_view piece = rest.substr(0, colon);
        rest.remove_prefix(std::min(colon + 1, rest.size()));
        if (all_digits(piece))
            recorder.token(ref, kPathSegmentSlot + part, TokenKind::number, as_bytes(piece), false);
        else if (part > 0 && piece.size() >= kLeastPart)
            recorder.token(ref, kPathSegmentSlot + part, TokenKind::text, as_bytes(piece));
    }
}

}  // namespace tapscope
