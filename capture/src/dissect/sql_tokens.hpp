// The tokens of an SQL text: what each becomes in the fingerprint. SqlScanner (sql_fingerprint.cpp) drives it and folds
// lists of values.
#pragma once

#include <cstring>
#include <string_view>

#include "sql_fingerprint.hpp"
#include "sql_lex.hpp"

namespace tapscope::sql {

// Words after which a minus sign belongs to the number.
inline bool precedes_value(const char* word, std::size_t size) noexcept {
    constexpr std::string_view words[] = {
        "select", "and", "or",   "between", "limit", "offset",   "then", "else",    "when",  "like",
        "in",     "by",  "set",  "return",  "xor",   "not",      "div",  "default", "mod",   "having",
        "where",  "on",  "case", "values",  "value", "interval", "is",   "regexp",  "rlike", "distinct"};
    for (const auto candidate : words) {
        if (equals_folded(word, size, candidate)) return true;
    }
    return false;
}

// Reads [p_, end_) of a text and writes the fingerprint behind `out_`.
template <SqlDialect D>
class SqlTokens {
protected:
    static constexpr bool kMysql = D == SqlDialect::mysql;

    SqlTokens(SqlFingerprinter& result, std::string_view text)
        : result_(result),
          strings_(result.strings_),
          two_byte_(strings_.two_byte != TwoByte::no),
          begin_(text.data()),
          p_(begin_),
          end_(begin_ + text.size()),
          base_(result.buffer_.get() + SqlFingerprinter::kSentinel),
          out_(base_) {}

    bool first_is_special() const noexcept {
        const char c = *p_;
        if (is(c, kSpecial) || c == close_) return true;
        if (!kMysql && (c == '$' || c == '[')) return true;
        if (is(c, kDigit)) return !is(out_[-1], kIdent) || out_[-1] == '?';
        return c == ' ' && out_[-1] == ' ';
    }

    // N to 2N bytes as two steps that may overlap.
    template <std::size_t N>
    void copy_ends(const char* from, std::size_t size) noexcept {
        std::memcpy(out_, from, N);
        std::memcpy(out_ + size - N, from + size - N, N);
    }

    void copy_run(const char* from, const char* to) noexcept {
        const auto size = static_cast<std::size_t>(to - from);
        if (from + 16 <= end_) {  // sloppy: the buffer has room behind `out_`
            std::memcpy(out_, from, 16);
            for (std::size_t at = 16; at < size; at += 16) {
                // The last step overlaps the one before it.
                const std::size_t start = at + 16 <= size ? at : size - 16;
                std::memcpy(out_ + start, from + start, 16);
            }
        } else if (size >= 8) {
            copy_ends<8>(from, size);
        } else if (size >= 4) {
            copy_ends<4>(from, size);
        } else if (size >= 2) {
            copy_ends<2>(from, size);
        } else if (size == 1) {
            *out_ = *from;
        }
        out_ += size;
    }

    void put(char c) noexcept { *out_++ = c; }

    void skip_space() noexcept {
        while (p_ < end_ && is(*p_, kSpace)) ++p_;
    }

    // Ahead of p_: one past the blanks and comments at `p`; remembers when statement() would fold or remove them.
    const char* behind_blanks(const char* p) noexcept {
        for (const char* const from = p; p < end_;) {
            if (is(*p, kSpace)) {
                if (*p != ' ' || p != from) result_.rewritten_ = true;
                ++p;
                continue;
            }
            const auto left = static_cast<std::size_t>(end_ - p);
            if (*p == '/' && left >= 2 && p[1] == '*' && kept_comment(p, left) == 0) {
                p = end_of_comment<D>(p + 2, end_);
            } else if ((kMysql && *p == '#') || (*p == '-' && starts_line_comment<D>(p, left))) {
                const auto* newline = static_cast<const char*>(std::memchr(p, '\n', left));
                p = newline == nullptr ? end_ : newline + 1;
            } else {
                break;
            }
            result_.rewritten_ = true;
        }
        return p;
    }

    void copy_one() noexcept { put(*p_++); }

    // A removed comment separates words like a blank does.
    void blanks() noexcept {
        result_.rewritten_ = true;
        if (out_[-1] != ' ') put(' ');
        skip_space();
    }

    void line_comment() noexcept {
        const auto* newline =
            static_cast<const char*>(std::memchr(p_, '\n', static_cast<std::size_t>(end_ - p_)));
        p_ = newline == nullptr ? end_ : newline + 1;
        blanks();
    }

