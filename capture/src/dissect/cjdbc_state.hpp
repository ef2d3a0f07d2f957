// What the parts of CjdbcDissector share about one connection.
#pragma once

#include <string>
#include <vector>

#include "dissect/cjdbc.hpp"

namespace tapscope {

// A STR that is being read. `value` has its first `limit` bytes as they stand on the wire.
struct CjdbcDissector::Text {
    enum class Phase : std::uint8_t { start, units, chunk_size, chunk };
    Phase phase = Phase::start;
    bool null = false;
    bool cut = false;
    std::uint32_t units_left = 0;
    std::uint32_t chunk_left = 0;
    std::size_t limit = 0;
    std::string value;
};

struct CjdbcDissector::Side {
    enum class Where : std::uint8_t {
        between,  // messages
        inside,   // at a field of `message`
        blind,    // inside `message`, at no known field: it ends when the other side speaks
        lost,     // in no message, at no known field
    };
    Where where = Where::between;
    MessageRef message = kNoMessage;
    const char* op = "";       // the field that comes next
    std::uint32_t left = 0;    // repetitions of the group that `op` is in, this one included
    std::uint32_t repeat = 0;  // the same of the field at `op`
    Text text;
};

struct CjdbcDissector::State {
    struct OpenCursor {
        std::uint64_t name = 0;  // hash
        std::int32_t fetch_class = kNoClass;
        std::vector<cjdbc::Type> types;
    };
    static constexpr std::size_t kMaxCursors = 32;  // the oldest makes room
    static constexpr std::uint32_t kAnyRows = ~0u;

    enum class Mode : std::uint8_t { unknown, cjdbc, sequoia, object_stream };
    Mode mode = Mode::unknown;
    bool fresh = true;  // nothing of the client was seen
    Side sides[2];

    // The command that the client sent last.
    const cjdbc::CommandInfo* command = nullptr;
    std::uint32_t write_kind = 0;
    std::int32_t command_class = kNoClass;
    MessageRef login = kNoMessage;
    std::uint64_t cursor_asked = 0;  // hash of the name in FetchNext and Close
    std::string sql;                 // its text, when it came in pieces or had to be changed

    // The answer that the controller is giving.
    const cjdbc::CommandInfo* answered = nullptr;
    bool more = false;
    std::uint32_t depth = 0;  // of causes
    std::uint32_t columns = 0;
    std::uint32_t column = 0;  // the next one
    std::uint32_t rows = 0, rows_left = 0;
    std::uint32_t tokens = 0, rows_shown = 0;
    std::uint64_t cursor_name = 0;
    std::vector<cjdbc::Type> types;
    std::vector<bool> nulls;

    std::vector<OpenCursor> cursors;
    std::uint32_t prompt = 0;  // Sequoia: the last four bytes of the controller

    Side& side(Direction d) noexcept { return sides[static_cast<unsigned>(d)]; }
    OpenCursor* find_cursor(std::uint64_t name) noexcept {
        for (OpenCursor& cursor : cursors)
            if (cursor.name == name) return &cursor;
        return nullptr;
    }
    void drop_cursor(std::uint64_t name) noexcept {
        std::erase_if(cursors, [&](const OpenCursor& cursor) { return cursor.name == name; });
    }
};

}  // namespace tapscope
