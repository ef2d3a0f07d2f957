// The first place of a byte in a short text, without a call: names and values of a few bytes are searched many times a
// message, and there the call of memchr is most of the work.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "hash.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tapscope {

// text.size(): nowhere. Reads nothing beyond the text.
inline std::size_t find_byte(std::string_view text, char c) noexcept {
    const char* const p = text.data();
    const std::size_t n = text.size();
#if defined(__SSE2__)
    const __m128i wanted = _mm_set1_epi8(c);
    const auto places = [&](__m128i bytes) {
        return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted)));
    };
    // The last step goes back over bytes that were looked at, so that it is a whole one.
    if (n >= 16) {
        for (std::size_t at = 0;; at = at + 32 <= n ? at + 16 : n - 16) {
            const unsigned found = places(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + at)));
            if (found != 0) return at + static_cast<unsigned>(std::countr_zero(found));
            if (at + 16 == n) return n;
        }
    }
    if (n >= 8) {
        const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
        const __m128i last = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + n - 8));
        // Together; the upper half stands for p[n - 8] and what follows.
        const unsigned found = places(_mm_unpacklo_epi64(first, last));
        if ((found & 0xff) != 0) return static_cast<unsigned>(std::countr_zero(found));
        return found != 0 ? n - 16 + static_cast<unsigned>(std::countr_zero(found)) : n;
    }
    // In a word, without a loop whose end cannot be guessed: the lowest zero byte of `other` is marked for certain.
    const std::uint64_t word = detail::tail_word(reinterpret_cast<const std::uint8_t*>(p), n);
    const std::uint64_t other = word ^ 0x0101010101010101u * static_cast<unsigned char>(c);
    const std::uint64_t zero = (other - 0x0101010101010101u) & ~other & 0x8080808080808080u;
    return zero == 0 ? n : std::min<std::size_t>(n, static_cast<unsigned>(std::countr_zero(zero)) / 8);
#else
    const void* const found = n == 0 ? nullptr : std::memchr(p, c, n);
    return found == nullptr ? n : static_cast<std::size_t>(static_cast<const char*>(found) - p);
#endif
}

inline bool holds(std::string_view text, char c) noexcept { return find_byte(text, c) < text.size(); }

// Does a text hold any of a few bytes? In one pass for all of them.
template <char... Any>
bool holds_any(std::string_view text) noexcept {
#if defined(__SSE2__)
    const char* const p = text.data();
    const std::size_t n = text.size();
    if (n >= 16) {
        for (std::size_t at = 0;; at = at + 32 <= n ? at + 16 : n - 16) {
            const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + at));
            __m128i found = _mm_setzero_si128();
            ((found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(Any)))), ...);
            if (_mm_movemask_epi8(found) != 0) return true;
            if (at + 16 == n) return false;
        }
    }
#endif
    return (holds(text, Any) || ...);
}

}  // namespace tapscope
