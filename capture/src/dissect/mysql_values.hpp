// Values of the binary protocol as text, so that a bound integer 7 gives the same evidence as a literal 7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mysql_wire.hpp"

namespace tapscope::mysql {

inline constexpr std::uint16_t kUnsigned = 0x8000;  // bit of a parameter type
inline constexpr std::size_t kMaxValueText = 64;    // numbers and times; strings stay where they are

inline constexpr std::size_t kMaxTokenText = 4096;  // longer values of a request give no token

// In two words, so that it is returned in registers: through memory it would be written in parts and read in words wider
// than those, for which the processor waits until the parts have reached the cache.
class Value {
public:
    enum class Kind : std::uint8_t { none, number, text };
    Value() = default;
    Value(Kind kind, std::string_view text) noexcept
        : text_(text.data()), size_and_kind_(text.size() << 2 | static_cast<std::uint64_t>(kind)) {}
    Kind kind() const noexcept { return static_cast<Kind>(size_and_kind_ & 3); }
    // Points into the payload or into the buffer given.
    std::string_view text() const noexcept { return {text_, size_and_kind_ >> 2}; }

private:
    const char* text_ = nullptr;
    std::uint64_t size_and_kind_ = 0;
};

// Reads one value of type `type` (low byte: Type, bit 15: unsigned). Numbers come in canonical decimal text, times as
// 'YYYY-MM-DD[ HH:MM:SS[.ffffff]]' and '[-]HHH:MM:SS[.ffffff]'. A type that cannot be sized turns the reader bad.
Value read_binary_value(Reader& reader, std::uint16_t type, char (&buffer)[kMaxValueText]);

// Passes over a value without making a text of it.
void skip_binary_value(Reader& reader, std::uint8_t type) noexcept;

// Whether a byte is one of the types.
constexpr bool is_type(std::uint8_t type) noexcept {
    return type <= static_cast<std::uint8_t>(Type::bit) || type >= static_cast<std::uint8_t>(Type::json);
}

// Integer and string columns: what result tokens are taken from.
constexpr bool is_token_type(std::uint8_t type) noexcept {
    switch (static_cast<Type>(type)) {
        case Type::tiny:
        case Type::short_:
        case Type::long_:
        case Type::longlong:
        case Type::int24:
        case Type::year:
        case Type::varchar:
        case Type::enum_:
        case Type::set:
        case Type::tiny_blob:
        case Type::medium_blob:
        case Type::long_blob:
        case Type::blob:
        case Type::var_string:
        case Type::string:
            return true;
        default:
            return false;
    }
}

}  // namespace tapscope::mysql
