#include "dissect/line_marks.hpp"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tapscope {
namespace {

constexpr std::size_t kBlock = LineMarks::kBlock;

void mark_bytes(const char* text, std::size_t size, LineMarks& marks) noexcept {
    for (std::size_t block = 0; block * kBlock < size; ++block) {
        const char* const p = text + block * kBlock;
        std::uint64_t newlines = 0, colons = 0;
        for (std::size_t i = 0; i < std::min(kBlock, size - block * kBlock); ++i) {
            newlines |= std::uint64_t{p[i] == '\n'} << i;
            colons |= std::uint64_t{p[i] == ':'} << i;
        }
        marks.newlines[block] = newlines;
        marks.colons[block] = colons;
    }
}

#if defined(__x86_64__)
std::uint64_t equal16(__m128i bytes, char c) noexcept {
    return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(c))));
}

__m128i load16(const char* p) noexcept { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// The last block, of less than 64 bytes, behind `before` others of the text.
void mark_rest(const char* p, std::size_t size, std::size_t before, std::uint64_t& newlines,
               std::uint64_t& colons) noexcept {
    newlines = colons = 0;
    std::size_t at = 0;
    for (; at + 16 <= size; at += 16) {
        newlines |= equal16(load16(p + at), '\n') << at;
        colons |= equal16(load16(p + at), ':') << at;
    }
    if (at < size && before + size >= 16) {  // the last ones, with some before them that were looked at
        const __m128i bytes = load16(p + size - 16);
        const std::size_t passed = 16 - (size - at);
        newlines |= equal16(bytes, '\n') >> passed << at;
        colons |= equal16(bytes, ':') >> passed << at;
        return;
    }
    for (; at < size; ++at) {
        newlines |= std::uint64_t{p[at] == '\n'} << at;
        colons |= std::uint64_t{p[at] == ':'} << at;
    }
}

void mark_sse2(const char* text, std::size_t size, LineMarks& marks) noexcept {
    std::size_t block = 0, at = 0;
    for (; at + kBlock <= size; at += kBlock, ++block) {
        const char* const p = text + at;
        const __m128i a = load16(p), b = load16(p + 16), c = load16(p + 32), d = load16(p + 48);
        const auto all = [&](char x) {
            return equal16(a, x) | equal16(b, x) << 16 | equal16(c, x) << 32 | equal16(d, x) << 48;
        };
        marks.newlines[block] = all('\n');
        marks.colons[block] = all(':');
    }
    if (at < size) mark_rest(text + at, size - at, at, marks.newlines[block], marks.colons[block]);
}

[[gnu::target("avx2")]] std::uint64_t equal32(__m256i low, __m256i high, char c) noexcept {
    const __m256i wanted = _mm256_set1_epi8(c);
    const auto bits = [](__m256i found) __attribute__((target("avx2"))) {
        return static_cast<unsigned>(_mm256_movemask_epi8(found));
    };
    return bits(_mm256_cmpeq_epi8(low, wanted)) | std::uint64_t{bits(_mm256_cmpeq_epi8(high, wanted))} << 32;
}

[[gnu::target("avx2")]] void mark_avx2(const char* text, std::size_t size, LineMarks& marks) noexcept {
    std::size_t block = 0, at = 0;
    for (; at + kBlock <= size; at += kBlock, ++block) {
        const auto* const p = reinterpret_cast<const __m256i*>(text + at);
        const __m256i low = _mm256_loadu_si256(p), high = _mm256_loadu_si256(p + 1);
        marks.newlines[block] = equal32(low, high, '\n');
        marks.colons[block] = equal32(low, high, ':');
    }
    if (at < size) mark_rest(text + at, size - at, at, marks.newlines[block], marks.colons[block]);
}

[[gnu::target("avx512bw")]] void mark_avx512(const char* text, std::size_t size, LineMarks& marks) noexcept {
    const __m512i newline = _mm512_set1_epi8('\n'), colon = _mm512_set1_epi8(':');
    std::size_t block = 0, at = 0;
    for (; at < size; at += kBlock, ++block) {
        // What a mask leaves out is not read.
        const std::size_t rest = std::min(size - at, kBlock);
        const __m512i bytes = _mm512_maskz_loadu_epi8(~std::uint64_t{0} >> (kBlock - rest), text + at);
        marks.newlines[block] = _mm512_cmpeq_epi8_mask(bytes, newline);
        marks.colons[block] = _mm512_cmpeq_epi8_mask(bytes, colon);
    }
}
#endif

}  // namespace

MarkLines line_marker([[maybe_unused]] unsigned widest) noexcept {
#if defined(__x86_64__)
    if (widest >= 512 && __builtin_cpu_supports("avx512bw")) return mark_avx512;
    if (widest >= 256 && __builtin_cpu_supports("avx2")) return mark_avx2;
    if (widest >= 128) return mark_sse2;
#endif
    return mark_bytes;
}

}  // namespace tapscope
