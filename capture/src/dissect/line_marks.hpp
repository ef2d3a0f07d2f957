// Where a text has line feeds and colons, as bit sets: 64 bytes are looked at together, by the widest vectors that the
// processor has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tapscope {

// Bit i of word n speaks of byte 64 * n + i. Words behind the text hold anything.
struct LineMarks {
    static constexpr std::size_t kBlock = 64, kBlocks = 8;
    std::array<std::uint64_t, kBlocks> newlines, colons;
};

// Reads `size` bytes, at most kBlock * kBlocks, and nothing beyond them.
using MarkLines = void (*)(const char* text, std::size_t size, LineMarks& marks) noexcept;

// `widest`: bits of the widest vectors to use where there are such; 0: byte by byte.
MarkLines line_marker(unsigned widest = 512) noexcept;

}  // namespace tapscope
