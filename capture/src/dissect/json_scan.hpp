// A JSON text as a sequence of tokens, without a tree: https://www.rfc-editor.org/rfc/rfc8259
// The text may be the beginning of a longer one: what is cut off ends the sequence, a string that is cut comes with
// `cut`. Only as strict as is needed to find the values; nesting is not checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tapscope {

class JsonScanner {
public:
    enum class Kind : std::uint8_t {
        begin_object,
        end_object,
        begin_array,
        end_array,
        key,     // of a member; the ':' is taken too
        string,  // text: between the quotes, escapes as written
        number,
        literal,  // true, false, null
        end,      // of the text
        bad,
    };
    struct Token {
        Kind kind = Kind::end;
        bool escaped = false;   // a string or key with escapes inside
        bool cut = false;       // the string goes on behind the text
        std::string_view text;  // points into the text scanned
    };

    explicit JsonScanner(std::string_view text) noexcept : at_(text.data()), end_(at_ + text.size()) {}

    Token next() noexcept;

private:
    Token string() noexcept;
    void blanks() noexcept {
        while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
    }

    const char* at_;
    const char* end_;
};

// The text of a string with its escapes resolved, as UTF-8; a lone surrogate becomes U+FFFD. Appends to `out`.
void append_json_text(std::string_view escaped, std::string& out);

}  // namespace tapscope
