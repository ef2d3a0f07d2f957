// Does C-JDBC (or Sequoia) start here? Without a magic number: by the codes and the first text behind them.
#include <algorithm>
#include <cstring>

#include "bytes.hpp"
#include "dissect/cjdbc.hpp"
#include "evidence.hpp"

namespace tapscope {

namespace cjdbc {

namespace {

constexpr std::uint32_t kMaxCode = 80;

bool is_printable(std::uint8_t c) noexcept { return c >= 0x20 || c == '\t' || c == '\n' || c == '\r'; }

// A STR with text: yes as soon as its lengths agree and its first characters are text. `wide`: Sequoia's.
Probe looks_like_text(Bytes bytes, bool wide = false) noexcept {
    const std::size_t head = wide ? 9 : 7;
    if (bytes.empty()) return Probe::need_more;
    if (bytes[0] != 1) return Probe::no;
    if (bytes.size() >= 2 && bytes[1] != 0) return Probe::no;
    if (bytes.size() < 5) return Probe::need_more;
    const std::uint32_t units = load_be32(&bytes[1]);
    if (units == 0 || units > kMaxUnits) return Probe::no;
    if (bytes.size() < head) return Probe::need_more;
    const std::uint32_t size = wide ? load_be32(&bytes[5]) : load_be16(&bytes[5]);
    const std::uint32_t first = std::min(units, kChunkUnits);
    if (size < first || size > first * 3) return Probe::no;
    const std::size_t n = std::min<std::size_t>(size, 4);
    const Bytes text = bytes.subspan(head, std::min(bytes.size() - head, n));
    if (!std::all_of(text.begin(), text.end(), is_printable)) return Probe::no;
    return text.size() == n ? Probe::yes : Probe::need_more;
}

Probe starts_with(Bytes bytes, std::string_view pattern) noexcept {
    const std::size_t n = std::min(bytes.size(), pattern.size());
    if (std::memcmp(bytes.data(), pattern.data(), n) != 0) return Probe::no;
    return n == pattern.size() ? Probe::yes : Probe::need_more;
}

}  // namespace

Probe looks_like_client(Bytes bytes) noexcept {
    for (int commands = 0; commands < 8; ++commands) {
        if (bytes.empty()) return Probe::need_more;
        if (bytes.size() < 4) {
            const bool ping = bytes[0] == 0xFF && bytes.back() == 0xFF;
            const bool code = bytes[0] == 0 && (bytes.size() < 3 || bytes[1] == 0);
            return ping || code ? Probe::need_more : Probe::no;
        }
        const std::uint32_t code = load_be32(bytes.data());
        if (code == kPing) return bytes.size() == 4 ? Probe::need_more : Probe::no;
        if (code > kMaxCode) return Probe::no;
        const Bytes rest = bytes.subspan(4);
        const CommandInfo* command = find_command(code);
        if (command == nullptr || code == kVersion) {
            const Probe login = looks_like_text(rest);
            if (login != Probe::no) return login;
            if (command == nullptr) return Probe::no;
        }
        switch (command->arguments[0]) {
            case 0:
                bytes = rest;
                continue;
            case 't':
                if (rest.size() < 4) return Probe::need_more;
                return is_write_kind(load_be32(rest.data())) ? looks_like_text(rest.subspan(4)) : Probe::no;
            case 'i':
                if (rest.size() < 4) return Probe::need_more;
                if (load_be32(rest.data()) > 8) return Probe::no;
                bytes = rest.subspan(4);
                continue;
            case '~': {
                if (rest.empty()) return Probe::need_more;
                if (rest[0] > 1) return Probe::no;
                const std::size_t size = rest[0] == 1 ? 1 : 9;
                if (rest.size() < size) return Probe::need_more;
                bytes = rest.subspan(size);
                continue;
            }
            default:
                // The catalog that metadata is asked for may be null: the answer will tell.
                if (command->arguments[0] == 's' && (rest.empty() || rest[0] == 0)) return Probe::need_more;
                return looks_like_text(rest);
        }
    }
    return Probe::no;
}

Probe looks_like_controller(Bytes bytes) noexcept {
    using namespace std::string_view_literals;
    if (bytes.empty()) return Probe::need_more;
    if (bytes[0] != 1) return Probe::no;
    if (bytes.size() >= 3 && bytes[1] <= 1 &&
        bytes[2] == 1) {  // a login was accepted: a bool, a filter's name
        Probe best = Probe::no;
        for (const std::string_view filter : {"\x01\0\0\0\x04\0\x04none"sv, "\x01\0\0\0\x04\0\x04hexa"sv,
                                              "\x01\0\0\0\x07\0\x07"
                                              "escaped"sv,
                                              "\x01\0\0\0\x06\0\x06"
                                              "base64"sv}) {
            const Probe probe = starts_with(bytes.subspan(2), filter);
            if (probe != Probe::no) best = probe;
        }
        return best;
    }
    Probe best = Probe::no;
    for (const std::string_view tag :
         {"\x01\0\0\0\x02\0\x02OK"sv, "\x01\0\0\0\x0B\0\x0BT-ResultSet"sv,
          "\x01\0\0\0\x0B\0\x0BT-Exception"sv, "\x01\0\0\0\x0E\0\x0Enull ResultSet"sv}) {
        const Probe probe = starts_with(bytes, tag);
        if (probe == Probe::yes) return probe;
        if (probe == Probe::need_more) best = probe;
    }
    return best;
}

namespace {

// A marker, or a login: int major << 16 | minor, STR database.
Probe looks_like_sequoia(Bytes bytes, Direction direction) noexcept {
    using namespace std::string_view_literals;
    if (bytes.empty()) return Probe::need_more;
    if (direction == Direction::to_client) return starts_with(bytes, "\x1F\xA1\x50\x1F"sv);
    const Probe marker = starts_with(bytes, "\x00\xB0\x15\xCA"sv);
    if (marker != Probe::no) return marker;
    if (bytes.size() < 4) return bytes[0] == 0 ? Probe::need_more : Probe::no;
    const std::uint32_t major = load_be32(bytes.data()) >> 16;
    return major > 0 && major < 64 ? looks_like_text(bytes.subspan(4), true) : Probe::no;
}

}  // namespace

}  // namespace cjdbc

Probe CjdbcDissector::probe(Bytes bytes, Direction direction) noexcept {
    const Probe sequoia = cjdbc::looks_like_sequoia(bytes, direction);
    if (sequoia == Probe::yes) return sequoia;
    const Probe probe = direction == Direction::to_server ? cjdbc::looks_like_client(bytes)
                                                          : cjdbc::looks_like_controller(bytes);
    return probe == Probe::no ? sequoia : probe;
}

}  // namespace tapscope
