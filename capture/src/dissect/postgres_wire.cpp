#include "dissect/postgres_wire.hpp"

#include <algorithm>

namespace tapscope::postgres {

namespace {

constexpr std::uint32_t kMaxAuthentication = 64 * 1024;

// Chance makes a length like any other: where borders are looked for, no message is longer than this (the server would
// take 1 GB), and one that goes on beyond the bytes shows this much of itself.
constexpr std::uint32_t kMaxFound = 16 << 20;
constexpr std::size_t kShown = 16;
constexpr std::size_t kMaxName = 256;  // of a column with its NUL; the server cuts names to 63 bytes

bool printable(Bytes bytes) noexcept {
    return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t c) {
        return c >= 0x20 ? c != 0x7F : c == '\t' || c == '\n' || c == '\r' || c == '\f';
    });
}

// "S", text, NUL, ..., NUL: the fields of an ErrorResponse or NoticeResponse.
bool plausible_fields(Bytes body) noexcept {
    if (body.size() < 2) return true;
    return body[0] >= 'A' && body[0] <= 'Z' && body[1] >= 0x20;
}

// A list of `count` values, of which `body` may hold only the first: each a length, or -1 for NULL.
bool plausible_values(Bytes body, std::uint32_t total, std::size_t count) noexcept {
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (at + 4 > total) return false;
        if (at + 4 > body.size()) return true;
        const std::uint32_t size = load_be32(&body[at]);
        at += 4;
        if (size == 0xffffffff) continue;
        if (size > total || at + size > total) return false;
        at += size;
    }
    return at == total;
}

// What stands behind the two names of a Parse (its types) or a Bind (formats: 0 or 1, and values), of which `rest` may
// hold only the first.
bool plausible_types(char type, Bytes rest, std::size_t total) noexcept {
    if (rest.size() < 2) return total >= 2;
    const std::size_t count = load_be16(rest.data());
    if (type == client::parse) return total == 2 + 4 * count;
    for (std::size_t at = 2; at + 2 <= std::min(rest.size(), 2 + 2 * count); at += 2)
        if (load_be16(&rest[at]) > 1) return false;
    return total >= 2 + 2 * count + 4;
}

bool plausible_client(char type, std::uint32_t total, Bytes body) noexcept {
    const bool whole = body.size() == total;
    switch (type) {
        case client::query: {
            if (whole)
                return total > 0 && body.back() == 0 &&
                       printable(body.first(std::min<std::size_t>(total - 1, 64)));
            return printable(body.first(std::min<std::size_t>(body.size(), 64)));
        }
        case client::parse:
        case client::bind:
        case client::execute: {
            // Two names, or a name and four bytes.
            const auto nul = std::find(body.begin(), body.end(), 0);
            if (nul == body.end()) return !whole && body.size() < 256 && printable(body);
            const auto name = static_cast<std::size_t>(nul - body.begin());
            if (!printable(body.first(name))) return false;
            if (type == client::execute) return total == name + 5;
            const Bytes rest = body.subspan(name + 1);
            const auto second = std::find(rest.begin(), rest.end(), 0);
            const auto size = static_cast<std::size_t>(second - rest.begin());
            if (!printable(rest.first(std::min<std::size_t>(size, 64)))) return false;
            if (second == rest.end()) return !whole;
            return plausible_types(type, rest.subspan(size + 1), total - name - size - 2);
        }
        case client::describe:
        case client::close:
            return (body.empty() || body[0] == 'S' || body[0] == 'P') && (!whole || body.back() == 0);
        case client::copy_fail:
            return !whole || body.back() == 0;
        default:
            return true;
    }
}

bool plausible_server(char type, std::uint32_t total, Bytes body) noexcept {
    const bool whole = body.size() == total;
    switch (type) {
        case server::ready:
            return body.empty() || body[0] == 'I' || body[0] == 'T' || body[0] == 'E';
        case server::command_complete:
            return (body.empty() || (body[0] >= 'A' && body[0] <= 'Z')) && (!whole || body.back() == 0);
        case server::error:
        case server::notice:
            return plausible_fields(body) && (!whole || body.back() == 0);
        case server::data_row: {
            if (body.size() < 2) return true;
            const std::size_t columns = load_be16(body.data());
            return columns <= 1664 && plausible_values(body.subspan(2), total - 2, columns);
        }
        case server::row_description: {
            if (body.size() < 2) return true;
            const std::size_t columns = load_be16(body.data());
            if (columns > 1664 || columns * 19 + 2 > total || total > 2 + columns * (18 + kMaxName))
                return false;
            const auto nul = std::find(body.begin() + 2, body.end(), 0);
            return printable(body.subspan(2, static_cast<std::size_t>(nul - body.begin()) - 2));
        }
        case server::parameter_description:
            return body.size() < 2 || std::size_t{load_be16(body.data())} * 4 + 2 == total;
        case server::authentication:
            return body.size() < 4 || load_be32(body.data()) <= 12;
        case server::copy_in:
        case server::copy_out:
        case server::copy_both:
            return body.size() < 3 || (body[0] <= 1 && std::size_t{load_be16(&body[1])} * 2 + 3 == total);
        case server::parameter_status:
            return (body.empty() || body[0] >= 0x20) && (!whole || body.back() == 0);
        default:
            return true;
    }
}

// Messages of a type and length that chance seldom makes: one of them is enough where a chain must end.
bool telling(Direction direction, char type) noexcept {
    if (direction == Direction::to_client)
        return type == server::ready || type == server::command_complete || type == server::error ||
               type == server::row_description || type == server::data_row || type == server::notice;
    return type == client::sync || type == client::flush || type == client::terminate ||
           type == client::query || type == client::parse || type == client::bind || type == client::execute;
}

}  // namespace

