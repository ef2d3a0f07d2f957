// State of a PostgreSQL connection that framing alone does not need.
#pragma once

#include <cstdint>
#include <string>

#include "dissect/dissector.hpp"
#include "dissect/postgres_statements.hpp"
#include "dissect/sql_strings.hpp"

namespace tapscope::postgres {

// Tag of a request: what its kind is as far as known when it begins, and its serial number.
inline constexpr std::uint32_t tag_of(std::uint32_t serial, UnitKind kind) noexcept {
    return serial << 4 | static_cast<std::uint32_t>(kind);
}
inline constexpr std::uint32_t serial_of(std::uint32_t tag) noexcept { return tag >> 4; }
inline constexpr UnitKind kind_of(std::uint32_t tag) noexcept { return static_cast<UnitKind>(tag & 15); }
inline constexpr std::uint32_t kSerialMask = 0x0fffffff;

struct Session {
    StatementTable statements;
    PortalTable portals;
    UnitRing units;

    // The request being read.
    RequestUnit unit;
    const char* prefix = nullptr;  // of its class, when it has no Execute: "PREPARE ", ...
    std::uint32_t serial = 0;
    std::uint32_t group = 1;
    bool command_since_loss = false;  // a request began after bytes to the client were lost
    bool request_lost = false;        // bytes of the client were lost, and no ReadyForQuery was seen since
    bool extended = false;            // no message of the client was seen: its protocol, up to ReadyForQuery
    bool bound = false;               // the same: the answer being read has a BindComplete
    bool copying = false;             // an Execute is COPY FROM STDIN, and its data have begun
    bool streams = false;             // the last query was START_REPLICATION
    bool orphan_tail = false;         // the rest of an answer whose request was not seen is being passed over

    SqlStrings strings;  // as the server's parameters have it

    // The answer being read, or the last one.
    RequestUnit answered;
    bool formats_given = false;  // by RowDescription of a simple query; else by Bind
    std::uint32_t closes_seen = 0;
    MessageRef last_answer = kNoMessage;
    std::uint16_t columns = 0;
    std::uint8_t rows_seen = 0;
    std::uint8_t tokens = 0;
    std::uint32_t binary = 0;
    ValueType column_type[kTokenColumns] = {};
    bool naming = false;             // it tells what its statement is, whose text was not seen:
    std::string column_names;        // names of columns so far,
    std::uint16_t column_count = 0;  // and their number
    std::uint32_t stale = 0;         // ReadyForQuery that may still come for requests that were given up
};

}  // namespace tapscope::postgres
