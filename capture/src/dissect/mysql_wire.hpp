// Constants and primitive types of the MySQL and MariaDB client protocol, under the names the specifications use.
//
// https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html
// https://mariadb.com/docs/server/reference/clientserver-protocol
//
//   packet:  | payload length u24 | sequence u8 | payload ...      all integers little endian
//   a payload of 0xFFFFFF bytes goes on in the next packet
//   compressed outer packet:  | compressed length u24 | sequence u8 | uncompressed length u24 (0: stored) | data ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../bytes.hpp"
#include "dissector.hpp"

namespace tapscope::mysql {

inline constexpr std::size_t kHeader = 4;
inline constexpr std::size_t kCompressedHeader = 7;
inline constexpr std::uint32_t kMaxPayload = 0xFFFFFF;
inline constexpr std::uint32_t kZstdMagic = 0xFD2FB528;  // little endian

// Packets of an answer by their first byte. NULL in a text row is the byte of LOCAL INFILE.
inline constexpr std::uint8_t kOk = 0x00, kAuthMore = 0x01, kAuthNextFactor = 0x02, kLocalInfile = 0xFB,
                              kEof = 0xFE, kErr = 0xFF;
inline constexpr std::size_t kTerminator = 9;    // EOF is shorter than this
inline constexpr std::size_t kRowPrefix = 1024;  // bytes of a row that are looked at
inline constexpr std::uint8_t kTypeUnknown = 0xFF;
inline constexpr std::uint32_t kLastPrepared = 0xFFFFFFFF;  // MariaDB: the statement that was prepared last

struct PacketHeader {
    std::uint32_t length;
    std::uint8_t seq;
};
inline PacketHeader read_header(const std::uint8_t* p) noexcept {
    const std::uint32_t word = load_le32(p);
    return {word & kMaxPayload, static_cast<std::uint8_t>(word >> 24)};
}

inline std::uint32_t load_le24(const std::uint8_t* p) noexcept {
    return static_cast<std::uint32_t>(p[0]) | static_cast<std::uint32_t>(p[1]) << 8 |
           static_cast<std::uint32_t>(p[2]) << 16;
}

enum class Command : std::uint8_t {
    sleep = 0x00,
    quit = 0x01,
    init_db = 0x02,
    query = 0x03,
    field_list = 0x04,
    create_db = 0x05,
    drop_db = 0x06,
    refresh = 0x07,
    shutdown = 0x08,
    statistics = 0x09,
    process_info = 0x0A,
    connect = 0x0B,
    process_kill = 0x0C,
    debug = 0x0D,
    ping = 0x0E,
    time = 0x0F,
    delayed_insert = 0x10,
    change_user = 0x11,
    binlog_dump = 0x12,
    table_dump = 0x13,
    connect_out = 0x14,
    register_slave = 0x15,
    stmt_prepare = 0x16,
    stmt_execute = 0x17,
    stmt_send_long_data = 0x18,
    stmt_close = 0x19,
    stmt_reset = 0x1A,
    set_option = 0x1B,
    stmt_fetch = 0x1C,
    daemon = 0x1D,
    binlog_dump_gtid = 0x1E,
    reset_connection = 0x1F,
    clone = 0x20,
    login = 0xE0,    // ours: the client's answer to the greeting, which has no command byte
    unknown = 0xEF,  // ours: answer to a command that was not seen
    stmt_bulk_execute = 0xFA,
};

// nullptr for a byte that is no command.
inline const char* command_name(std::uint8_t command) noexcept {
    static constexpr const char* names[] = {"SLEEP",
                                            "QUIT",
                                            "INIT_DB",
                                            "QUERY",
                                            "FIELD_LIST",
                                            "CREATE_DB",
                                            "DROP_DB",
                                            "REFRESH",
                                            "SHUTDOWN",
                                            "STATISTICS",
                                            "PROCESS_INFO",
                                            "CONNECT",
                                            "PROCESS_KILL",
                                            "DEBUG",
                                            "PING",
                                            "TIME",
                                            "DELAYED_INSERT",
                                            "CHANGE_USER",
                                            "BINLOG_DUMP",
                                            "TABLE_DUMP",
                                            "CONNECT_OUT",
                                            "REGISTER_SLAVE",
                                            "PREPARE",
                                            "EXECUTE",
                                            "SEND_LONG_DATA",
                                            "STMT_CLOSE",
                                            "STMT_RESET",
                                            "SET_OPTION",
                                            "STMT_FETCH",
                                            "DAEMON",
                                            "BINLOG_DUMP_GTID",
                                            "RESET_CONNECTION",
                                            "CLONE"};
    if (command < sizeof names / sizeof *names) return names[command];
    switch (command) {
        case 0xE0:
            return "LOGIN";
        case 0xFA:
            return "BULK_EXECUTE";
        case 0xFB:
            return "SLAVE_WORKER";
        case 0xFC:
            return "SLAVE_IO";
        case 0xFD:
            return "SLAVE_SQL";
        case 0xFE:
            return "MULTI";
        default:
            return nullptr;
    }
}

// CLIENT_* bits that change framing or meaning.
namespace client {
inline constexpr std::uint32_t mysql = 0x1, connect_with_db = 0x8, compress = 0x20, protocol_41 = 0x200,
                               ssl = 0x800, secure_connection = 0x8000, plugin_auth = 0x80000,
                               deprecate_eof = 0x1000000, optional_resultset_metadata = 0x2000000,
                               zstd_compression = 0x4000000, query_attributes = 0x8000000;
}
// MARIADB_CLIENT_* bits (the upper 32 of the 64).
namespace client_mariadb {
inline constexpr std::uint32_t progress = 0x1, stmt_bulk_operations = 0x4, extended_metadata = 0x8,
                               cache_metadata = 0x10;
}
// SERVER_* bits.
namespace server_status {
inline constexpr std::uint16_t more_results = 0x0008, cursor_exists = 0x0040, no_backslash_escapes = 0x0200;
}

enum class Type : std::uint8_t {
    decimal = 0,
    tiny = 1,
    short_ = 2,
    long_ = 3,
    float_ = 4,
    double_ = 5,
    null = 6,
    timestamp = 7,
    longlong = 8,
    int24 = 9,
    date = 10,
    time = 11,
    datetime = 12,
    year = 13,
    newdate = 14,
    varchar = 15,
    bit = 16,
    json = 245,
    newdecimal = 246,
    enum_ = 247,
    set = 248,
    tiny_blob = 249,
    medium_blob = 250,
    long_blob = 251,
    blob = 252,
    var_string = 253,
    string = 254,
    geometry = 255,
};

// Reads a payload; a short read turns it bad for good and gives zeros.
class Reader {
public:
    explicit Reader(Bytes bytes) noexcept : p_(bytes.data()), end_(bytes.data() + bytes.size()) {}

