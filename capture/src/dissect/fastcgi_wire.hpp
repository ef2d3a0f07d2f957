// Records of FastCGI.
#pragma once

#include <cstdint>
#include <string_view>

#include "bytes.hpp"
#include "dissect/dissector.hpp"

namespace tapscope::fastcgi {

enum class Type : std::uint8_t {
    begin_request = 1,
    abort_request = 2,
    end_request = 3,
    params = 4,
    stdin_ = 5,
    stdout_ = 6,
    stderr_ = 7,
    data = 8,
    get_values = 9,
    get_values_result = 10,
    unknown_type = 11,
};

inline constexpr std::size_t kHeader = 8;
inline constexpr std::size_t kFixedBody = 8;  // of BEGIN_REQUEST, END_REQUEST and UNKNOWN_TYPE
inline constexpr std::uint8_t kResponder = 1, kAuthorizer = 2, kFilter = 3;

inline Type type_of(Bytes record) noexcept { return static_cast<Type>(record[1]); }
inline std::uint16_t id_of(Bytes record) noexcept { return load_be16(&record[2]); }
inline std::uint16_t length_of(Bytes record) noexcept { return load_be16(&record[4]); }
inline std::size_t size_of(Bytes record) noexcept { return kHeader + length_of(record) + record[6]; }

// `lower` is in lower case.
inline bool starts_folded(std::string_view text, std::string_view lower) noexcept {
    if (text.size() < lower.size()) return false;
    for (std::size_t i = 0; i < lower.size(); ++i)
        if ((text[i] | 0x20) != lower[i]) return false;
    return true;
}

inline constexpr std::size_t kMaxParams = 64 * 1024;
inline constexpr std::size_t kFormBytes = 8 * 1024;
inline constexpr std::size_t kMaxHead = 4096;  // bytes of a STDOUT record searched for the CGI head

// A record header that `direction` may carry; `record` has it, and as much of the content as is at hand.
bool plausible(Direction direction, Bytes record) noexcept;

// Where records follow each other from, at or behind `from`; bytes.size() when nowhere. Three records, or up to the end.
std::size_t find_chain(Direction direction, Bytes bytes, std::size_t from, bool only_at_start) noexcept;

}  // namespace tapscope::fastcgi
