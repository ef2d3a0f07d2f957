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

// {1,NULL,word,"quoted"}; not {"name": 1}, which is JSON, nor arrays in arrays.
bool text_array(std::string_view text, std::vector<Element>& out) {
    if (text.size() < 2 || text.front() != '{' || text.back() != '}') return false;
    text = text.substr(1, text.size() - 2);
    while (!text.empty() && out.size() < kMaxElements) {
        const bool quoted = text[0] == '"';
        std::size_t end = quoted ? 1 : 0;
        bool escaped = false;
        for (; end < text.size() && text[end] != (quoted ? '"' : ','); ++end) {
            if (!quoted && (text[end] == '{' || text[end] == '"')) return false;
            if (text[end] != '\\') continue;
            escaped = true;
            ++end;
        }
        if (end > text.size() || (quoted && end == text.size())) return false;
        const std::string_view element = text.substr(quoted, end - quoted);
        if (quoted && ++end < text.size() && text[end] != ',') return false;
        text.remove_prefix(std::min(end + 1, text.size()));
        if (escaped || element.empty() || (!quoted && element == "NULL")) continue;
        out.push_back({as_bytes(element), quoted ? ValueType::text : ValueType::unknown});
    }
    return true;
}

// i32 dimensions, i32 flags, u32 type; for each dimension i32 size, i32 lower bound; (i32 size, value) each.
bool binary_array(Bytes bytes, std::vector<Element>& out) {
    Reader reader(bytes);
    const std::uint32_t dimensions = reader.u32();
    reader.u32();
    const ValueType type = type_of(reader.u32());
    if (!reader.ok() || dimensions != 1) return false;
    const std::uint32_t count = reader.u32();
    reader.u32();
    for (std::uint32_t i = 0; i < count && out.size() < kMaxElements; ++i) {
        const std::uint32_t size = reader.u32();
        if (size == 0xffffffff) continue;  // NULL
        const Bytes element = reader.take(size);
        if (!reader.ok()) break;  // cut at kMaxText
        out.push_back({element, type});
    }
    return true;
}

// Of the size of an integer, with a first byte that no text begins with: a larger one than the value needs, or one of two
// bytes that begins with a control character.
bool must_be_integer(Bytes bytes) noexcept {
    if (bytes.size() == 4 || bytes.size() == 8) return bytes[0] == 0x00 || bytes[0] == 0xFF;
    return bytes.size() == 2 &&
           ((bytes[0] < ' ' && bytes[0] != '\t' && bytes[0] != '\n' && bytes[0] != '\r') || bytes[0] == 0xFF);
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
        case Oid::int2_array:
        case Oid::int4_array:
        case Oid::int8_array:
        case Oid::text_array:
        case Oid::varchar_array:
        case Oid::bpchar_array:
        case Oid::uuid_array:
            return ValueType::array;
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
        case ValueType::unknown:
            return must_be_integer(bytes) ? binary_integer(bytes, scratch) : Value{};
        case ValueType::skipped:
        case ValueType::array:
        case ValueType::numeric:
            return {};
    }
    return {};
}

bool read_array(Bytes bytes, bool binary, ValueType type, std::vector<Element>& out) {
    out.clear();
    if (type != ValueType::array && (binary || type != ValueType::unknown)) return false;
    return binary ? binary_array(bytes, out) : text_array(as_text(bytes), out);
}

}  // namespace tapscope::postgres
