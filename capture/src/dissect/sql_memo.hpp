// Statements seen before: programs send the same few texts with other values in them. A text that is a known one but for
// its values is matched piece by piece, without looking at what the pieces mean.
//
// Why this gives what a scan would: the scanner goes from left to right, and of a run of digits or of a quoted string it
// passes on only that there was one. So between two texts that agree outside of such literals nothing differs but the
// literals. Texts where more could differ are not taken in: literals with a sign, a fraction, an exponent or a letter in
// front (x'..'), dollar quotes, comments, folded white space, and texts that are cut.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sql_literal.hpp"
#include "sql_strings.hpp"

namespace tapscope {

// Bounded: kSets * kWays statements of at most kMostText bytes.
class SqlMemo {
public:
    struct Statement {
        std::string fingerprint;
        std::uint32_t placeholders = 0;
        std::int32_t class_id = -1;  // whatever who asks wants to find again; -1 when it is new

    private:
        friend class SqlMemo;
        struct Gap {
            std::uint32_t from, to;  // of the literal in `text`, quotes included
            char quote;              // 0: digits
            bool backslashes;        // of SqlLiteral
        };
        std::uint64_t prefix = 0;  // hash of the first bytes, and of how strings are read
        std::string text;
        std::vector<Gap> gaps;
    };

    // The statement, read in the same way, that `text` is but for its literals, which are appended to `literals`; nullptr:
    // none that is known, and `literals` may hold anything.
    Statement* find(std::string_view text, SqlStrings strings, std::vector<SqlLiteral>& literals) const;

    // What a whole scan found, if it is fit to be found again. `literals` are all of the text.
    void note(std::string_view text, SqlStrings strings, const std::vector<SqlLiteral>& literals,
              std::string_view fingerprint, std::uint32_t placeholders);

private:
    static constexpr std::size_t kSets = 64, kWays = 4;
    static constexpr std::size_t kPrefix = 16;  // bytes that tell the set; no literal may lie in them
    static constexpr std::size_t kMostText = 1024, kMostGaps = 32;
    static constexpr unsigned kPatience = 8;  // texts of a full set that pass before one of it makes room
    struct Set {
        std::array<std::unique_ptr<Statement>, kWays> ways;
        unsigned passed = 0, next = 0;
    };
    static bool matches(const Statement& known, std::string_view text, SqlStrings strings,
                        std::vector<SqlLiteral>& literals);

    std::array<Set, kSets> sets_;
};

}  // namespace tapscope
