// Values of parameters and columns in PostgreSQL's text and binary formats, as canonical text for tokens.
// https://www.postgresql.org/docs/current/protocol-overview.html#PROTOCOL-FORMAT-CODES
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dissect/postgres_statements.hpp"
#include "dissect/postgres_wire.hpp"

namespace tapscope::postgres {

ValueType type_of(std::uint32_t oid) noexcept;

struct Value {
    enum class Kind : std::uint8_t { none, number, text } kind = Kind::none;
    std::string_view text;  // points into the message or into `scratch`
};

// `bytes` is not NULL. Binary values of a type that is not read give none.
Value read_value(Bytes bytes, bool binary, ValueType type, std::string& scratch);

struct Element {
    Bytes bytes;  // in the format of the array
    ValueType type = ValueType::unknown;
};
inline constexpr std::size_t kMaxElements = 32;

// The first elements of an array of one dimension that are not NULL, into `out`. False where it is no such array; a text
// of unknown type is one when it is written like one.
bool read_array(Bytes bytes, bool binary, ValueType type, std::vector<Element>& out);

}  // namespace tapscope::postgres