    void slash() noexcept {
        const auto left = static_cast<std::size_t>(end_ - p_);
        if (left < 2 || p_[1] != '*') return copy_one();
        if (const int size = kept_comment(p_, left); size != 0) {
            for (int i = 0; i < size; ++i) copy_one();
            while (p_ < end_ && is(*p_, kDigit)) copy_one();  // the version stays
            return;
        }
        p_ = end_of_comment<D>(p_ + 2, end_);
        blanks();
    }

    // The word that ends at `to` in the output: [result, to).
    const char* word_before(const char* to) const noexcept {
        while (to > base_ && is(to[-1], kIdent)) --to;
        return to;
    }

    const char* without_blank(const char* to) const noexcept {
        return to > base_ && to[-1] == ' ' ? to - 1 : to;
    }

    void minus() {
        const auto left = static_cast<std::size_t>(end_ - p_);
        if (left >= 2 && p_[1] == '-') return starts_line_comment<D>(p_, left) ? line_comment() : copy_one();
        const bool number_follows =
            left >= 2 && (is(p_[1], kDigit) || (p_[1] == '.' && left >= 3 && is(p_[2], kDigit)));
        if (!number_follows || !sign_allowed()) return copy_one();
        const char* end = number_end<D>(p_ + 1, end_);
        if (end == nullptr) return copy_one();
        add_number(p_, end);
        put('?');
        p_ = end;
    }

    bool sign_allowed() const noexcept {
        const char* to = without_blank(out_);
        if (to == base_) return true;
        const char c = to[-1];
        if (c == ')' || c == ']' || c == '?' || c == '`' || c == '"' || c == '.' || c == '@') return false;
        if (!is(c, kIdent)) return true;
        const char* word = word_before(to);
        return precedes_value(word, static_cast<std::size_t>(to - word));
    }

    void number() {
        const char* start = p_;
        if (out_[-1] == '.') {
            const char before = out_[-2];
            if (is(before, kIdent) || before == '`' || before == '"' || before == ')' || before == ']') {
                return identifier();  // t.1a
            }
            if (p_ > begin_ && p_[-1] == '.') {  // .5
                start = p_ - 1;
                --out_;
            }
        } else if (out_[-1] == '@' || (kMysql && out_[-1] == ':')) {
            return identifier();  // @1, :1; PostgreSQL's a[1:2] is two numbers
        }
        const char* end = number_end<D>(start, end_);
        if (end == nullptr) return identifier();
        add_number(start, end);
        put('?');
        p_ = end;
    }

    void identifier() noexcept {
        const char* from = p_;
        while (p_ < end_ && is(*p_, kIdent)) ++p_;
        copy_run(from, p_);
    }

    void add_number(const char* from, const char* to) {
        const char* digits = from + (*from == '-' ? 1 : 0);
        const std::string_view all(from, static_cast<std::size_t>(to - from));
        if (to - digits <= 2 || digits[0] != '0' || is(digits[1], kDigit) || digits[1] == '.' ||
            lower(digits[1]) == 'e' || digits[1] == '_')
            return add(all, LiteralKind::number, 0);
        const char base = lower(digits[1]);
        const std::string_view text(digits + 2, static_cast<std::size_t>(to - digits - 2));
        if (base == 'o' || (!kMysql && text.find('_') != std::string_view::npos))
            return add(all, LiteralKind::string, 0, false);  // seldom enough to be left as it is written
        return add(text, base == 'x' ? LiteralKind::hex : LiteralKind::bits, 0);
    }

    void add(std::string_view text, LiteralKind kind, char quote, bool backslashes = false) {
        ++result_.literal_count_;
        if (result_.literals_.size() < kMaxSqlLiterals)
            result_.literals_.push_back({text, kind, quote, backslashes});
    }

    // What stands in front of a string and belongs to it: its length in the output, and what it means.
    struct Prefix {
        std::size_t size = 0;
        LiteralKind kind = LiteralKind::string;
        bool escapes = false;  // E'..': whatever the connection says
    };

    Prefix prefix() const noexcept {
        Prefix found;
        const char* word = word_before(out_);
        auto size = static_cast<std::size_t>(out_ - word);
        if (size == 0) {  // an introducer may be followed by a blank
            const char* to = without_blank(out_);
            word = word_before(to);
            if (kMysql && to != out_ && to - word > 1 && *word == '_' && (word == base_ || word[-1] != '.')) {
                found.size = static_cast<std::size_t>(out_ - word);
            }
            return found;
        }
        if (size == 1) {
            const char c = lower(*word);
            if (c == 'x' || c == 'b') {
                found.size = 1;
                found.kind = c == 'x' ? LiteralKind::hex : LiteralKind::bits;
            } else if (c == 'n' || c == 'e') {
                if (c == 'n' || !kMysql) found.size = 1;
                if (c == 'e' && !kMysql) found.escapes = true;
            }
        } else if (kMysql && *word == '_') {
            found.size = size;
        }
        return found;
    }

