// A statement's text as class and evidence, the same in every protocol that carries SQL text: tokens NUMBER or TEXT of
// its literals (slot: ordinal of the literal) and STATEMENT of the whole text, so that the same statement hashes alike
// on both sides of a middleware.
#pragma once

#include <cstdint>
#include <string_view>

#include "record.hpp"
#include "sql_fingerprint.hpp"

namespace tapscope {

inline constexpr std::size_t kMaxStatementText = 64 * 1024;  // bytes of a statement that are looked at
inline constexpr std::size_t kMaxParameterText = 4096;       // longer values give no token
inline constexpr std::uint32_t kMaxParameterTokens = 256;    // of one statement or execution
inline constexpr std::uint32_t kMaxResultRows = 10;          // rows of an answer that give tokens
inline constexpr std::uint32_t kMaxWholeRows = 4;            // of these all columns do,
inline constexpr std::uint32_t kMaxResultColumns = 32;       // up to so many,
inline constexpr std::uint32_t kMaxResultTokens = 16;        // and to so many tokens
inline constexpr std::size_t kMaxResultText = 64;            // longer values give no token

// Whether a value of an answer gives a token, behind so many `tokens` of that answer. What a loop over the rows asks
// for mostly stands in their first column: behind the whole rows, it alone does.
constexpr bool wants_result(std::uint32_t row, std::uint32_t column, std::uint32_t tokens) noexcept {
    if (row < kMaxWholeRows) return column < kMaxResultColumns && tokens < kMaxResultTokens;
    return row < kMaxResultRows && column == 0;
}

// Pools ask so whether a connection is still alive, before they hand it out.
inline constexpr std::string_view kSignOfLife = "SELECT ?";

// Reports the tokens of `text` for `ref`; returns who read it, with its fingerprint, valid until the next statement.
// `cut`: the text is the beginning of a longer statement; then there is no STATEMENT token.
// `first` is the slot of the first literal (statements of a batch are numbered on); it is moved on.
const SqlFingerprinter& statement_evidence(Recorder& recorder, MessageRef ref, std::string_view text,
                                           bool cut, SqlDialect dialect, SqlStrings strings,
                                           std::uint32_t& first);

inline const SqlFingerprinter& statement_evidence(Recorder& recorder, MessageRef ref, std::string_view text,
                                                  bool cut, SqlDialect dialect, SqlStrings strings) {
    std::uint32_t first = 0;
    return statement_evidence(recorder, ref, text, cut, dialect, strings, first);
}

// How a text in Unicode is read that goes to a database of any make.
inline constexpr SqlStrings kAnyDatabase{Backslash::unknown, TwoByte::no};

// The class of the message is the fingerprint alone. Only in the protocol that the dialect is named for: what is known of
// a text is kept with it.
void statement_class(Recorder& recorder, MessageRef ref, Protocol protocol, const SqlFingerprinter& sql);

// A bound value: numbers in their canonical decimal text, so that a bound 7 hashes like a literal 7.
void parameter_token(Recorder& recorder, MessageRef ref, std::uint32_t slot, bool number,
                     std::string_view value);

}  // namespace tapscope
