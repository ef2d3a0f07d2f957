#include "sql_literal.hpp"

namespace tapscope {

namespace {

constexpr std::size_t kMaxWrittenOut = 40;  // digits; covers DECIMAL(38) and every 64-bit integer

int hex_value(char c) noexcept {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool is_plain_integer(std::string_view text) noexcept {
    if (text.empty() || text.size() > kMaxWrittenOut) return false;
    std::size_t i = text[0] == '-' ? 1 : 0;
    if (i == text.size()) return false;
    if (text[i] == '0') return text.size() == 1;
    for (; i < text.size(); ++i) {
        if (text[i] < '0' || text[i] > '9') return false;
    }
    return true;
}

}  // namespace

void append_canonical_number(std::string_view text, std::string& out) {
    std::size_t i = 0;
    bool negative = false;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) negative = text[i++] == '-';

    std::string digits;  // significant digits; the value is 0.DIGITS * 10^point
    std::int64_t point = 0;
    bool fraction = false;
    for (; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '.') {
            fraction = true;
            continue;
        }
        if (c == '_') continue;  // PostgreSQL: 1_000
        if (c < '0' || c > '9') break;
        if (c == '0' && digits.empty()) {
            if (fraction) --point;  // a zero before the first significant digit
            continue;
        }
        digits.push_back(c);
        if (!fraction) ++point;
    }
    if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
        ++i;
        bool down = false;
        if (i < text.size() && (text[i] == '-' || text[i] == '+')) down = text[i++] == '-';
        std::int64_t exponent = 0;
        for (; i < text.size() && text[i] >= '0' && text[i] <= '9' && exponent < 1'000'000; ++i) {
            exponent = exponent * 10 + (text[i] - '0');
        }
        point += down ? -exponent : exponent;
    }
    while (!digits.empty() && digits.back() == '0') digits.pop_back();
    if (digits.empty()) {
        out.push_back('0');
        return;
    }
    if (negative) out.push_back('-');
    const auto count = static_cast<std::int64_t>(digits.size());
    const auto limit = static_cast<std::int64_t>(kMaxWrittenOut);
    if (point > limit || point < -limit || (point < count && count - point > 2 * limit)) {
        out.push_back(digits[0]);
        if (count > 1) {
            out.push_back('.');
            out.append(digits, 1);
        }
        out.push_back('e');
        out.append(std::to_string(point - 1));
        return;
    }
    if (point <= 0) {
        out.append("0.");
        out.append(static_cast<std::size_t>(-point), '0');
        out.append(digits);
    } else if (point >= count) {
        out.append(digits);
        out.append(static_cast<std::size_t>(point - count), '0');
    } else {
        out.append(digits, 0, static_cast<std::size_t>(point));
        out.push_back('.');
        out.append(digits, static_cast<std::size_t>(point));
    }
}

bool append_canonical_digits(std::string_view digits, unsigned bits_per_digit, std::string& out) {
    std::size_t first = 0;
    while (first + 1 < digits.size() && digits[first] == '0') ++first;
    if ((digits.size() - first) * bits_per_digit <= 64) {
        std::uint64_t value = 0;
        for (std::size_t i = first; i < digits.size(); ++i) {
            value = value << bits_per_digit | static_cast<std::uint64_t>(hex_value(digits[i]) & 15);
        }
        out.append(std::to_string(value));
        return true;
    }
    const std::size_t per_byte = 8 / bits_per_digit;
    unsigned byte = 0;
    for (std::size_t i = 0; i < digits.size(); ++i) {  // the first byte is short when the count is uneven
        byte = byte << bits_per_digit | static_cast<unsigned>(hex_value(digits[i]) & 15);
        if ((digits.size() - i - 1) % per_byte == 0) {
            out.push_back(static_cast<char>(byte));
            byte = 0;
        }
    }
    return false;
}

void append_unescaped(const SqlLiteral& literal, std::string& out) {
    const std::string_view text = literal.text;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == literal.quote && i + 1 < text.size() && text[i + 1] == literal.quote) {
            out.push_back(c);
            ++i;
            continue;
        }
        if (c != '\\' || !literal.backslashes || i + 1 == text.size()) {
            out.push_back(c);
            continue;
        }
        switch (const char next = text[++i]) {
            case '0':
                out.push_back('\0');
                break;
            case 'b':
                out.push_back('\b');
                break;
            case 'n':
                out.push_back('\n');
                break;
            case 'r':
                out.push_back('\r');
                break;
            case 't':
                out.push_back('\t');
                break;
            case 'Z':
                out.push_back('\x1a');
                break;
            case '%':  // only LIKE patterns read these two, and there the backslash stays
            case '_':
                out.push_back('\\');
                out.push_back(next);
                break;
            default:
                out.push_back(next);
        }
    }
}

std::string_view canonical(const SqlLiteral& literal, std::string& scratch, bool& is_number) {
    scratch.clear();
    is_number = false;
    switch (literal.kind) {
        case LiteralKind::number:
            is_number = true;
            if (is_plain_integer(literal.text)) return literal.text;
            append_canonical_number(literal.text, scratch);
            return scratch;
        case LiteralKind::digits:
            is_number = true;
            if (literal.text.size() <= kMaxWrittenOut && (literal.text[0] != '0' || literal.text.size() == 1))
                return literal.text;
            append_canonical_number(literal.text, scratch);
            return scratch;
        case LiteralKind::hex:
            is_number = append_canonical_digits(literal.text, 4, scratch);
            return scratch;
        case LiteralKind::bits:
            is_number = append_canonical_digits(literal.text, 1, scratch);
            return scratch;
        case LiteralKind::string:
            return literal.text;
        case LiteralKind::escaped:
            append_unescaped(literal, scratch);
            return scratch;
    }
    return literal.text;
}

}  // namespace tapscope
