#include "mysql_values.hpp"

#include <bit>
#include <charconv>
#include <cstring>
#include <string>

#include "decimal.hpp"
#include "sql_literal.hpp"

namespace tapscope::mysql {

namespace {

template <class T>
Value number(T value, char (&buffer)[kMaxValueText]) noexcept {
    static_assert(kMaxValueText >= kDecimalRoom);
    return {Value::Kind::number, {buffer, put_decimal(value, buffer)}};
}

template <class T>
[[gnu::noinline]] Value floating(T value, char (&buffer)[kMaxValueText]) {
    const auto result = std::to_chars(buffer, buffer + kMaxValueText, value);
    std::string canonical;
    append_canonical_number({buffer, static_cast<std::size_t>(result.ptr - buffer)}, canonical);
    const std::size_t size = std::min(canonical.size(), kMaxValueText);
    std::memcpy(buffer, canonical.data(), size);
    return {Value::Kind::number, {buffer, size}};
}

// A text of numbers of fixed width and what stands between them, put together in place.
class Print {
public:
    explicit Print(char (&buffer)[kMaxValueText]) noexcept : begin_(buffer), end_(buffer) {}
    Print& put(char c) noexcept {
        *end_++ = c;
        return *this;
    }
    // At least `width` digits.
    Print& put(std::uint64_t value, std::size_t width) noexcept {
        char digits[kDecimalRoom];
        const std::size_t size = put_unsigned(value, digits);
        for (std::size_t i = size; i < width; ++i) put('0');
        std::memcpy(end_, digits, size);
        end_ += size;
        return *this;
    }
    Print& date(unsigned year, unsigned month, unsigned day) noexcept {
        return put(year, 4).put('-').put(month, 2).put('-').put(day, 2);
    }
    // Microseconds only where there are some.
    Print& time(std::uint64_t hours, unsigned minute, unsigned second, unsigned micro) noexcept {
        put(hours, 2).put(':').put(minute, 2).put(':').put(second, 2);
        return micro != 0 ? put('.').put(micro, 6) : *this;
    }
    Value value() const noexcept {
        return {Value::Kind::text, {begin_, static_cast<std::size_t>(end_ - begin_)}};
    }

private:
    char* begin_;
    char* end_;
};

// Length 0, 4 (date), 7 (with time) or 11 (with microseconds).
[[gnu::noinline]] Value date_time(Reader& reader, bool only_date, char (&buffer)[kMaxValueText]) {
    const std::uint8_t size = reader.u8();
    unsigned year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, micro = 0;
    if (size >= 4) {
        year = reader.u16();
        month = reader.u8();
        day = reader.u8();
    }
    if (size >= 7) {
        hour = reader.u8();
        minute = reader.u8();
        second = reader.u8();
    }
    if (size >= 11) micro = reader.u32();
    const std::uint8_t known = size >= 11 ? 11 : size >= 7 ? 7 : size >= 4 ? 4 : 0;
    reader.skip(static_cast<std::uint64_t>(size - known));
    if (!reader.ok()) return {};
    Print out(buffer);
    out.date(year, month, day);
    if (!only_date) out.put(' ').time(hour, minute, second, micro);
    return out.value();
}

// Length 0, 8 or 12 (with microseconds): sign, days, hour, minute, second.
[[gnu::noinline]] Value time_of_day(Reader& reader, char (&buffer)[kMaxValueText]) {
    const std::uint8_t size = reader.u8();
    unsigned negative = 0, minute = 0, second = 0, micro = 0;
    std::uint64_t hours = 0;
    if (size >= 8) {
        negative = reader.u8();
        hours = std::uint64_t{reader.u32()} * 24;
        hours += reader.u8();
        minute = reader.u8();
        second = reader.u8();
    }
    if (size >= 12) micro = reader.u32();
    const std::uint8_t known = size >= 12 ? 12 : size >= 8 ? 8 : 0;
    reader.skip(static_cast<std::uint64_t>(size - known));
    if (!reader.ok()) return {};
    Print out(buffer);
    if (negative != 0) out.put('-');
    return out.time(hours, minute, second, micro).value();
}

}  // namespace

Value read_binary_value(Reader& reader, std::uint16_t type, char (&buffer)[kMaxValueText]) {
    const bool is_unsigned = (type & kUnsigned) != 0;
    Value value;
    switch (static_cast<Type>(type & 0xFF)) {
        case Type::null:
            return {};
        case Type::tiny: {
            const std::uint8_t raw = reader.u8();
            value = is_unsigned ? number(raw, buffer) : number(static_cast<std::int8_t>(raw), buffer);
            break;
        }
        case Type::short_:
        case Type::year: {
            const std::uint16_t raw = reader.u16();
            value = is_unsigned ? number(raw, buffer) : number(static_cast<std::int16_t>(raw), buffer);
            break;
        }
        case Type::long_:
        case Type::int24: {
            const std::uint32_t raw = reader.u32();
            value = is_unsigned ? number(raw, buffer) : number(static_cast<std::int32_t>(raw), buffer);
            break;
        }
        case Type::longlong: {
            const std::uint64_t raw = reader.u64();
            value = is_unsigned ? number(raw, buffer) : number(static_cast<std::int64_t>(raw), buffer);
            break;
        }
        case Type::float_:
            value = floating(std::bit_cast<float>(reader.u32()), buffer);
            break;
        case Type::double_:
            value = floating(std::bit_cast<double>(reader.u64()), buffer);
            break;
        case Type::date:
        case Type::newdate:
            value = date_time(reader, true, buffer);
            break;
        case Type::timestamp:
        case Type::datetime:
            value = date_time(reader, false, buffer);
            break;
        case Type::time:
            value = time_of_day(reader, buffer);
            break;
        default: {
            const Bytes bytes = reader.lenenc_string();
            const bool decimal = static_cast<Type>(type & 0xFF) == Type::newdecimal;
            value = {decimal ? Value::Kind::number : Value::Kind::text,
                     {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
        }
    }
    return reader.ok() ? value : Value{};
}

void skip_binary_value(Reader& reader, std::uint8_t type) noexcept {
    switch (static_cast<Type>(type)) {
        case Type::null:
            return;
        case Type::tiny:
            return reader.skip(1);
        case Type::short_:
        case Type::year:
            return reader.skip(2);
        case Type::long_:
        case Type::int24:
        case Type::float_:
            return reader.skip(4);
        case Type::longlong:
        case Type::double_:
            return reader.skip(8);
        case Type::date:
        case Type::newdate:
        case Type::timestamp:
        case Type::datetime:
        case Type::time:
            return reader.skip(reader.u8());
        default:
            reader.lenenc_string();
    }
}

}  // namespace tapscope::mysql
