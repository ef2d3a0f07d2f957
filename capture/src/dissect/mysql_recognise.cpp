// What bytes must look like to be taken for MySQL, or for its compressed protocol, when the start was not seen.
#include <algorithm>

#include "mysql.hpp"
#include "mysql_compression.hpp"

namespace tapscope {

using namespace mysql;

namespace {

constexpr std::size_t kShown = 8;  // bytes of a text that must be there, where a segment begins

bool text(Bytes bytes) noexcept {
    return std::none_of(bytes.begin(), bytes.end(),
                        [](std::uint8_t c) { return c < 0x20 && c != '\t' && c != '\n' && c != '\r'; });
}

// Servers number statements from 1 in each session; MariaDB's -1 is the one prepared last.
bool likely_statement(Bytes body) noexcept {
    const std::uint32_t id = load_le32(body.data());
    return id < (1u << 24) || id == 0xFFFFFFFF;
}

// Has a command that begins with `body`, behind its first byte, this shape? `length` is its whole payload's; a text
// that is not all there must show `shown` bytes.
bool shaped(Command command, std::uint32_t length, Bytes body, std::size_t shown) noexcept {
    const bool whole = body.size() + 1 == length;
    switch (command) {
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
        case Command::stmt_send_long_data:  // statement, parameter: few of both
            return length >= 7 && body.size() >= 6 && likely_statement(body) && body[5] == 0;
        case Command::stmt_execute:
            return length >= 10 && body.size() >= 9 && load_le32(body.data() + 5) == 1 &&
                   (body[4] & 0xF0) == 0;
        case Command::stmt_bulk_execute:  // statement, flags: 64 and 128
            return length >= 7 && body.size() >= 6 && likely_statement(body) && (body[4] & 0x3F) == 0 &&
                   body[5] == 0;
        case Command::query:
        case Command::stmt_prepare:
        case Command::init_db:
        case Command::create_db:
        case Command::drop_db: {
            if (length < 2 || (!whole && body.size() < shown)) return false;
            std::size_t from = 0;
            if (command == Command::query && body.size() >= 2 && body[0] < 9 && body[1] == 1)
                from = body[0] == 0 ? 2 : body.size();  // query attributes in front
            return text(body.subspan(from, std::min<std::size_t>(body.size() - from, 32)));
        }
        case Command::change_user: {  // user, NUL, ...
            const auto nul = std::find(body.begin(), body.end(), 0);
            return whole && length > 4 && length < 4096 && nul != body.end() &&
                   text(body.first(static_cast<std::size_t>(nul - body.begin())));
        }
        case Command::field_list:  // whole: its first five bytes may be a CopyDone of PostgreSQL
            return whole && length > 2 && length < 1024;
        case Command::binlog_dump:
        case Command::binlog_dump_gtid:
        case Command::register_slave:
            return whole && length >= 10;
        default:
            return false;
    }
}

}  // namespace

// Do these bytes, the first of a segment, start a command? Judged by header, command byte and the shape of each
// command; of a longer command its beginning is enough.
bool MysqlDissector::plausible_command(Bytes bytes) noexcept {
    // Only the client pipelines: what follows a complete command must look like one, too.
    for (unsigned commands = 0; commands < 3; ++commands) {
        if (bytes.size() < kHeader + 1 || bytes[3] != 0) return false;
        const std::uint32_t length = load_le24(bytes.data());
        if (length == 0) return false;
        const Bytes payload = bytes.subspan(kHeader, std::min<std::size_t>(bytes.size() - kHeader, length));
        const std::size_t shown = commands == 0 ? kShown : 0;
        if (!shaped(static_cast<Command>(payload[0]), length, payload.subspan(1), shown)) return false;
        if (bytes.size() <= kHeader + length || length == kMaxPayload) return true;
        bytes = bytes.subspan(kHeader + length);
    }
    return true;
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
