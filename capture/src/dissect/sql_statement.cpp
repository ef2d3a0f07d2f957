// A statement's whole text as evidence: without comments, white space folded.
#include "sql_fingerprint.hpp"
#include "sql_lex.hpp"

namespace tapscope {

using namespace sql;

namespace {

std::string_view strip(std::string_view text) noexcept {
    while (!text.empty() && (is(text.back(), kSpace) || text.back() == ';')) text.remove_suffix(1);
    while (!text.empty() && is(text.front(), kSpace)) text.remove_prefix(1);
    return text;
}

// One past the blank or comment at `p`; `p` when there is none.
template <SqlDialect D>
const char* behind_blank(const char* p, const char* end) noexcept {
    const auto left = static_cast<std::size_t>(end - p);
    if (is(*p, kSpace)) return p + 1;
    if (*p == '/' && left >= 2 && p[1] == '*' && kept_comment(p, left) == 0)
        return end_of_comment<D>(p + 2, end);
    if ((D == SqlDialect::mysql && *p == '#') || (*p == '-' && starts_line_comment<D>(p, left))) {
        while (p < end && *p != '\n') ++p;
    }
    return p;
}

// Does an E that is a word of its own stand in front of the quote at `p`?
bool starts_escape_string(const char* begin, const char* p) noexcept {
    return p != begin && lower(p[-1]) == 'e' && (p - begin == 1 || !is(p[-2], kIdent));
}

template <SqlDialect D>
void append_without_comments(std::string_view text, SqlStrings strings, std::string& out) {
    constexpr bool mysql = D == SqlDialect::mysql;
    const bool two_byte =
        strings.two_byte == TwoByte::yes || (strings.two_byte == TwoByte::unknown && !is_utf8(text));
    const char* p = text.data();
    const char* const end = p + text.size();
    const char* escape_string_end = nullptr;
    while (p < end) {
        const char c = *p;
        if (c == '\'' || c == '"' || (mysql && c == '`')) {
            bool escapes = false;
            const bool escape_string =
                !mysql && c == '\'' &&
                (starts_escape_string(text.data(), p) ||
                 (escape_string_end != nullptr && continues_string(escape_string_end, p)));
            const bool name = c == (mysql ? '`' : '"');
            const Backslash backslash = name            ? Backslash::plain
                                        : escape_string ? Backslash::escapes
                                                        : strings.backslash;
            const char* close = closing_quote(p + 1, end, c, backslash, two_byte, escapes);
            close = close != nullptr && close < end ? close + 1 : end;
            if (escape_string) escape_string_end = close;
            out.append(p, close);
            p = close;
        } else if (const char* next = behind_blank<D>(p, end); next != p) {
            if (!out.empty() && out.back() != ' ') out.push_back(' ');
            p = next;
        } else {
            out.push_back(c);
            ++p;
        }
    }
}

}  // namespace

std::string_view SqlFingerprinter::statement() {
    if (!rewritten_) return strip(text_);
    statement_.clear();
    if (dialect_ == SqlDialect::mysql) {
        append_without_comments<SqlDialect::mysql>(text_, strings_, statement_);
    } else {
        append_without_comments<SqlDialect::postgres>(text_, strings_, statement_);
    }
    return strip(statement_);
}

}  // namespace tapscope
