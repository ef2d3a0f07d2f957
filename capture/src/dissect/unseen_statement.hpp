// The class of a prepared statement whose text was not seen, mostly as it was prepared before the capture began: what its
// executions bind, and what its answers return.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tapscope::unseen {

inline constexpr std::string_view kExecution = "EXECUTE (text unseen)";  // as long as no answer told
inline constexpr std::size_t kLongest = 240;  // bytes of the names of columns; then "..."

// "1 column", "2 columns".
inline void append_count(std::string& out, std::uint32_t count, std::string_view what) {
    out.append(std::to_string(count)).append(1, ' ').append(what);
    if (count != 1) out += 's';
}

// A name off the wire.
inline void append_name(std::string& out, std::string_view name) {
    for (const char c : name) out += static_cast<unsigned char>(c) < ' ' || c == 0x7F ? '?' : c;
}

// The class up to what is returned: "EXECUTE (text unseen, 2 parameters): ".
inline void begin_class(std::string& out, std::optional<std::uint32_t> parameters) {
    out.assign(kExecution);
    if (parameters) {
        out.back() = ',';
        append_count(out += ' ', *parameters, "parameter");
        out += ')';
    }
    out += ": ";
}

}  // namespace tapscope::unseen
