#include "sql_fingerprint.hpp"

#include "sql_elements.hpp"
#include "sql_names.hpp"

namespace tapscope::sql {

// One scan: tokens one after the other, lists of values folded.
template <SqlDialect D>
class SqlScanner : SqlElements<D> {
public:
    SqlScanner(SqlFingerprinter& result, std::string_view text, bool cut) : Tokens(result, text), cut_(cut) {}

    void run() {
        skip_space();
        if (p_ < end_) {
            const char* special = first_is_special() ? p_ : find_special<D>(p_ + 1, end_, close_);
            for (;;) {
                copy_run(p_, special);
                p_ = special;
                if (p_ >= end_) break;
                handle();
                if (p_ >= end_) break;
                // The byte behind a handled token is judged by itself: what stands before it is not plain text.
                special = first_is_special() ? p_ : find_special<D>(p_ + 1, end_, close_);
            }
        }
        finish();
    }

private:
    using Tokens = SqlElements<D>;
    using Tokens::base_;
    using Tokens::behind_blanks;
    using Tokens::blanks;
    using Tokens::casts;
    using Tokens::close_;
    using Tokens::copy_one;
    using Tokens::copy_run;
    using Tokens::dollar;
    using Tokens::element;
    using Tokens::end_;
    using Tokens::first_is_special;
    using Tokens::is_value_word;
    using Tokens::kMysql;
    using Tokens::line_comment;
    using Tokens::minus;
    using Tokens::number;
    using Tokens::out_;
    using Tokens::p_;
    using Tokens::put;
    using Tokens::quoted_identifier;
    using Tokens::result_;
    using Tokens::skip_space;
    using Tokens::slash;
    using Tokens::string;
    using Tokens::trim;
    using Tokens::without_blank;
    using Tokens::word_before;

    void handle() {
        const char c = *p_;
        if (is(c, kDigit)) return number();
        switch (c) {
            case '\'':
                return string();
            case '"':
                if constexpr (kMysql) return string();
                return quoted_identifier('"');
            case '`':
                if constexpr (kMysql) return quoted_identifier('`');
                return copy_one();
            case '/':
                return slash();
            case '-':
                return minus();
            case '#':
                if constexpr (kMysql) return line_comment();
                return copy_one();
            case '(':
                return open();
            case ')':
                return close();
            case '?':
                ++result_.placeholders_;
                return copy_one();
            case '$':
                if constexpr (!kMysql) return dollar();
                return copy_one();
            case '[':
                if constexpr (!kMysql) return array();
                return copy_one();
            default:
                return blanks();
        }
    }

    // ---- lists ------------------------------------------------------------------------------------------------

    enum class List : std::uint8_t { none, in, values, values_row };
    static constexpr int kMostCalls = 3;  // of functions inside one another, in a list that is folded

    List list_before() const noexcept {
        const char* to = without_blank(out_);
        const char last = lower(to[-1]);
        if (last == 'w') return row_behind_values(to) ? List::values_row : List::none;
        if (last != 'n' && last != 's' && last != 'e') return List::none;
        const char* word = word_before(to);
        if (word > base_ && (word[-1] == '.' || word[-1] == '@')) return List::none;
        const auto size = static_cast<std::size_t>(to - word);
        if (size == 2) return equals_folded(word, size, "in") ? List::in : List::none;
        if (equals_folded(word, size, "values") || equals_folded(word, size, "value")) return List::values;
        return List::none;
    }

    // VALUES ROW(1, 2), ROW(3, 4): is `to` behind such a ROW?
    bool row_behind_values(const char* to) const noexcept {
        const char* word = word_before(to);
        if (!equals_folded(word, static_cast<std::size_t>(to - word), "row")) return false;
        to = without_blank(word);
        word = word_before(to);
        return equals_folded(word, static_cast<std::size_t>(to - word), "values");
    }

    void open() {
        if (depth_ > 0) ++depth_;
        const List kind = list_before();
        if (kind == List::none) return copy_one();
        if (kind != List::in) {
            if (depth_ > 0) return copy_one();
            row_kept_ = nullptr;
            row_ = kind == List::values ? out_ : base_ + (word_before(without_blank(out_)) - base_);
            return row();
        }
        if (!try_list(List::in)) return copy_one();
        if (depth_ > 0) --depth_;  // its closing parenthesis is consumed
    }

