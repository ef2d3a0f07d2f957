// What bytes must look like to be taken for MySQL, or for its compressed protocol, when the start was not seen.
#include <algorithm>

#include "mysql.hpp"
#include "mysql_compression.hpp"

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
    const bool zstd = data.size() >= 4 && load_le32(data.data()) == kZstdMagic;
    return zlib || zstd;
}

// The header of a compressed packet and no more: stored, or longer than its data.
bool MysqlDissector::compressed_header(Bytes bytes) noexcept {
    if (bytes.size() != kCompressedHeader || bytes[3] != 0 || load_le24(bytes.data()) <= kHeader)
        return false;
    const std::uint32_t uncompressed = load_le24(bytes.data() + 4);
    return uncompressed == 0 || uncompressed > load_le24(bytes.data());
}

// Do these bytes, the first of a segment, begin a compressed answer? By what is inside: the first packet of an answer,
// numbered 1, that fills its place. Of packets that are not compressed an OK comes nearest: its status would have to be
// its length less 4, its warnings 256, and its text no text.
Probe MysqlDissector::compressed_answer(Bytes bytes, std::uint32_t server_caps) noexcept {
    constexpr std::size_t kInner = kHeader + 1;  // the least that is looked at
    constexpr std::uint32_t kOffered = client::compress | client::zstd_compression;
    if (server_caps != 0 && (server_caps & kOffered) == 0) return Probe::no;
    if (bytes.size() < kHeader) return Probe::need_more;
    const std::uint32_t length = load_le24(bytes.data());
    if (bytes[3] != 1 || length < kInner) return Probe::no;
    // A whole packet that is not compressed is not made to wait.
    const Probe shorter = bytes.size() < kHeader + length ? Probe::need_more : Probe::no;
    if (bytes.size() < kCompressedHeader + 4) return shorter;
    const std::uint32_t uncompressed = load_le24(&bytes[4]);
    const std::size_t room = uncompressed > 0 ? uncompressed : length;
    Bytes inner = bytes.subspan(kCompressedHeader);
    inner = inner.first(std::min<std::size_t>(inner.size(), length));
    std::uint8_t begin[64];
    if (uncompressed > 0) {
        const bool zlib = (inner[0] & 0x0F) == 8 && (inner[0] * 256 + inner[1]) % 31 == 0;
        if (uncompressed < length || (!zlib && load_le32(inner.data()) != kZstdMagic)) return Probe::no;
        Decompressor decompressor;
        std::size_t consumed = 0, produced = 0;
        if (!decompressor.start(inner) ||
            !decompressor.step(inner, consumed, begin, std::min(sizeof begin, room), produced))
            return Probe::no;
        inner = {begin, produced};
    }
    if (inner.size() < kInner) return shorter;
    const std::size_t first = kHeader + load_le24(inner.data());
    if (inner[3] != 1 || first > room || !opens_answer(inner)) return Probe::no;
    if (first == room) return Probe::yes;
    if (inner.size() < first + kHeader) return inner.size() == sizeof begin ? Probe::yes : shorter;
    const std::size_t second = kHeader + load_le24(&inner[first]);
    return inner[first + 3] == 2 && first + second <= room ? Probe::yes : Probe::no;
}

// A packet that may open an answer: OK, ERR, EOF, LOCAL INFILE or a column count.
bool MysqlDissector::opens_answer(Bytes packet) noexcept {
    if (packet.size() < kHeader + 1) return false;
    const std::uint32_t length = load_le24(packet.data());
    switch (const std::uint8_t first = packet[kHeader]) {
        case 0x00:
            return length >= 7 && length < 0x10000;
        case 0xFF:
            return length >= 3 && length < 0x1000;
        case 0xFE:
            return length < 0x10000;
        case 0xFB:
            return length >= 2 && length < 0x1000;
        case 0xFC:
            return length == 3 || length == 4;
        default:
            return first < 0xFB && length <= 2;
    }
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
