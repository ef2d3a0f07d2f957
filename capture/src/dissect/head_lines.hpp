// Lines of an HTTP head, each with its first colon: a line costs a few instructions however long it is.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "dissect/line_marks.hpp"

namespace tapscope {

class HeadLines {
public:
    HeadLines(const char* begin, const char* end, MarkLines mark) noexcept
        : mark_(mark), block_(begin), end_(end) {
        look();
    }

    // False when no line feed is left; else `newline` is where it stands, and `colon` the first one of the line or
    // nullptr.
    bool next(const char*& newline, const char*& colon) noexcept {
        colon = nullptr;
        while (newlines_ == 0) {
            if (colon == nullptr && colons_ != 0) colon = block_ + std::countr_zero(colons_);
            if (end_ - block_ <= kBlock) return false;
            block_ += kBlock;
            if (++at_ == LineMarks::kBlocks)
                look();
            else
                take();
        }
        const std::uint64_t upto = newlines_ ^ (newlines_ - 1);  // the line feed and everything before it
        if (colon == nullptr && (colons_ & upto) != 0) colon = block_ + std::countr_zero(colons_);
        newline = block_ + std::countr_zero(newlines_);
        newlines_ &= ~upto;
        colons_ &= ~upto;
        return true;
    }

private:
    static constexpr std::ptrdiff_t kBlock = LineMarks::kBlock;

    // A head is marked in one go if it is not long; what of a body is marked with it is little.
    void look() noexcept {
        at_ = 0;
        if (block_ == end_) return;
        mark_(block_, std::min(static_cast<std::size_t>(end_ - block_), kBlock * LineMarks::kBlocks), marks_);
        take();
    }
    void take() noexcept {
        newlines_ = marks_.newlines[at_];
        colons_ = marks_.colons[at_];
    }

    LineMarks marks_;
    MarkLines mark_;
    const char* block_;
    const char* end_;
    std::size_t at_ = 0;                       // of the block in marks_
    std::uint64_t newlines_ = 0, colons_ = 0;  // of the block, those not passed yet
};

}  // namespace tapscope