    void close() {
        put(*p_++);
        if (depth_ > 0 && --depth_ == 0) {
            close_ = '(';
            fold_words();
            after_row();
        }
    }

    // ARRAY[1, 2, 3] is a list like that of IN; an index or an array of anything else stays.
    void array() {
        const char* to = without_blank(out_);
        const char* word = word_before(to);
        if (equals_folded(word, static_cast<std::size_t>(to - word), "array") && try_list(List::in, '[', ']'))
            return;
        copy_one();
    }

    // A row behind VALUES, p_ at its opening parenthesis. Its output begins at row_.
    void row() {
        if (try_list(List::values)) return after_row();
        depth_ = 1;
        close_ = ')';
        copy_one();
    }

    // NULL, TRUE, FALSE and DEFAULT as elements of a row that holds more than values: values here, too, or a class
    // would tell which rows had none.
    void fold_words() noexcept {
        char* to = row_;
        char* first = row_;
        int depth = 0;
        for (const char* from = row_; from < out_;) {
            const char c = *from;
            if (c == '"' || c == '`') {  // a name
                do *to++ = *from++;
                while (from < out_ && *from != c);
            } else if ((c == ',' || c == ')') && depth == 1) {
                char* end = to;
                while (end > first && end[-1] == ' ') --end;
                while (first < end && *first == ' ') ++first;
                if (is_value_word(first, static_cast<std::size_t>(end - first))) {
                    *first = '?';
                    to = first + 1;
                }
            }
            if (from == out_) break;
            depth += *from == '(' ? 1 : *from == ')' ? -1 : 0;
            *to++ = *from++;
            if (depth == 1 && (c == '(' || c == ',')) first = to;
        }
        out_ = to;
    }

    void after_row() {
        for (;;) {
            if (result_.doubtful_) {
                if (row_kept_ != nullptr) out_ = row_kept_ + row_kept_size_;
                return;
            }
            const auto size = static_cast<std::size_t>(out_ - row_);
            if (row_kept_ != nullptr && size == row_kept_size_ && std::memcmp(row_, row_kept_, size) == 0) {
                out_ = row_kept_ + row_kept_size_;
            } else {
                row_kept_ = row_;
                row_kept_size_ = size;
            }
            const char* q = behind_blanks(p_);
            if (q >= end_ || *q != ',') return;
            q = behind_blanks(q + 1);
            if (q >= end_) {
                if (ends_early()) p_ = end_;
                return;
            }
            const char* const word = q;
            if (end_ - q > 3 && equals_folded(q, 3, "row")) q = behind_blanks(q + 3);
            if (q >= end_ || *q != '(') return;
            put(',');
            put(' ');
            row_ = out_;
            if (q != word) copy_run(word, word + 3);
            p_ = q;
            if (!try_list(List::values)) {
                depth_ = 1;
                close_ = ')';
                copy_one();
                return;
            }
        }
    }

    // Takes a parenthesised list of nothing but values, p_ at its opening parenthesis. When it is something else,
    // nothing is consumed.
    bool try_list(List kind, char opening = '(', char closing = ')') {
        char* const out = out_;
        const char* const p = p_;
        const std::size_t recorded = result_.literals_.size();
        const std::size_t count = result_.literal_count_;
        const std::uint32_t placeholders = result_.placeholders_;
        if (list(kind, 0, opening, closing)) return true;
        out_ = out;
        p_ = p;
        result_.literals_.resize(recorded);
        result_.literal_count_ = count;
        result_.placeholders_ = placeholders;
        return false;
    }

