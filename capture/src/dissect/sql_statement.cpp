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

template <SqlDialect D>
void append_without_comments(std::string_view text, std::string& out) {
    constexpr bool mysql = D == SqlDialect::mysql;
    const char* p = text.data();
    const char* const end = p + text.size();
    while (p < end) {
        const char c = *p;
        if (c == '\'' || c == '"' || (mysql && c == '`')) {
            bool escapes = false;
            const char* close = closing_quote(p + 1, end, c, mysql && c != '`', escapes);
            close = close < end ? close + 1 : end;
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
        append_without_comments<SqlDialect::mysql>(text_, statement_);
    } else {
        append_without_comments<SqlDialect::postgres>(text_, statement_);
    }
    return strip(statement_);
}

}  // namespace tapscope
