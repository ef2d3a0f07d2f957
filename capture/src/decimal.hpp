// Integers as decimal text, eight digits at a time in a register. The text is written in whole words: who reads it back
// in words, as hashes do, need not wait until bytes written one by one have reached the cache.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tapscope {

inline constexpr std::size_t kDecimalRoom = 32;  // bytes that put_decimal may write, more than the text has

namespace detail {
// The digits of a value below 10^8, the first one in the lowest byte, with zeros in front.
inline std::uint64_t eight_digits(std::uint64_t value) noexcept {
    const std::uint64_t four = value / 10'000 | value % 10'000 << 32;  // halves of 32 bits
    const std::uint64_t hundreds = four * 10'486 >> 20 & 0x0000'007f'0000'007f;
    const std::uint64_t two = hundreds | (four - hundreds * 100) << 16;  // of 16 bits
    const std::uint64_t tens = two * 103 >> 10 & 0x000f'000f'000f'000f;
    return tens | (two - tens * 10) << 8;
}

inline void put_word(std::uint64_t word, char* to) noexcept {
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    std::memcpy(to, &word, sizeof word);
}
}  // namespace detail

// Returns the size of the text; `out` has kDecimalRoom bytes.
inline std::size_t put_unsigned(std::uint64_t value, char* out) noexcept {
    constexpr std::uint64_t kEight = 100'000'000, kZeros = 0x3030'3030'3030'3030;
    std::size_t size = 0;
    std::uint64_t rest = value;
    if (value >= kEight) [[unlikely]] {
        size = put_unsigned(value / kEight, out);
        rest = value % kEight;
    }
    const std::uint64_t digits = detail::eight_digits(rest);
    // Zeros in front are no part of the text, but the last digit is.
    const int zeros = value >= kEight ? 0 : std::countr_zero(digits | std::uint64_t{1} << 56) / 8;
    detail::put_word((digits | kZeros) >> zeros * 8, out + size);
    return size + 8 - static_cast<std::size_t>(zeros);
}

template <class T>
std::size_t put_decimal(T value, char* out) noexcept {
    static_assert(std::is_integral_v<T>);
    if (std::is_signed_v<T> && value < 0) {
        *out = '-';
        return 1 + put_unsigned(0 - static_cast<std::uint64_t>(static_cast<std::int64_t>(value)), out + 1);
    }
    return put_unsigned(static_cast<std::uint64_t>(value), out);
}

}  // namespace tapscope