    bool list(List kind, int level, char opening = '(', char closing = ')') {
        ++p_;
        put(opening);
        if (kind == List::in && level == 0) {
            p_ = behind_blanks(p_);
            if (p_ < end_ && *p_ == '(') {  // rows: ((1, 2), (3, 4))
                char* const out = out_;
                for (;;) {
                    out_ = out;
                    if (!list(kind, 1)) return false;
                    p_ = behind_blanks(p_);
                    if (p_ >= end_) return ends_early() && finish_list();
                    if (*p_ == ')') break;
                    if (*p_ != ',') return false;
                    ++p_;
                    p_ = behind_blanks(p_);
                    if (p_ >= end_) return ends_early() && finish_list();
                    if (*p_ != '(') return false;
                }
                ++p_;
                put(')');
                return true;
            }
        }
        bool first = true;
        for (;;) {
            p_ = behind_blanks(p_);
            if (p_ >= end_) break;
            if (!element(kind == List::in ? kMostCalls : 0)) return false;
            if (!kMysql && kind == List::in && !casts()) return false;
            if (kind == List::values) {
                if (!first) {
                    put(',');
                    put(' ');
                }
                put('?');
            }
            first = false;
            p_ = behind_blanks(p_);
            if (p_ >= end_) break;
            if (*p_ == closing) {
                ++p_;
                if (kind == List::in) {
                    put('?');
                    put('+');
                }
                put(closing);
                return true;
            }
            if (*p_ != ',') return false;
            ++p_;
        }
        if (!ends_early() || first) return false;
        if (result_.doubtful_ && kind == List::values) return true;
        return kind == List::in && finish_in(closing);
    }

    bool finish_in(char closing) noexcept {
        put('?');
        put('+');
        put(closing);
        p_ = end_;
        return true;
    }

    bool finish_list() noexcept {
        put(')');
        p_ = end_;
        return true;
    }

    void finish() {
        if (ends_early()) {
            const bool row = depth_ > 0 && row_kept_ != nullptr;
            if (row) {
                out_ = row_kept_ + row_kept_size_;  // the row that the cut went through
            } else if (out_ > base_ && out_[-1] != ')') {
                while (out_ > base_ && is(out_[-1], kIdent)) --out_;
            }
            if (result_.doubtful_ || (!row && out_ > base_ && out_[-1] != ')')) {
                trim();
                for (const char c : {' ', '.', '.', '.'}) put(c);
            }
        }
        trim();
        result_.fingerprint_ = {base_, fold_made_up_name(base_, static_cast<std::size_t>(out_ - base_))};
    }

    bool ends_early() const noexcept { return cut_ || result_.doubtful_; }

    bool cut_;
    int depth_ = 0;             // parentheses open inside of a row behind VALUES that is not plain values
    char* row_ = nullptr;       // output of the row being read
    char* row_kept_ = nullptr;  // output of the last row that was kept
    std::size_t row_kept_size_ = 0;
};

}  // namespace tapscope::sql

namespace tapscope {

void SqlFingerprinter::scan(std::string_view text, SqlStrings strings, bool cut) {
    literals_.clear();
    rewritten_ = doubtful_ = false;
    text_ = text;
    strings_ = strings;
    if (!cut) {
        if (SqlMemo::Statement* known = memo_.find(text, strings, literals_)) {
            literal_count_ = literals_.size();
            placeholders_ = known->placeholders;
            class_id_ = &known->class_id;
            fingerprint_ = known->fingerprint;
            return;
        }
    }
    // A value of one byte becomes at most three (`?, `), and a list may grow by its `+`.
    const std::size_t wanted = 2 * text.size() + 64 + kSentinel;
    if (capacity_ < wanted) {
        capacity_ = std::max<std::size_t>(2 * wanted, 4096);
        buffer_ = std::make_unique_for_overwrite<char[]>(capacity_);
        std::memset(buffer_.get(), ' ', kSentinel);
    }
    literal_count_ = 0;
    placeholders_ = 0;
    class_id_ = nullptr;
    if (dialect_ == SqlDialect::mysql) {
        sql::SqlScanner<SqlDialect::mysql>(*this, text, cut).run();
    } else {
        sql::SqlScanner<SqlDialect::postgres>(*this, text, cut).run();
    }
    if (fingerprint_.empty()) fingerprint_ = "(empty)";
    if (!cut && !rewritten_ && !doubtful_ && literal_count_ == literals_.size())
        memo_.note(text, strings, literals_, fingerprint_, placeholders_);
}

}  // namespace tapscope