    static bool all_digits(const char* from, const char* to, LiteralKind kind) noexcept {
        for (; from < to; ++from) {
            if (kind == LiteralKind::bits ? (*from != '0' && *from != '1') : !is_hex(*from)) return false;
        }
        return true;
    }

    void string() {
        const Prefix before = prefix();
        out_ -= before.size;
        p_ = take_string(p_, before);
        put('?');
    }

    // Where it is in doubt whether a byte belongs to the one in front: the whole text may settle that it does not.
    bool settled_by_text() noexcept {
        if (!two_byte_ || strings_.two_byte == TwoByte::yes ||
            !is_utf8({begin_, static_cast<std::size_t>(end_ - begin_)}))
            return false;
        two_byte_ = false;
        return true;
    }

    // Records the string whose opening quote is at `p`; returns one past its closing quote.
    const char* take_string(const char* p, const Prefix& before) {
        const char quote = *p;
        bool escapes = false;
        const char* inside = p + 1;
        const bool escape_string =
            before.escapes || (escape_string_end_ != nullptr && escape_string_end_ < p &&
                               continues_string(escape_string_end_, p));
        const Backslash backslash = escape_string ? Backslash::escapes : strings_.backslash;
        const char* close = closing_quote(inside, end_, quote, backslash, two_byte_, escapes);
        if (close == nullptr && settled_by_text())
            close = closing_quote(inside, end_, quote, backslash, two_byte_, escapes);
        if (close == nullptr) {
            result_.doubtful_ = true;
            return end_;
        }
        auto kind = before.kind;
        if (kind != LiteralKind::string && (close == inside || !all_digits(inside, close, kind)))
            kind = LiteralKind::string;
        if (kind == LiteralKind::string && escapes) kind = LiteralKind::escaped;
        const bool unescape = backslash == Backslash::escapes || (kMysql && backslash == Backslash::unknown);
        add({inside, static_cast<std::size_t>(close - inside)}, kind, quote, unescape);
        if (close == end_) return end_;
        if (escape_string) escape_string_end_ = close + 1;
        return close + 1;
    }

    // Ends the reading where the backtick may be the second byte of a character.
    bool backtick_in_doubt(const char* at) noexcept {
        if (!kMysql || !two_byte_ || at == begin_ || !may_lead(at[-1]) || settled_by_text()) return false;
        result_.doubtful_ = true;
        p_ = end_;
        return true;
    }

    void quoted_identifier(char quote) noexcept {
        const char* p = p_ + 1;
        if (backtick_in_doubt(p_)) return;
        while (p < end_) {
            const auto* close =
                static_cast<const char*>(std::memchr(p, quote, static_cast<std::size_t>(end_ - p)));
            if (close == nullptr) {
                p = end_;
                break;
            }
            if (backtick_in_doubt(close)) return;
            p = close + 1;
            if (p >= end_ || *p != quote) break;
            ++p;
        }
        copy_run(p_, p);
        p_ = p;
    }

    void dollar() {
        const char* q = p_ + 1;
        if (is(out_[-1], kIdent) && out_[-1] != '?') return copy_one();  // inside of an identifier
        if (q < end_ && is(*q, kDigit)) {
            while (q < end_ && is(*q, kDigit)) ++q;
            ++result_.placeholders_;
            put('?');
            p_ = q;
            return;
        }
        while (q < end_ && is(*q, kIdent) && *q != '$') ++q;
        if (q >= end_ || *q != '$') return copy_one();
        const std::string_view tag(p_, static_cast<std::size_t>(q + 1 - p_));
        const std::string_view rest(q + 1, static_cast<std::size_t>(end_ - q - 1));
        const auto at = rest.find(tag);
        const auto size = at == std::string_view::npos ? rest.size() : at;
        add(rest.substr(0, size), LiteralKind::string, 0, false);
        put('?');
        p_ = at == std::string_view::npos ? end_ : rest.data() + at + tag.size();
    }

    void trim() noexcept {
        while (out_ > base_ && (out_[-1] == ' ' || out_[-1] == ';')) --out_;
    }

    SqlFingerprinter& result_;
    const SqlStrings strings_;
    bool two_byte_;                            // a byte from 0x80 on may take the next one with it
    const char* escape_string_end_ = nullptr;  // one past the last string that was E'..' or went on with one
    const char* begin_;
    const char* p_;
    const char* end_;
    char* base_;
    char* out_;
    char close_ = '(';  // ')' while inside a row behind VALUES that is not plain values
};

}  // namespace tapscope::sql
