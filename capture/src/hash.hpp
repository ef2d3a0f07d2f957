// Hashes. SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012) keyed by the run's
// salt for evidence values, so that a stored hash does not give the value away; cheap mixers for tables in memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "bytes.hpp"

namespace tapscope {

struct HashKey {
    std::uint64_t k0 = 0, k1 = 0;
};

namespace detail {
inline std::uint64_t rotl(std::uint64_t x, int b) noexcept { return (x << b) | (x >> (64 - b)); }
inline void sip_round(std::uint64_t& a, std::uint64_t& b, std::uint64_t& c, std::uint64_t& d) noexcept {
    a += b;
    b = rotl(b, 13);
    b ^= a;
    a = rotl(a, 32);
    c += d;
    d = rotl(d, 16);
    d ^= c;
    a += d;
    d = rotl(d, 21);
    d ^= a;
    c += b;
    b = rotl(b, 17);
    b ^= c;
    c = rotl(c, 32);
}

// The last 0..7 bytes as a little endian word; reads nothing beyond them. Two loads that may overlap: their common
// bytes fall on the same places.
inline std::uint64_t tail_word(const std::uint8_t* p, std::size_t n) noexcept {
    if (n >= 4) return load_le32(p) | std::uint64_t{load_le32(p + n - 4)} << (8 * (n - 4));
    if (n == 0) return 0;
    const std::size_t middle = n / 2, last = n - 1;
    return p[0] | std::uint64_t{p[middle]} << (8 * middle) | std::uint64_t{p[last]} << (8 * last);
}
// The same where eight bytes or more end with them: one load, and no branch to guess.
inline std::uint64_t tail_word_behind(const std::uint8_t* p, std::size_t n) noexcept {
    return load_le64(p + n - 8) >> 1 >> (63 - 8 * n);
}
}  // namespace detail

inline std::uint64_t siphash13(HashKey key, std::span<const std::uint8_t> value) noexcept {
    std::uint64_t v0 = 0x736f6d6570736575u ^ key.k0, v1 = 0x646f72616e646f6du ^ key.k1;
    std::uint64_t v2 = 0x6c7967656e657261u ^ key.k0, v3 = 0x7465646279746573u ^ key.k1;
    const std::uint8_t* p = value.data();
    const std::size_t whole = value.size() & ~std::size_t{7};
    for (const std::uint8_t* end = p + whole; p != end; p += 8) {
        const std::uint64_t m = load_le64(p);
        v3 ^= m;
        detail::sip_round(v0, v1, v2, v3);
        v0 ^= m;
    }
    const std::uint64_t tail =
        whole > 0 ? detail::tail_word_behind(p, value.size() & 7) : detail::tail_word(p, value.size() & 7);
    const std::uint64_t last = (static_cast<std::uint64_t>(value.size()) << 56) | tail;
    v3 ^= last;
    detail::sip_round(v0, v1, v2, v3);
    v0 ^= last;
    v2 ^= 0xff;
    detail::sip_round(v0, v1, v2, v3);
    detail::sip_round(v0, v1, v2, v3);
    detail::sip_round(v0, v1, v2, v3);
    return v0 ^ v1 ^ v2 ^ v3;
}

// Finaliser for table indices (not for values that leave the process).
inline std::uint64_t mix64(std::uint64_t a, std::uint64_t b) noexcept {
    __extension__ using u128 = unsigned __int128;
    const u128 product = static_cast<u128>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Table hash of a text; 16 bytes a step.
inline std::uint64_t text_hash(std::string_view text, std::uint64_t seed = 0) noexcept {
    const auto* p = reinterpret_cast<const std::uint8_t*>(text.data());
    std::size_t n = text.size();
    std::uint64_t h = seed ^ mix64(n, 0x2545F4914F6CDD1Du);
    for (; n >= 16; p += 16, n -= 16) h = mix64(load_le64(p) ^ h, load_le64(p + 8) ^ 0xA0761D6478BD642Fu);
    if (n >= 8) {
        h = mix64(load_le64(p) ^ h, 0xE7037ED1A0B428DBu);
        p += 8;
        n -= 8;
    }
    const std::uint64_t tail = text.size() >= 8 ? detail::tail_word_behind(p, n) : detail::tail_word(p, n);
    return mix64(h ^ tail, 0x8EBC6AF09C88C6E3u);
}

}  // namespace tapscope