bool plausible_length(Direction direction, char type, std::uint32_t length) noexcept {
    if (length < 4 || length > kMaxLength) return false;
    if (direction == Direction::to_server) {
        switch (type) {
            case client::sync:
            case client::flush:
            case client::terminate:
            case client::copy_done:
                return length == 4;
            case client::query:
            case client::copy_fail:
                return length >= 5;
            case client::execute:
                return length >= 9 && length < 1024;
            case client::describe:
            case client::close:
                return length >= 6 && length < 1024;
            case client::parse:
                return length >= 8;
            case client::bind:
                return length >= 12;
            case client::function_call:
                return length >= 14;
            case client::password:
                return length >= 5 && length < kMaxAuthentication;
            case client::copy_data:
                return true;
            default:
                return false;
        }
    }
    switch (type) {
        case server::ready:
            return length == 5;
        case server::parse_complete:
        case server::bind_complete:
        case server::close_complete:
        case server::no_data:
        case server::portal_suspended:
        case server::empty_query:
        case server::copy_done:
            return length == 4;
        case server::command_complete:
            return length >= 6 && length < 512;
        case server::data_row:
        case server::row_description:
        case server::parameter_description:
            return length >= 6;
        case server::error:
        case server::notice:
            return length >= 5 && length < (1u << 20);
        case server::authentication:
            return length >= 8 && length < kMaxAuthentication;
        case server::backend_key_data:
            return length >= 8 && length <= 268;
        case server::parameter_status:
            return length >= 6 && length < (1u << 16);
        case server::notification:
            return length >= 10 && length < (1u << 16);
        case server::negotiate_version:
            return length >= 12 && length < (1u << 16);
        case server::copy_in:
        case server::copy_out:
        case server::copy_both:
            return length >= 7 && length < (1u << 16);
        case server::function_result:
            return length >= 8;
        case server::copy_data:
            return true;
        default:
            return false;
    }
}

bool plausible_message(Direction direction, Bytes bytes) noexcept {
    const auto type = static_cast<char>(bytes[0]);
    const std::uint32_t length = load_be32(&bytes[1]);
    if (!plausible_length(direction, type, length) || length > kMaxFound) return false;
    const std::uint32_t total = length - 4;
    const Bytes body = bytes.subspan(kHeader, std::min<std::size_t>(total, bytes.size() - kHeader));
    return direction == Direction::to_server ? plausible_client(type, total, body)
                                             : plausible_server(type, total, body);
}

Probe starts_connection(Bytes bytes) noexcept {
    if (bytes.size() < 4) return bytes.empty() || bytes[0] == 0 ? Probe::need_more : Probe::no;
    const std::uint32_t length = load_be32(bytes.data());
    if (length < kStartupHeader || length > kMaxStartup) return Probe::no;
    if (bytes.size() < kStartupHeader) return Probe::need_more;
    const std::uint32_t code = load_be32(&bytes[4]);
    if (code == kSslRequest || code == kGssRequest) return length == kStartupHeader ? Probe::yes : Probe::no;
    if (code == kCancelRequest) return length >= 16 && length <= 268 ? Probe::yes : Probe::no;
    if (code >> 16 != kMajor3 || (code & 0xffff) > 9999 || length < 9) return Probe::no;
    // Names and values, the first of them "user" with most clients; an empty name ends the list.
    const std::size_t size = std::min<std::size_t>({bytes.size(), length, kStartupHeader + 32});
    return std::all_of(bytes.begin() + kStartupHeader, bytes.begin() + static_cast<std::ptrdiff_t>(size),
                       [](std::uint8_t c) { return c == 0 || c >= 0x20; })
               ? Probe::yes
               : Probe::no;
}

bool asks_for_login(Bytes bytes) noexcept {
    constexpr std::uint32_t kCleartext = 3, kMd5 = 5, kGss = 7, kSspi = 9, kSasl = 10;
    if (bytes.size() < kHeader + 4 || static_cast<char>(bytes[0]) != server::authentication) return false;
    const std::uint32_t length = load_be32(&bytes[1]);
    if (bytes.size() != 1 + std::size_t{length}) return false;
    switch (load_be32(&bytes[kHeader])) {
        case kCleartext:
        case kGss:
        case kSspi:
            return length == 8;
        case kMd5:
            return length == 12;
        case kSasl: {  // names of mechanisms
            const std::string_view names(reinterpret_cast<const char*>(&bytes[kHeader + 4]), length - 8);
            return names.starts_with("SCRAM-SHA-") || names.starts_with("OAUTHBEARER");
        }
        default:
            return false;
    }
}

std::size_t find_chain(Direction direction, Bytes bytes, std::size_t from, bool only_at_start) noexcept {
    const std::size_t size = bytes.size();
    for (std::size_t p = from; p + kHeader <= size; ++p) {
        std::size_t q = p, last = p, count = 0;
        bool told = false;
        while (q + kHeader <= size && plausible_message(direction, bytes.subspan(q))) {
            last = q;
            told |= telling(direction, static_cast<char>(bytes[q]));
            q += 1 + std::size_t{load_be32(&bytes[q + 1])};
            if (++count == 3) break;
        }
        if (count == 3) return p;
        // The last message may go on beyond the bytes.
        if (q == size && told) return p;
        if (q > size && told && (count >= 2 || (p == from && size - last >= kHeader + kShown))) return p;
        if (q + kHeader > size && q < size && told && count >= 2) return p;
        if (only_at_start) break;
    }
    return size;
}

}  // namespace tapscope::postgres
