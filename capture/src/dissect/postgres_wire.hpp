// PostgreSQL frontend/backend protocol, version 3: https://www.postgresql.org/docs/current/protocol-message-formats.html
//
//     message         type u8 | length u32 (big endian, itself included, the type not) | body
//     first message   length u32 | code u32 (protocol version, or one of the requests below) | body
//
// One byte (S, N or G) answers a request for encryption. Everything else is typed messages in both directions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "bytes.hpp"
#include "dissect/dissector.hpp"

namespace tapscope::postgres {

inline constexpr std::size_t kHeader = 5;                // type and length
inline constexpr std::size_t kStartupHeader = 8;         // length and code
inline constexpr std::uint32_t kMaxLength = 0x3fffffff;  // PQ_LARGE_MESSAGE_LIMIT of the server: 1 GB
inline constexpr std::uint32_t kMaxStartup = 10000;      // MAX_STARTUP_PACKET_LENGTH

// Codes in place of a protocol version.
inline constexpr std::uint32_t kCancelRequest = 80877102, kSslRequest = 80877103, kGssRequest = 80877104;
inline constexpr std::uint32_t kMajor3 = 3;

// Messages of the client.
namespace client {
inline constexpr char bind = 'B', close = 'C', copy_data = 'd', copy_done = 'c', copy_fail = 'f',
                      describe = 'D', execute = 'E', flush = 'H', function_call = 'F', parse = 'P',
                      password = 'p', query = 'Q', sync = 'S', terminate = 'X';
}

// Messages of the server.
namespace server {
inline constexpr char authentication = 'R', backend_key_data = 'K', bind_complete = '2', close_complete = '3',
                      command_complete = 'C', copy_both = 'W', copy_data = 'd', copy_done = 'c',
                      copy_in = 'G', copy_out = 'H', data_row = 'D', empty_query = 'I', error = 'E',
                      function_result = 'V', negotiate_version = 'v', no_data = 'n', notice = 'N',
                      notification = 'A', parameter_description = 't', parameter_status = 'S',
                      parse_complete = '1', portal_suspended = 's', ready = 'Z', row_description = 'T';
}

// Types by their number in pg_type.dat that are read in binary format, or whose text is a number.
enum class Oid : std::uint32_t {
    unspecified = 0,
    bytea = 17,
    name = 19,
    int8 = 20,
    int2 = 21,
    int4 = 23,
    text = 25,
    oid = 26,
    json = 114,
    float4 = 700,
    float8 = 701,
    unknown = 705,
    bpchar = 1042,
    varchar = 1043,
    numeric = 1700,
    uuid = 2950,
    int2_array = 1005,
    int4_array = 1007,
    text_array = 1009,
    bpchar_array = 1014,
    varchar_array = 1015,
    int8_array = 1016,
    uuid_array = 2951,
};

// Reads a message's body; sticky: after the first short read everything is empty and ok() is false.
class Reader {
public:
    explicit Reader(Bytes bytes) noexcept : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

    bool ok() const noexcept { return ok_; }
    std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
    std::uint8_t u8() noexcept { return need(1) ? *at_++ : std::uint8_t{0}; }
    std::uint16_t u16() noexcept {
        if (!need(2)) return 0;
        at_ += 2;
        return load_be16(at_ - 2);
    }
    std::uint32_t u32() noexcept {
        if (!need(4)) return 0;
        at_ += 4;
        return load_be32(at_ - 4);
    }
    Bytes take(std::size_t n) noexcept {
        if (!need(n)) return {};
        at_ += n;
        return {at_ - n, n};
    }
    // Text up to its NUL, which is taken, too.
    std::string_view text() noexcept {
        const void* nul = ok_ && at_ < end_ ? std::memchr(at_, 0, left()) : nullptr;
        if (nul == nullptr) {
            ok_ = false;
            return {};
        }
        const auto* begin = reinterpret_cast<const char*>(at_);
        const auto size = static_cast<std::size_t>(static_cast<const char*>(nul) - begin);
        at_ += size + 1;
        return {begin, size};
    }

private:
    bool need(std::size_t n) noexcept {
        if (ok_ && n <= left()) return true;
        ok_ = false;
        return false;
    }

    const std::uint8_t* at_;
    const std::uint8_t* end_;
    bool ok_ = true;
};

// Can a message of this type have this length? Types that are none of that side's have none.
bool plausible_length(Direction direction, char type, std::uint32_t length) noexcept;

// Does the message at the start of `bytes` have the shape of its type, as far as it is there? The header is.
bool plausible_message(Direction direction, Bytes bytes) noexcept;

// Is `bytes`, the first of a connection, one of the messages without a type?
Probe starts_connection(Bytes bytes) noexcept;

// Are `bytes`, the first of a segment of the server, the request of a login and no more? It says little to a chain.
bool asks_for_login(Bytes bytes) noexcept;

// Where a chain of messages starts in `bytes`, at or behind `from`; bytes.size() when there is none. A chain counts
// when it has three messages, or ends with the bytes and is not a lone message that says little.
std::size_t find_chain(Direction direction, Bytes bytes, std::size_t from, bool only_at_start) noexcept;

}  // namespace tapscope::postgres
