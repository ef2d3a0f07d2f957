// Lines of an HTTP head, each with its first colon: a line costs a few instructions however long it is.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "dissect/line_marks.hpp"

namespace tapscope {

struct HeadLine {
    const char *at, *newline;
    const char* colon;  // the first one, or nullptr
};

class HeadLines {
public:
    HeadLines(const char* begin, const char* end, MarkLines mark) noexcept
        : mark_(mark), block_(begin), line_(begin), end_(end) {
        look();
    }

    // The next line for which `wanted` is true. False when none is left that is there to its end. A head has many lines
    // and few that are wanted: all of the loop stands in registers.
    template <class Wanted>
    bool next(HeadLine& line, Wanted wanted) noexcept {
        const char *block = block_, *at = line_, *colon = nullptr;
        std::uint64_t newlines = newlines_, colons = colons_;
        while (true) {
            while (newlines == 0) {
                if (colon == nullptr && colons != 0) colon = block + std::countr_zero(colons);
                if (end_ - block <= kBlock) return false;
                block_ = block += kBlock;
                if (++in_marks_ == LineMarks::kBlocks) look();
                newlines = marks_.newlines[in_marks_];
                colons = marks_.colons[in_marks_];
            }
            const std::uint64_t upto = newlines ^ (newlines - 1);  // the line feed and everything before it
            if (colon == nullptr && (colons & upto) != 0) colon = block + std::countr_zero(colons);
            const char* const newline = block + std::countr_zero(newlines);
            newlines &= newlines - 1;
            colons &= ~upto;
            if (wanted(at, colon)) {
                line = {at, newline, colon};
                line_ = newline + 1;
                newlines_ = newlines;
                colons_ = colons;
                return true;
            }
            at = newline + 1;
            colon = nullptr;
        }
    }

private:
    static constexpr std::ptrdiff_t kBlock = LineMarks::kBlock;

    // A head is marked in one go if it is not long; what of a body is marked with it is little.
    void look() noexcept {
        in_marks_ = 0;
        if (block_ == end_) return;
        mark_(block_, std::min(static_cast<std::size_t>(end_ - block_), kBlock * LineMarks::kBlocks), marks_);
        newlines_ = marks_.newlines[0];
        colons_ = marks_.colons[0];
    }

    LineMarks marks_;
    MarkLines mark_;
    const char *block_, *line_, *end_;
    std::size_t in_marks_ = 0;                 // the number of the block
    std::uint64_t newlines_ = 0, colons_ = 0;  // of the block, those not passed yet
};

}  // namespace tapscope
