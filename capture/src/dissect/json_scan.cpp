#include "dissect/json_scan.hpp"

#include <cstring>

namespace tapscope {

JsonScanner::Token JsonScanner::next() noexcept {
    while (at_ < end_ && (*at_ == ',' || *at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
    if (at_ == end_) return {};
    const char c = *at_;
    switch (c) {
        case '{':
            return {Kind::begin_object, false, false, {at_++, 1}};
        case '}':
            return {Kind::end_object, false, false, {at_++, 1}};
        case '[':
            return {Kind::begin_array, false, false, {at_++, 1}};
        case ']':
            return {Kind::end_array, false, false, {at_++, 1}};
        case '"': {
            Token token = string();
            blanks();
            if (at_ < end_ && *at_ == ':') {
                ++at_;
                token.kind = Kind::key;
            }
            return token;
        }
        default:
            break;
    }
    const char* const start = at_;
    const bool number = c == '-' || (c >= '0' && c <= '9');
    const auto inside = [number](char d) {
        if (d >= '0' && d <= '9') return number;
        if (d == '+' || d == '-' || d == '.') return number;
        return (d >= 'a' && d <= 'z') || (number && d == 'E');
    };
    while (at_ < end_ && inside(*at_)) ++at_;
    if (at_ == start) {
        at_ = end_;
        return {Kind::bad, false, false, {}};
    }
    if (at_ == end_) return {};  // it may go on
    return {
        number ? Kind::number : Kind::literal, false, false, {start, static_cast<std::size_t>(at_ - start)}};
}

JsonScanner::Token JsonScanner::string() noexcept {
    Token token{Kind::string, false, false, {}};
    const char* const start = ++at_;
    while (at_ < end_ && *at_ != '"') {
        if (*at_ == '\\') {
            token.escaped = true;
            if (++at_ == end_) break;
        }
        ++at_;
    }
    token.text = {start, static_cast<std::size_t>(at_ - start)};
    if (at_ < end_) {
        ++at_;
    } else {
        token.cut = true;
    }
    return token;
}

namespace {

void append_utf8(std::uint32_t c, std::string& out) {
    if (c < 0x80) {
        out.push_back(static_cast<char>(c));
    } else if (c < 0x800) {
        out.push_back(static_cast<char>(0xC0 | c >> 6));
        out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
    } else if (c < 0x10000) {
        out.push_back(static_cast<char>(0xE0 | c >> 12));
        out.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
        out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
    } else {
        out.push_back(static_cast<char>(0xF0 | c >> 18));
        out.push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
        out.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
        out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
    }
}

// Four hexadecimal digits at `p`; false when they are not there.
bool read_unit(const char* p, const char* end, std::uint32_t& unit) noexcept {
    if (end - p < 4) return false;
    unit = 0;
    for (int i = 0; i < 4; ++i) {
        const char c = p[i];
        const int lower = c | 0x20;
        int digit;
        if (c >= '0' && c <= '9') {
            digit = c - '0';
        } else if (lower >= 'a' && lower <= 'f') {
            digit = lower - 'a' + 10;
        } else {
            return false;
        }
        unit = unit << 4 | static_cast<std::uint32_t>(digit);
    }
    return true;
}

}  // namespace

void append_json_text(std::string_view escaped, std::string& out) {
    constexpr std::uint32_t replacement = 0xFFFD;
    const char* p = escaped.data();
    const char* const end = p + escaped.size();
    while (p < end) {
        if (*p != '\\') {
            const void* found = std::memchr(p, '\\', static_cast<std::size_t>(end - p));
            const char* stop = found != nullptr ? static_cast<const char*>(found) : end;
            out.append(p, stop);
            p = stop;
            continue;
        }
        if (++p == end) return;
        const char c = *p++;
        std::uint32_t unit = 0;
        switch (c) {
            case 'b':
                out.push_back('\b');
                break;
            case 'f':
                out.push_back('\f');
                break;
            case 'n':
                out.push_back('\n');
                break;
            case 'r':
                out.push_back('\r');
                break;
            case 't':
                out.push_back('\t');
                break;
            case 'u': {
                if (!read_unit(p, end, unit)) return;  // cut
                p += 4;
                std::uint32_t low = 0;
                if (unit >= 0xD800 && unit < 0xDC00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u' &&
                    read_unit(p + 2, end, low) && low >= 0xDC00 && low < 0xE000) {
                    p += 6;
                    unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                } else if (unit >= 0xD800 && unit < 0xE000) {
                    unit = replacement;
                }
                append_utf8(unit, out);
                break;
            }
            default:
                out.push_back(c);
        }
    }
}

}  // namespace tapscope
