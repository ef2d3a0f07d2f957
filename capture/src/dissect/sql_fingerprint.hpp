// SQL text -> fingerprint (the class of the statement) and the literals that were taken out of it, in one pass.
//
//   SELECT a FROM t1 WHERE id = -7 AND s IN ('x', "y") -- note      ->  SELECT a FROM t1 WHERE id = ? AND s IN (?+)
//                                                                        literals: -7, x, y
// Rules: numbers (decimal, hex, bit, with fraction, exponent, and a sign that follows an operator) and strings (both
// quotes, introducers such as _utf8'..', x'..', b'..', N'..') become `?`. IN lists of values, and of functions of
// values, become `(?+)`, and PostgreSQL's ARRAY[..] of values `ARRAY[?+]`, their casts with them. Of several equal
// rows behind VALUES, or VALUES ROW, one is kept, so that one row and a thousand rows are one class; NULL, TRUE, FALSE
// and DEFAULT count as values inside such lists only. Names of savepoints, cursors and prepared statements that hold a
// digit become `?` (sql_names.hpp). Comments go, executable ones (/*! */, /*M! */) and optimiser hints (/*+ */) stay
// as text. White space is folded, trailing `;` removed. Other identifiers, quoted or with digits, stay. A text of
// nothing else (pools ping by `;`) is `(empty)`. How backslashes count is what SqlStrings says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sql_literal.hpp"
#include "sql_memo.hpp"
#include "sql_strings.hpp"

namespace tapscope {

enum class SqlDialect : std::uint8_t {
    mysql,
    postgres,  // "quoted" identifiers, $1 placeholders, $tag$ strings, nested comments, E'..'
};

// What servers do that nobody told otherwise.
constexpr SqlStrings usual_strings(SqlDialect dialect) noexcept {
    return {dialect == SqlDialect::mysql ? Backslash::escapes : Backslash::plain, TwoByte::no};
}

namespace sql {
template <SqlDialect D>
class SqlTokens;
template <SqlDialect D>
class SqlElements;
template <SqlDialect D>
class SqlScanner;
}  // namespace sql

// Literals recorded per statement; those beyond are counted only.
inline constexpr std::size_t kMaxSqlLiterals = 256;

// Reusable: buffers keep their capacity from one statement to the next. Results are valid until the next scan, and
// literals point into the scanned text.
class SqlFingerprinter {
public:
    explicit SqlFingerprinter(SqlDialect dialect = SqlDialect::mysql) : dialect_(dialect) {}

    SqlDialect dialect() const noexcept { return dialect_; }

    // `cut`: the text is the beginning of a longer statement. A list that reaches the cut is folded as if it were
    // complete; otherwise " ..." is appended in place of the last, possibly incomplete word.
    void scan(std::string_view text, SqlStrings strings, bool cut);
    void scan(std::string_view text, bool cut = false) { scan(text, usual_strings(dialect_), cut); }

    std::string_view fingerprint() const noexcept { return fingerprint_; }
    std::span<const SqlLiteral> literals() const noexcept { return {literals_.data(), literals_.size()}; }
    std::size_t literal_count() const noexcept { return literal_count_; }  // recorded or not
    std::uint32_t placeholders() const noexcept { return placeholders_; }  // `?` or $n in the text
    // From some quote on nothing is known but that there is more: the fingerprint ends there, in " ...".
    bool doubtful() const noexcept { return doubtful_; }
    // Where to note the class of a fingerprint that is likely to come again, -1 until then; nullptr: nowhere.
    std::int32_t* class_id() const noexcept { return class_id_; }

    // The scanned text without comments, white space outside of quotes folded, trailing `;` removed; literals stay, and
    // from a quote in doubt on everything does.
    std::string_view statement();

private:
    template <SqlDialect D>
    friend class sql::SqlTokens;
    template <SqlDialect D>
    friend class sql::SqlElements;
    template <SqlDialect D>
    friend class sql::SqlScanner;

    static constexpr std::size_t kSentinel =
        16;  // blanks in front, so that looking back needs no bounds check

    SqlDialect dialect_;
    std::unique_ptr<char[]> buffer_;
    std::size_t capacity_ = 0;
    std::string_view fingerprint_;  // in the buffer, or of a statement seen before
    std::vector<SqlLiteral> literals_;
    std::size_t literal_count_ = 0;
    std::uint32_t placeholders_ = 0;
    std::int32_t* class_id_ = nullptr;
    SqlStrings strings_;
    bool doubtful_ = false;
    bool rewritten_ = false;  // something other than literals changed: statement() must rebuild the text
    std::string_view text_;
    std::string statement_;
    SqlMemo memo_;
};

}  // namespace tapscope
