#include "dissect/postgres_values.hpp"

#include <array>
#include <bit>
#include <charconv>

#include "dissect/sql_literal.hpp"
#include "evidence.hpp"

namespace tapscope::postgres {

namespace {

// Decimal text as PostgreSQL writes numbers: sign, digits, fraction, exponent.
bool is_number(std::string_view text) noexcept {
    if (text.empty() || text.size() > 64) return false;
    std::size_t i = text[0] == '-' || text[0] == '+' ? 1 : 0;
    std::size_t digits = 0;
    while (i < text.size() && is_digit(text[i])) ++i, ++digits;
    if (i < text.size() && text[i] == '.') {
        ++i;
        while (i < text.size() && is_digit(text[i])) ++i, ++digits;
    }
    if (digits == 0) return false;
    if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
        ++i;
        if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
        const std::size_t from = i;
        while (i < text.size() && is_digit(text[i])) ++i;
        if (i == from) return false;
    }
    return i == text.size();
}

Value number(std::string_view text, std::string& scratch) {
    SqlLiteral literal;
    literal.text = text;
    bool numeric = false;
    return {Value::Kind::number, canonical(literal, scratch, numeric)};
}

Value integer(std::int64_t value, std::string& scratch) {
    std::array<char, 24> buffer;
    const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    scratch.assign(buffer.data(), result.ptr);
    return {Value::Kind::number, scratch};
}

template <class Real>
Value real(Real value, std::string& scratch) {
    std::array<char, 64> buffer;
    const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    const std::string_view text(buffer.data(), static_cast<std::size_t>(result.ptr - buffer.data()));
    if (!is_number(text)) return {};  // NaN and infinities
    scratch.clear();
    append_canonical_number(text, scratch);
    return {Value::Kind::number, scratch};
}

Value binary_integer(Bytes bytes, std::string& scratch) {
    switch (bytes.size()) {
        case 2:
            return integer(static_cast<std::int16_t>(load_be16(bytes.data())), scratch);
        case 4:
            return integer(static_cast<std::int32_t>(load_be32(bytes.data())), scratch);
        case 8:
            return integer(static_cast<std::int64_t>(load_be64(bytes.data())), scratch);
        default:
            return {};
    }
}

Value binary_uuid(Bytes bytes, std::string& scratch) {
    if (bytes.size() != 16) return {};
    constexpr std::string_view digits = "0123456789abcdef";
    scratch.clear();
    for (std::size_t i = 0; i < 16; ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) scratch.push_back('-');
        scratch.push_back(digits[bytes[i] >> 4]);
        scratch.push_back(digits[bytes[i] & 15]);
    }
    return {Value::Kind::text, scratch};
}

}  // namespace

ValueType type_of(std::uint32_t oid) noexcept {
    switch (static_cast<Oid>(oid)) {
        case Oid::unspecified:
        case Oid::unknown:
            return ValueType::unknown;
        case Oid::int2:
        case Oid::int4:
        case Oid::int8:
        case Oid::oid:
            return ValueType::integer;
        case Oid::float4:
        case Oid::float8:
            return ValueType::real;
        case Oid::numeric:
            return ValueType::numeric;
        case Oid::text:
        case Oid::varchar:
        case Oid::bpchar:
        case Oid::name:
            return ValueType::text;
        case Oid::uuid:
            return ValueType::uuid;
        default:
            return ValueType::skipped;
    }
}

Value read_value(Bytes bytes, bool binary, ValueType type, std::string& scratch) {
    if (!binary) {
        // Drivers bind numbers as text and leave the type to the server.
        const std::string_view text = as_text(bytes);
        const bool numeric = type != ValueType::text && type != ValueType::uuid && is_number(text);
        return numeric ? number(text, scratch) : Value{Value::Kind::text, text};
    }
    switch (type) {
        case ValueType::integer:
            return binary_integer(bytes, scratch);
        case ValueType::real:
            if (bytes.size() == 4) return real(std::bit_cast<float>(load_be32(bytes.data())), scratch);
            if (bytes.size() == 8) return real(std::bit_cast<double>(load_be64(bytes.data())), scratch);
            return {};
        case ValueType::text:
            return {Value::Kind::text, as_text(bytes)};
        case ValueType::uuid:
            return binary_uuid(bytes, scratch);
        case ValueType::skipped:
        case ValueType::numeric:
        case ValueType::unknown:
            return {};
    }
    return {};
}

}  // namespace tapscope::postgres
