// Lines of an HTTP head, each with its first colon: 64 bytes are looked at together, so that a line costs a few
// instructions however long it is.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tapscope {

class HeadLines {
public:
    HeadLines(const char* begin, const char* end) noexcept : block_(begin), begin_(begin), end_(end) {
        if (begin != end) look();
    }

    // False when no line feed is left; else `newline` is where it stands, and `colon` the first one of the line or
    // nullptr.
    bool next(const char*& newline, const char*& colon) noexcept {
        colon = nullptr;
        while (newlines_ == 0) {
            if (colon == nullptr && colons_ != 0) colon = block_ + std::countr_zero(colons_);
            if (end_ - block_ <= kBlock) return false;
            block_ += kBlock;
            look();
        }
        const std::uint64_t upto = newlines_ ^ (newlines_ - 1);  // the line feed and everything before it
        if (colon == nullptr && (colons_ & upto) != 0) colon = block_ + std::countr_zero(colons_);
        newline = block_ + std::countr_zero(newlines_);
        newlines_ &= ~upto;
        colons_ &= ~upto;
        return true;
    }

private:
    static constexpr std::ptrdiff_t kBlock = 64;

#if defined(__SSE2__)
    static std::uint64_t bits(__m128i bytes, char c) noexcept {
        return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(c))));
    }
    static __m128i load(const char* p) noexcept {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    }
#endif

    void look() noexcept {
        std::ptrdiff_t at = 0;
#if defined(__SSE2__)
        if (end_ - block_ >= kBlock) {
            const __m128i a = load(block_), b = load(block_ + 16), c = load(block_ + 32),
                          d = load(block_ + 48);
            newlines_ = bits(a, '\n') | bits(b, '\n') << 16 | bits(c, '\n') << 32 | bits(d, '\n') << 48;
            colons_ = bits(a, ':') | bits(b, ':') << 16 | bits(c, ':') << 32 | bits(d, ':') << 48;
            return;
        }
#endif
        newlines_ = colons_ = 0;
        const std::ptrdiff_t size = end_ - block_ < kBlock ? end_ - block_ : kBlock;
#if defined(__SSE2__)
        for (; at + 16 <= size; at += 16) {
            newlines_ |= bits(load(block_ + at), '\n') << at;
            colons_ |= bits(load(block_ + at), ':') << at;
        }
        if (at < size && end_ - begin_ >= 16) {  // the last ones, behind some that were looked at
            const auto passed = 16 - (size - at);
            newlines_ |= bits(load(end_ - 16), '\n') >> passed << at;
            colons_ |= bits(load(end_ - 16), ':') >> passed << at;
            return;
        }
#endif
        for (; at < size; ++at) {
            newlines_ |= std::uint64_t{block_[at] == '\n'} << at;
            colons_ |= std::uint64_t{block_[at] == ':'} << at;
        }
    }

    const char* block_;
    const char* begin_;
    const char* end_;
    std::uint64_t newlines_ = 0, colons_ = 0;  // of the block, those not passed yet
};

}  // namespace tapscope
