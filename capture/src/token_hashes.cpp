#include "token_hashes.hpp"

#include <cstring>

// One body, compiled for several processors: GCC and Clang lower vectors that are wider than the target's by parts.
#define TAPSCOPE_HASH_LANES(name, target)                                                                    \
    target void name(HashKey key, const std::uint64_t* words, std::size_t count, std::uint64_t* out) {       \
        using Vector [[gnu::vector_size(64)]] = std::uint64_t;                                               \
        Vector a = Vector{} + (0x736f6d6570736575u ^ key.k0), b = Vector{} + (0x646f72616e646f6du ^ key.k1); \
        Vector c = Vector{} + (0x6c7967656e657261u ^ key.k0), d = Vector{} + (0x7465646279746573u ^ key.k1); \
        for (std::size_t i = 0; i < count + 3; ++i) {                                                        \
            Vector m{};                                                                                      \
            if (i < count) std::memcpy(&m, words + 8 * i, sizeof m);                                         \
            if (i == count) c ^= Vector{} + 0xffu;                                                           \
            d ^= m;                                                                                          \
            a += b;                                                                                          \
            b = (b << 13 | b >> 51) ^ a;                                                                     \
            a = a << 32 | a >> 32;                                                                           \
            c += d;                                                                                          \
            d = (d << 16 | d >> 48) ^ c;                                                                     \
            a += d;                                                                                          \
            d = (d << 21 | d >> 43) ^ a;                                                                     \
            c += b;                                                                                          \
            b = (b << 17 | b >> 47) ^ c;                                                                     \
            c = c << 32 | c >> 32;                                                                           \
            a ^= m;                                                                                          \
        }                                                                                                    \
        a ^= b ^ c ^ d;                                                                                      \
        std::memcpy(out, &a, sizeof a);                                                                      \
    }

namespace tapscope {
namespace {

TAPSCOPE_HASH_LANES(hash_lanes, )
#if defined(__x86_64__)
TAPSCOPE_HASH_LANES(hash_lanes_avx2, __attribute__((target("avx2"))))
TAPSCOPE_HASH_LANES(hash_lanes_avx512, __attribute__((target("avx512f"))))
#endif

}  // namespace

TokenHashes::Hash TokenHashes::choose([[maybe_unused]] unsigned widest) noexcept {
#if defined(__x86_64__)
    if (widest >= 512 && __builtin_cpu_supports("avx512f")) return hash_lanes_avx512;
    if (widest >= 256 && __builtin_cpu_supports("avx2")) return hash_lanes_avx2;
#endif
    return hash_lanes;
}

TokenHashes::TokenHashes(HashKey key, unsigned widest) noexcept : key_(key), hash_(choose(widest)) {}

void TokenHashes::hash(Column<std::uint64_t>& column, Kind& kind, std::size_t words) noexcept {
    Lanes out;
    hash_(key_, kind.words[0].data(), words, out.data());
    for (std::size_t i = 0; i < kind.waiting; ++i) column[kind.row[i]] = out[i];
    kind.waiting = 0;
}

void TokenHashes::add_long(Column<std::uint64_t>& column, std::size_t row,
                           std::span<const std::uint8_t> value) noexcept {
    column[row] = siphash13(key_, value);
}

void TokenHashes::settle(Column<std::uint64_t>& column) noexcept {
    for (std::size_t i = 0; i < kKinds; ++i)
        if (kinds_[i].waiting > 0) hash(column, kinds_[i], i + 1);
}

}  // namespace tapscope
