// Loads of integers from packet bytes. The caller has checked the length: check once at the door, then read freely.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace tapscope {

template <class T>
inline T load_host(const std::uint8_t* p) noexcept {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

inline std::uint16_t load_be16(const std::uint8_t* p) noexcept {
    return __builtin_bswap16(load_host<std::uint16_t>(p));
}
inline std::uint32_t load_be32(const std::uint8_t* p) noexcept {
    return __builtin_bswap32(load_host<std::uint32_t>(p));
}
inline std::uint64_t load_be64(const std::uint8_t* p) noexcept {
    return __builtin_bswap64(load_host<std::uint64_t>(p));
}
inline std::uint16_t load_le16(const std::uint8_t* p) noexcept { return load_host<std::uint16_t>(p); }
inline std::uint32_t load_le32(const std::uint8_t* p) noexcept { return load_host<std::uint32_t>(p); }
inline std::uint64_t load_le64(const std::uint8_t* p) noexcept { return load_host<std::uint64_t>(p); }

static_assert(std::endian::native == std::endian::little,
              "the loads above are written for little endian hosts");

}  // namespace tapscope
