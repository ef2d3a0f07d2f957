// Canonical bytes of literals: a value must give the same bytes however a statement writes it, so that `7`, `007`,
// `7.0` and a bound integer 7 hash equal, and 'it''s' equals "it's".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tapscope {

enum class LiteralKind : std::uint8_t {
    number,  // decimal, with sign, fraction and exponent as written
    digits,  // a number of digits alone
    hex,     // digits of 0x.. or x'..' (kept as bytes: MySQL reads it as a string)
    bits,    // digits of 0b.. or b'..'
    string,  // between quotes, quotes excluded
    escaped  // like string, but with escapes or doubled quotes inside
};

// One literal of a statement. `text` points into the statement.
struct SqlLiteral {
    std::string_view text;
    LiteralKind kind = LiteralKind::number;
    char quote = 0;           // which quote surrounds an escaped string
    bool backslashes = true;  // escaped: backslash escapes are active
};

// Decimal text without redundant zeros, plus sign or exponent: "-0.50e1" -> "-5". Texts that would need more than
// 40 digits written out keep a normalised exponent ("1e300"). `text` must be a well-formed number.
void append_canonical_number(std::string_view text, std::string& out);

// Decimal text of 0x../0b.. digits when they fit 64 bits; otherwise the raw bytes that they spell.
// Returns true when the result is a number.
bool append_canonical_digits(std::string_view digits, unsigned bits_per_digit, std::string& out);

// The value between the quotes: doubled quotes and (if active) backslash escapes resolved.
void append_unescaped(const SqlLiteral& literal, std::string& out);

// Canonical bytes of any literal. `scratch` holds them when they differ from the text; the result points into either.
// `is_number` tells which kind of token the value is.
std::string_view canonical(const SqlLiteral& literal, std::string& scratch, bool& is_number);

}  // namespace tapscope
