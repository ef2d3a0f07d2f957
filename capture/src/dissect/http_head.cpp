#include "dissect/http_head.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "bytes.hpp"
#include "dissect/head_lines.hpp"
#include "evidence.hpp"
#include "find_byte.hpp"

namespace tapscope {
namespace {

constexpr std::size_t kMaxMethod = 24;
constexpr std::size_t kMaxOddLine = 8192;  // waited for before the version at its end must have come

// `lower` is made of small letters, digits, '-' and '/', which all have the bit 0x20.
// In place, so that its words are numbers in the code.
[[gnu::always_inline]] inline bool equals_lower(std::string_view name, std::string_view lower) noexcept {
    if (name.size() != lower.size()) return false;
    const auto* const n = reinterpret_cast<const std::uint8_t*>(name.data());
    const auto* const l = reinterpret_cast<const std::uint8_t*>(lower.data());
    std::size_t i = 0;
    for (; i + 8 <= lower.size(); i += 8)
        if ((load_le64(n + i) | 0x2020202020202020u) != load_le64(l + i)) return false;
    if (i > 0) {  // the last ones, with some before them
        const std::size_t last = lower.size() - 8;
        return (load_le64(n + last) | 0x2020202020202020u) == load_le64(l + last);
    }
    for (; i < lower.size(); ++i)
        if ((n[i] | 0x20) != l[i]) return false;
    return true;
}

bool starts_lower(std::string_view text, std::string_view lower) noexcept {
    return text.size() >= lower.size() && equals_lower(text.substr(0, lower.size()), lower);
}

bool is_space(char c) noexcept { return c == ' ' || c == '\t'; }

std::string_view trim(std::string_view text) noexcept {
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    return text;
}

bool is_version(std::string_view text) noexcept {  // "HTTP/1.1"
    return text.size() >= 8 && std::memcmp(text.data(), "HTTP/", 5) == 0 && is_digit(text[5]) &&
           text[6] == '.' && is_digit(text[7]);
}

bool is_method_character(std::uint8_t c) noexcept {
    return static_cast<unsigned>((c | 0x20) - 'a') < 26 || c == '-' || c == '_';
}

// Methods that RTSP and SIP do not have with a path (RFC 9110, WebDAV: RFC 4918, 3253, 5323).
bool is_common_method(std::string_view method) noexcept {
    static constexpr std::array<std::string_view, 18> common = {
        "GET",    "POST", "HEAD",   "PUT",  "DELETE", "PATCH",     "OPTIONS", "TRACE", "PROPFIND",
        "SEARCH", "LOCK", "UNLOCK", "COPY", "REPORT", "PROPPATCH", "MKCOL",   "MOVE",  "PURGE"};
    return std::find(common.begin(), common.end(), method) != common.end();
}

bool parse_request_line(std::string_view line, HttpHead& head) noexcept {
    const std::size_t space = find_byte(line, ' ');
    if (space == 0 || space > kMaxMethod) return false;
    head.method = line.substr(0, space);
    if (!is_common_method(head.method) &&
        !std::all_of(head.method.begin(), head.method.end(), is_method_character))
        return false;
    std::size_t version = line.size();
    if (line.size() >= space + 10 && line[line.size() - 9] == ' ' &&
        is_version(line.substr(line.size() - 8))) {
        version = line.size() - 9;
    } else {  // blanks behind the version, or a version of an odd length
        version = line.rfind(" HTTP/");
        if (version == std::string_view::npos || version <= space) return false;
        head.suspicious = true;
    }
    const std::string_view target = trim(line.substr(space + 1, version - space - 1));
    if (target.empty()) return false;
    if (holds(target, ' ')) {
        // The end of a body may stand before the request line: its words must not become a method and a target.
        if (!is_common_method(head.method)) return false;
        head.suspicious = true;
    }
    head.target = target;
    return true;
}

bool parse_status_line(std::string_view line, HttpHead& head) noexcept {
    if (!is_version(line) || line.size() < 12 || line[8] != ' ') return false;
    const std::string_view digits = line.substr(9, 3);
    if (!all_digits(digits)) return false;
    head.status = (digits[0] - '0') * 100 + (digits[1] - '0') * 10 + (digits[2] - '0');
    return true;
}

std::uint64_t decimal(std::string_view digits) noexcept {
    std::uint64_t value = 0;
    for (const char c : digits) value = value * 10 + static_cast<std::uint64_t>(c - '0');
    return value;
}

// "5", or "5, 5", or several fields.
void read_length(std::string_view value, HttpHead& head) noexcept {
    constexpr std::size_t kMostDigits = 18;
    if (value.starts_with(' ') && value.size() <= kMostDigits && !head.has_length &&
        all_digits(value.substr(1))) [[likely]] {
        head.has_length = true;
        head.content_length = decimal(value.substr(1));
        return;
    }
    while (true) {
        const std::size_t comma = std::min(value.find(','), value.size());
        const std::string_view one = trim(value.substr(0, comma));
        if (!all_digits(one) || one.size() > kMostDigits) {
            head.suspicious = true;
            return;
        }
        // The first one counts; if that is wrong the next start line does not fit.
        if (head.has_length) {
            head.suspicious = true;
        } else {
            head.has_length = true;
            head.content_length = decimal(one);
        }
        if (comma == value.size()) return;
        value.remove_prefix(comma + 1);
        head.suspicious = true;
    }
}

void read_coding(std::string_view value, HttpHead& head) noexcept {
    if (equals_lower(value, "identity")) return;  // RFC 2616 had it for "none"
    if (head.has_coding) head.suspicious = true;
    head.has_coding = true;
    const std::size_t comma = value.rfind(',');
    const std::string_view last = trim(comma == std::string_view::npos ? value : value.substr(comma + 1));
    head.chunked = equals_lower(last, "chunked");
    if (!head.chunked && !equals_lower(last, "identity") && !equals_lower(last, "gzip"))
        head.suspicious = true;
}

// Upgrade: h2c, websocket
bool lists_h2c(std::string_view value) noexcept {
    while (true) {
        const std::size_t comma = std::min(value.find(','), value.size());
        if (equals_lower(trim(value.substr(0, comma)), "h2c")) return true;
        if (comma == value.size()) return false;
        value.remove_prefix(comma + 1);
    }
}

void read_type(std::string_view value, HttpHead& head) noexcept {
    constexpr std::string_view application = "application/";
    head.form = head.call = false;
    if (!starts_lower(value, application)) return;
    value.remove_prefix(application.size());
    head.form = starts_lower(value, "x-www-form-urlencoded");
    // Its own clients send octet-stream for JSON and protocol buffers alike.
    head.call = starts_lower(value, "octet-stream") || starts_lower(value, "json") ||
                starts_lower(value, "x-google-protobuf") || starts_lower(value, "x-protobuf");
}

// Which lines need a look: by the first byte and the length of the name, those of the fields that read_field knows, and
// all that begin with white space or ':'. Bit n: names of n bytes, 63: of more, too.
constexpr std::array<std::uint64_t, 256> kMayMatter = [] {
    std::array<std::uint64_t, 256> table{};
    const auto field = [&](char first, std::uint64_t lengths) {
        table[static_cast<unsigned char>(first)] |= lengths;
        table[static_cast<unsigned char>(first - 0x20)] |= lengths;
    };
    const auto name = [&](std::string_view text) { field(text[0], std::uint64_t{1} << text.size()); };
    for (const std::string_view known : {"content-length", "content-type", "content-encoding", "cookie",
                                         "transfer-encoding", "traceparent", "expect", "upgrade"})
        name(known);
    field('x', ~std::uint64_t{7});  // "x-" and something
    for (const char c : {' ', '\t', '\r', '\n', ':'})
        table[static_cast<unsigned char>(c)] = ~std::uint64_t{0};
    return table;
}();

bool may_matter(char first, std::size_t name) noexcept {
    const std::uint64_t lengths = kMayMatter[static_cast<unsigned char>(first)];
    return lengths != 0 && (lengths >> std::min<std::size_t>(name, 63) & 1) != 0;
}

const MarkLines mark_lines = line_marker();

// Fields that tell where the message ends: their value may go on in folded lines.
enum class Framing : std::uint8_t { none, length, coding };

Framing read_field(std::string_view name, std::string_view value, HttpHead& head) noexcept {
    switch (name.front() | 0x20) {
        case 'c':
            if (name.size() == 14 && equals_lower(name, "content-length")) {
                read_length(value, head);
                return Framing::length;
            } else if (name.size() == 12 && equals_lower(name, "content-type")) {
                read_type(trim(value), head);
            } else if (name.size() == 16 && equals_lower(name, "content-encoding")) {
                head.compressed = !equals_lower(trim(value), "identity");
            } else if (name.size() == 6 && equals_lower(name, "cookie")) {
                head.extras.add({name, trim(value)});
            }
            return Framing::none;
        case 't':
            if (name.size() == kTraceParent.size() && equals_lower(name, kTraceParent))
                head.extras.add({name, trim(value)});
            if (name.size() != 17 || !equals_lower(name, "transfer-encoding")) return Framing::none;
            read_coding(trim(value), head);
            return Framing::coding;
        case 'e':
            if (name.size() == 6 && equals_lower(name, "expect"))
                head.expects_continue = starts_lower(trim(value), "100-continue");
            return Framing::none;
        case 'u':
            if (name.size() == 7 && equals_lower(name, "upgrade")) head.upgrade_h2c = lists_h2c(value);
            return Framing::none;
        case 'x':
            if (name.size() > 2 && name[1] == '-') head.extras.add({name, trim(value)});
            return Framing::none;
        default:
            return Framing::none;
    }
}

}  // namespace

Probe starts_request(Bytes bytes) noexcept {
    std::size_t i = 0;
    const std::size_t limit = std::min(bytes.size(), kMaxMethod + 1);
    bool upper = true;
    for (; i < limit && is_method_character(bytes[i]); ++i) upper = upper && bytes[i] < 'a';
    if (i == bytes.size()) return i <= kMaxMethod ? Probe::need_more : Probe::no;
    if (i < 3 || bytes[i] != ' ') return Probe::no;
    const std::string_view rest = as_text(bytes).substr(i + 1);
    const void* newline = std::memchr(rest.data(), '\n', rest.size());
    if (newline == nullptr) {
        if (rest.size() > kMaxHead) return Probe::no;
        if (rest.size() < 2) return Probe::need_more;
        const std::string_view method = as_text(bytes).substr(0, i);
        if (upper && is_common_method(method) && (rest.front() == '/' || starts_lower(rest, "http:/")))
            return Probe::yes;
        // Another method, or an authority or "*": other line protocols (RTSP, SIP) have those too.
        return method == "CONNECT" ? Probe::yes : rest.size() < kMaxOddLine ? Probe::need_more : Probe::no;
    }
    std::string_view line =
        rest.substr(0, static_cast<std::size_t>(static_cast<const char*>(newline) - rest.data()));
    if (is_http2_preface(bytes)) return Probe::no;
    if (upper && is_common_method(as_text(bytes).substr(0, i)))
        return line.find("HTTP/") == std::string_view::npos ? Probe::no : Probe::yes;
    // A word and a blank is what many line protocols and plain text begin with, perhaps with the head of the next
    // request behind it in the same line: nothing less than a proper line will do.
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line.size() > 9 && line.find(' ') == line.size() - 9 && is_version(line.substr(line.size() - 8))
               ? Probe::yes
               : Probe::no;
}

std::size_t simple_request(Bytes bytes) noexcept {
    const std::string_view text = as_text(bytes);
    if (!text.starts_with("GET /") || text.back() != '\n') return 0;
    const std::size_t end = text.find_first_of(" \t\r\n", 4);
    const std::string_view rest = text.substr(end);  // an empty line behind it is what later versions taught
    if (rest == "\r\n" || rest == "\r\n\r\n") return end + 2;
    return rest == "\n" || rest == "\n\n" ? end + 1 : 0;
}

bool is_http2_preface(Bytes bytes) noexcept { return as_text(bytes).starts_with("PRI * HTTP/2"); }

Probe starts_response(Bytes bytes) noexcept {
    constexpr std::string_view pattern = "HTTP/1.";
    const std::size_t n = std::min(bytes.size(), pattern.size());
    if (std::memcmp(bytes.data(), pattern.data(), n) != 0) return Probe::no;
    if (bytes.size() < 12) return Probe::need_more;
    HttpHead head;
    return parse_status_line(as_text(bytes).substr(0, 12), head) ? Probe::yes : Probe::no;
}

std::size_t start_inside(Bytes bytes, Direction direction, bool in_body) noexcept {
    const std::string_view text = as_text(bytes);
    if (direction == Direction::to_server) {
        constexpr std::string_view kBlankLine = "\r\n\r\n";
        for (std::size_t at = text.find(kBlankLine); at != text.npos; at = text.find(kBlankLine, at + 1)) {
            const std::size_t behind = at + kBlankLine.size();
            if (behind < bytes.size() && starts_request(bytes.subspan(behind)) == Probe::yes) return behind;
        }
        return bytes.size();
    }
    for (std::size_t at = text.find("HTTP/1."); at != text.npos; at = text.find("HTTP/1.", at + 1)) {
        if (starts_response(bytes.subspan(at)) != Probe::yes) continue;
        HttpHead head;
        const char* label = nullptr;
        if (!in_body || text.substr(0, at).ends_with(kLastChunk) ||
            parse_head(direction, bytes.subspan(at), head, label) == HeadStep::complete)
            return at;
    }
    return bytes.size();
}

HeadStep parse_head(Direction direction, Bytes bytes, HttpHead& head, const char*& label) noexcept {
    const char* const start = reinterpret_cast<const char*>(bytes.data());
    HeadLines lines(start, start + bytes.size(), mark_lines);
    const auto text_of = [](const HeadLine& line) {
        const char* const stop =
            line.newline > line.at && line.newline[-1] == '\r' ? line.newline - 1 : line.newline;
        return std::string_view(line.at, static_cast<std::size_t>(stop - line.at));
    };
    HeadLine found;
    if (!lines.next(found, [](const char*, const char*) { return true; })) return HeadStep::incomplete;
    const std::string_view first = text_of(found);
    const bool good =
        direction == Direction::to_server ? parse_request_line(first, head) : parse_status_line(first, head);
    // "HTTP/1.0": it has no transfer codings
    const std::size_t version_digit = direction == Direction::to_server ? first.size() - 1 : 7;
    if (!good) {
        label = "http.bad_start_line";
        return HeadStep::malformed;
    }
    const auto wanted = [](const char* at, const char* colon) {
        // A blank before the colon is no part of the name.
        return colon == nullptr || static_cast<unsigned char>(colon[-1]) <= ' ' ||
               may_matter(*at, static_cast<std::size_t>(colon - at));
    };
    const char* behind = nullptr;  // where a line may go on with the field `framing`
    Framing framing = Framing::none;
    while (lines.next(found, wanted)) {
        const auto [at, newline, colon] = found;
        const std::string_view line = text_of(found);
        if (line.empty()) {
            head.size = static_cast<std::size_t>(newline + 1 - start);
            if (head.has_coding && (head.has_length || start[version_digit] == '0')) head.suspicious = true;
            return HeadStep::complete;
        }
        if (is_space(line.front())) {  // obs-fold: belongs to the line before
            if (at != behind) continue;
            head.suspicious = true;
            behind = newline + 1;
            if (framing == Framing::length) {
                // RFC 9112 section 5.2: a blank in the value. Between two numbers it makes none: the first one counts.
                if (!trim(line).empty()) read_length(line, head);
                continue;
            }
            head.has_coding = false;
            read_coding(trim(line), head);
            continue;
        }
        if (colon == nullptr || colon == at) {
            head.suspicious = true;
            continue;
        }
        std::string_view name(at, static_cast<std::size_t>(colon - at));
        if (is_space(name.back())) {
            head.suspicious = true;
            name = trim(name);
        }
        const Framing field = read_field(name, line.substr(static_cast<std::size_t>(colon - at) + 1), head);
        if (field != Framing::none) {
            framing = field;
            behind = newline + 1;
        }
    }
    return HeadStep::incomplete;
}

bool head_is_complete(Bytes bytes, std::size_t from) noexcept {
    std::size_t i = from > 3 ? from - 3 : 0;
    while (i < bytes.size()) {
        const void* found = std::memchr(bytes.data() + i, '\n', bytes.size() - i);
        if (found == nullptr) return false;
        i = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - bytes.data()) + 1;
        if (i < bytes.size() && bytes[i] == '\n') return true;
        if (i + 1 < bytes.size() && bytes[i] == '\r' && bytes[i + 1] == '\n') return true;
    }
    return false;
}

}  // namespace tapscope
