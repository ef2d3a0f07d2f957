// The values that lists hold: what counts as one, and what may stand behind it.
#pragma once

#include <string_view>

#include "sql_tokens.hpp"

namespace tapscope::sql {

template <SqlDialect D>
class SqlElements : protected SqlTokens<D> {
protected:
    using Tokens = SqlTokens<D>;
    using Prefix = typename Tokens::Prefix;
    using Tokens::add_number;
    using Tokens::behind_blanks;
    using Tokens::end_;
    using Tokens::kMysql;
    using Tokens::p_;
    using Tokens::result_;
    using Tokens::take_string;
    using Tokens::Tokens;

    static bool is_value_word(const char* word, std::size_t size) noexcept {
        return equals_folded(word, size, "null") || equals_folded(word, size, "true") ||
               equals_folded(word, size, "false") || equals_folded(word, size, "default");
    }

    // One value of a list; a literal is recorded. `calls`: how deep functions of values may stand inside one another.
    bool element(int calls) {
        char c = *p_;
        if (c == '?') {
            ++result_.placeholders_;
            ++p_;
            return true;
        }
        if (c == '\'' || (kMysql && c == '"')) {
            p_ = take_string(p_, Prefix{});
            return true;
        }
        const char* start = p_;
        if ((c == '-' || c == '+') && p_ + 1 < end_) c = p_[1];
        if (is(c, kDigit) || c == '.') {
            const char* digits = is(*start, kDigit) || *start == '.' ? start : start + 1;
            if (*digits == '.' && !(digits + 1 < end_ && is(digits[1], kDigit))) return false;
            const char* end = number_end<D>(digits, end_);
            if (end == nullptr) return false;
            add_number(*start == '+' ? digits : start, end);
            p_ = end;
            return true;
        }
        if (!kMysql && c == '$' && p_ + 1 < end_ && is(p_[1], kDigit)) {
            ++p_;
            while (p_ < end_ && is(*p_, kDigit)) ++p_;
            ++result_.placeholders_;
            return true;
        }
        if (!is(c, kIdent) || start != p_) return false;
        return word_element(calls);
    }

    // NULL, TRUE, FALSE, DEFAULT, or a string with a prefix.
    bool word_element(int calls) {
        const char* from = p_;
        const char* to = from;
        while (to < end_ && is(*to, kIdent)) ++to;
        const auto size = static_cast<std::size_t>(to - from);
        if (is_value_word(from, size)) {
            p_ = to;
            return true;
        }
        if (calls > 0 && to < end_ && *to == '(') {
            p_ = to;
            return arguments(calls - 1);
        }
        Prefix before;
        const char* quote = to;
        if (size == 1) {
            const char c = lower(*from);
            if (c == 'x')
                before.kind = LiteralKind::hex;
            else if (c == 'b')
                before.kind = LiteralKind::bits;
            else if (c == 'e' && !kMysql)
                before.escapes = true;
            else if (c != 'n')
                return false;
        } else if ((kMysql && *from == '_') || names_type(from, size)) {
            while (quote < end_ && is(*quote, kSpace)) ++quote;
        } else {
            return false;
        }
        if (quote >= end_ || (*quote != '\'' && !(kMysql && *quote == '"'))) return false;
        p_ = take_string(quote, before);
        return true;
    }

    // Of a function of values, such as UUID_TO_BIN(?) and CAST(? AS CHAR(36)); p_ at the parenthesis.
    bool arguments(int calls) {
        do {
            p_ = behind_blanks(p_ + 1);
            if (p_ >= end_ || !element(calls) || (!kMysql && !casts())) return false;
            p_ = behind_blanks(p_);
            if (p_ < end_ && is(*p_, kIdent) && !converted()) return false;
        } while (p_ < end_ && *p_ == ',');
        if (p_ >= end_ || *p_ != ')') return false;
        ++p_;
        return true;
    }

    // AS TYPE, USING CHARSET.
    bool converted() noexcept {
        const char* to = p_;
        while (to < end_ && is(*to, kIdent)) ++to;
        const auto size = static_cast<std::size_t>(to - p_);
        return (equals_folded(p_, size, "as") || equals_folded(p_, size, "using")) && type(to);
    }

    // DATE '2026-11-21' and the like.
    static bool names_type(const char* word, std::size_t size) noexcept {
        return equals_folded(word, size, "date") || equals_folded(word, size, "time") ||
               equals_folded(word, size, "timestamp") || equals_folded(word, size, "timestamptz");
    }

    // Takes the casts behind a value of a list away: `::numeric(10, 2)`, `::timestamp with time zone[]`. False when
    // what follows is more than a type.
    bool casts() noexcept {
        const char* p = behind_blanks(p_);
        return end_ - p < 3 || p[0] != ':' || p[1] != ':' || type(p);
    }

    // The name of a type from `p` up to what ends a value of a list.
    bool type(const char* p) noexcept {
        int depth = 0;
        for (; p < end_; ++p) {
            const char c = *p;
            if (c == '(' || c == '[') {
                ++depth;
            } else if (c == ')' || c == ']') {
                if (depth-- == 0) break;
            } else if (c == ',') {
                if (depth == 0) break;
            } else if (!is(c, kIdent | kSpace) && c != ':' && c != '.' && c != '"') {
                return false;
            }
        }
        p_ = p;
        return true;
    }
};

}  // namespace tapscope::sql
