// Brings memory into the cache before it is used: connections come in any order, which the processor cannot foresee.
#pragma once

#include <cstddef>

namespace tapscope {

inline constexpr std::size_t kCacheLine = 64;

// GCC takes a function that does nothing but prefetch for one without effect and drops its calls, here most of them; the
// empty statement, which it must keep, keeps the prefetch, too.
inline void prefetch_line(const void* from) noexcept {
    __builtin_prefetch(from);
    __asm__ volatile("");
}

// The lines of `bytes` bytes from `from` on; the last one only if it begins a multiple of a line behind `from`.
inline void prefetch_lines(const void* from, std::size_t bytes) noexcept {
    const auto* const first = static_cast<const char*>(from);
    for (std::size_t at = 0; at < bytes; at += kCacheLine) prefetch_line(first + at);
}

}  // namespace tapscope
