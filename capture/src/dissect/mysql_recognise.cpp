// What client bytes must look like to be taken for MySQL when the start of the connection was not seen.
#include <algorithm>

#include "mysql.hpp"

namespace tapscope {

using namespace mysql;

// Do these bytes, the first of a segment, start a command? Judged by header, command byte and the shape of each
// command; of a longer command its beginning is enough.
bool MysqlDissector::plausible_command(Bytes bytes) noexcept {
    if (bytes.size() < kHeader + 1 || bytes[3] != 0) return false;
    const std::uint32_t length = load_le24(bytes.data());
    const std::uint8_t command = bytes[kHeader];
    const std::size_t whole = kHeader + length;
    const Bytes body =
        bytes.subspan(kHeader + 1, std::min<std::size_t>(bytes.size(), whole) - std::min(whole, kHeader + 1));
    if (length == 0) return false;
    // Only the client pipelines: what follows a complete command must look like one, too.
    if (bytes.size() > whole && (bytes.size() < whole + kHeader + 1 || bytes[whole + 3] != 0)) {
        if (length != kMaxPayload) return false;
    }
    switch (static_cast<Command>(command)) {
        case Command::quit:
        case Command::statistics:
        case Command::process_info:
        case Command::debug:
        case Command::ping:
        case Command::reset_connection:
            return length == 1;
        case Command::set_option:
            return length == 3;
        case Command::stmt_close:
        case Command::stmt_reset:
            return length == 5;
        case Command::stmt_fetch:
            return length == 9;
        case Command::process_kill:
            return length == 5;
        case Command::stmt_send_long_data:
            return length >= 7;
        case Command::stmt_execute:
            if (length < 10 || length > (1u << 24)) return false;
            return body.size() < 9 || (load_le32(body.data() + 5) == 1 && (body[4] & 0xF0) == 0);
        case Command::stmt_bulk_execute:
            return length >= 7;
        case Command::query:
        case Command::stmt_prepare:
        case Command::init_db:
        case Command::create_db:
        case Command::drop_db: {
            if (length < 2) return false;
            std::size_t from = 0;
            if (command == static_cast<std::uint8_t>(Command::query) && body.size() >= 2 && body[0] < 9 &&
                body[1] == 1) {
                from = body[0] == 0 ? 2 : body.size();  // query attributes in front
            }
            for (std::size_t i = from; i < body.size() && i < from + 32; ++i) {
                if (body[i] < 0x20 && body[i] != '\t' && body[i] != '\n' && body[i] != '\r') return false;
            }
            return true;
        }
        case Command::change_user:
            return length > 4 && length < 4096;
        case Command::field_list:  // whole: its first five bytes may be a CopyDone of PostgreSQL
            return length > 2 && length < 1024 && bytes.size() >= whole;
        case Command::binlog_dump:
        case Command::binlog_dump_gtid:
        case Command::register_slave:
            return length >= 10 && length < 65536;
        default:
            return false;
    }
}

bool MysqlDissector::plausible_compressed(Bytes bytes) noexcept {
    if (bytes.size() < kCompressedHeader + 2 || bytes[3] != 0) return false;
    const std::uint32_t compressed = load_le24(bytes.data());
    const std::uint32_t uncompressed = load_le24(bytes.data() + 4);
    if (bytes.size() != kCompressedHeader + compressed) return false;
    const Bytes data = bytes.subspan(kCompressedHeader);
    if (uncompressed == 0) return data.size() >= kHeader + 1 && plausible_command(data);
    if (uncompressed < compressed) return false;
    const bool zlib = (data[0] & 0x0F) == 8 && (data[0] * 256 + data[1]) % 31 == 0;
    const bool zstd = data.size() >= 4 && load_le32(data.data()) == 0xFD2FB528;
    return zlib || zstd;
}

// The header of a compressed packet and no more: stored, or longer than its data.
bool MysqlDissector::compressed_header(Bytes bytes) noexcept {
    if (bytes.size() != kCompressedHeader || bytes[3] != 0 || load_le24(bytes.data()) <= kHeader)
        return false;
    const std::uint32_t uncompressed = load_le24(bytes.data() + 4);
    return uncompressed == 0 || uncompressed > load_le24(bytes.data());
}

// The client's answer to a greeting: HandshakeResponse41, or SSLRequest.
bool MysqlDissector::plausible_login(Bytes bytes) noexcept {
    if (bytes.size() < kHeader + 32 || bytes[3] == 0 || bytes[3] > 2) return false;
    const std::uint32_t length = load_le24(bytes.data());
    if (length < 32 || length > 65535) return false;
    const std::uint8_t* p = bytes.data() + kHeader;
    if ((load_le32(p) & client::protocol_41) == 0) return false;
    return std::all_of(p + 9, p + 9 + 19, [](std::uint8_t c) { return c == 0; });
}

}  // namespace tapscope