    bool ok() const noexcept { return ok_; }
    std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - p_); }
    const std::uint8_t* here() const noexcept { return p_; }

    std::uint8_t u8() noexcept { return need(1) ? *p_++ : std::uint8_t{0}; }
    std::uint16_t u16() noexcept { return need(2) ? load_le16((p_ += 2) - 2) : std::uint16_t{0}; }
    std::uint32_t u32() noexcept { return need(4) ? load_le32((p_ += 4) - 4) : 0u; }
    std::uint64_t u64() noexcept { return need(8) ? load_le64((p_ += 8) - 8) : 0u; }

    // lenenc int. 0xFB (NULL) and 0xFF (error marker) are no lengths: the reader turns bad.
    std::uint64_t lenenc() noexcept {
        const std::uint8_t first = u8();
        switch (first) {
            default:
                return first;
            case 0xFC:
                return u16();
            case 0xFD: {
                if (!need(3)) return 0;
                p_ += 3;
                return load_le24(p_ - 3);
            }
            case 0xFE:
                return u64();
            case 0xFB:
            case 0xFF:
                ok_ = false;
                return 0;
        }
    }

    Bytes take(std::uint64_t size) noexcept {
        if (!need(size)) return {};
        p_ += size;
        return {p_ - size, static_cast<std::size_t>(size)};
    }
    void skip(std::uint64_t size) noexcept { take(size); }
    Bytes lenenc_string() noexcept { return take(lenenc()); }

private:
    bool need(std::uint64_t size) noexcept {
        if (ok_ && size <= left()) return true;
        ok_ = false;
        return false;
    }
    const std::uint8_t* p_;
    const std::uint8_t* end_;
    bool ok_ = true;
};

}  // namespace tapscope::mysql
