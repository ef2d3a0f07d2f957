// What a C-JDBC command says: statement, parameters, names.
#include <algorithm>

#include "dissect/cjdbc_state.hpp"
#include "dissect/sql_evidence.hpp"
#include "evidence.hpp"
#include "hash.hpp"

namespace tapscope {

using namespace cjdbc;

namespace {

// Java's modified UTF-8 has NUL as C0 80 and characters beyond the BMP as two surrogates of three bytes each.
bool is_modified(std::string_view text) noexcept {
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
        const auto c = static_cast<unsigned char>(text[i]), next = static_cast<unsigned char>(text[i + 1]);
        if ((c == 0xC0 && next == 0x80) || (c == 0xED && next >= 0xA0)) return true;
    }
    return false;
}

std::uint32_t surrogate(const unsigned char* p) noexcept {
    return (static_cast<std::uint32_t>(p[1]) & 0x3F) << 6 | (p[2] & 0x3Fu);
}

// In place: it only gets shorter.
void to_utf8(std::string& text) {
    std::size_t to = 0;
    const auto* p = reinterpret_cast<const unsigned char*>(text.data());
    for (std::size_t i = 0; i < text.size();) {
        if (p[i] == 0xC0 && i + 1 < text.size() && p[i + 1] == 0x80) {
            text[to++] = '\0';
            i += 2;
        } else if (p[i] == 0xED && i + 5 < text.size() && p[i + 1] >= 0xA0 && p[i + 1] < 0xB0 &&
                   p[i + 3] == 0xED && p[i + 4] >= 0xB0) {
            const std::uint32_t high = surrogate(p + i) & 0x3FF, low = surrogate(p + i + 3) & 0x3FF;
            const std::uint32_t c = 0x10000 + (high << 10) + low;
            text[to++] = static_cast<char>(0xF0 | c >> 18);
            text[to++] = static_cast<char>(0x80 | (c >> 12 & 0x3F));
            text[to++] = static_cast<char>(0x80 | (c >> 6 & 0x3F));
            text[to++] = static_cast<char>(0x80 | (c & 0x3F));
            i += 6;
        } else {
            text[to++] = text[i++];
        }
    }
    text.resize(to);
}

// Parameters stand in the text as <!%I|5|!%>: a letter for the type, the value, and these marks.
constexpr std::string_view kOpen = "<!%", kClose = "|!%>";

struct Parameter {
    char type;
    std::string_view value;
};

// Takes the text up to the next parameter off `text`; false when there is none.
bool next_parameter(std::string_view& text, std::string_view& before, Parameter& parameter) noexcept {
    const std::size_t open = text.find(kOpen);
    if (open == std::string_view::npos || open + 5 > text.size() || text[open + 4] != '|') return false;
    const std::size_t close = text.find(kClose, open + 4);
    if (close == std::string_view::npos) return false;
    before = text.substr(0, open);
    parameter.type = text[open + 3];
    const std::size_t value = open + 5;  // an empty one shares its bar with the end mark
    parameter.value = close > value ? text.substr(value, close - value) : std::string_view{};
    text.remove_prefix(close + kClose.size());
    return true;
}

// The driver writes SQL NULL as a text "N|".
bool is_null(const Parameter& parameter) noexcept {
    return parameter.type == 'N' || parameter.type == 'n' || parameter.value == "N|";
}
bool is_number(char type) noexcept {
    return std::string_view("b01DFILs").find(type) != std::string_view::npos;
}

// The statement with its parameters written as literals, as the driver itself writes them otherwise.
void write_out(std::string_view text, std::string& out) {
    std::string_view before;
    Parameter parameter{};
    while (next_parameter(text, before, parameter)) {
        out.append(before);
        if (is_null(parameter)) {
            out.append("NULL");
        } else if (is_number(parameter.type)) {
            out.append(parameter.value);
        } else {
            out.push_back('\'');
            for (const char c : parameter.value) {
                if (c == '\'' || c == '\\') out.push_back(c);
                out.push_back(c);
            }
            out.push_back('\'');
        }
    }
    out.append(text);
}

}  // namespace

void CjdbcDissector::statement(bool cut, Recorder& recorder) {
    State& st = *state_;
    Side& side = st.side(Direction::to_server);
    std::string& text = side.text.value;
    if (cut) recorder.count("cjdbc.statement_cut");
    if (is_modified(text)) to_utf8(text);
    std::string_view sql = text;
    if (sql.find(kOpen) != std::string_view::npos) {
        st.sql.clear();
        write_out(sql, st.sql);
        sql = st.sql;
    }
    std::string& name = recorder.scratch.class_text;
    name.assign(st.command->name).append(" ");
    name.append(
        statement_evidence(recorder, side.message, sql, cut, SqlDialect::mysql, kAnyDatabase).fingerprint());
    set_class(name, recorder);
    if (text.capacity() > 8 * 1024) text = {};
    if (st.sql.capacity() > 8 * 1024) st.sql = {};
}

// Sequoia sends the parameters of a statement behind it.
void CjdbcDissector::parameters(Recorder& recorder) {
    Side& side = state_->side(Direction::to_server);
    std::string_view text = side.text.value, before;
    Parameter parameter{};
    for (std::uint32_t slot = 0; slot < kMaxParameterTokens && next_parameter(text, before, parameter);
         ++slot)
        if (!is_null(parameter))
            parameter_token(recorder, side.message, slot, is_number(parameter.type), parameter.value);
}

// A cursor or savepoint, a catalog, a property: what a command is about.
void CjdbcDissector::named(Recorder& recorder) {
    State& st = *state_;
    Side& side = st.side(Direction::to_server);
    const std::string_view name = side.text.value;
    const auto command = static_cast<Command>(st.command->code);
    const bool fetches = command == Command::fetch_next;
    const bool cursor = fetches || command == Command::close_result_set;
    recorder.token(side.message, slot_of_name("name"), TokenKind::text, as_bytes(name),
                   cursor || looks_like_id(name));
    if (!cursor) return;
    st.cursor_asked = text_hash(name);
    const State::OpenCursor* open = st.find_cursor(st.cursor_asked);
    if (!fetches || open == nullptr || open->fetch_class == kNoClass) return;
    st.command_class = open->fetch_class;
    recorder.set_class(side.message, open->fetch_class);
}

// The answer being read leaves a cursor open: its rows will come without their types.
void CjdbcDissector::keep_cursor(Recorder& recorder) {
    State& st = *state_;
    std::int32_t fetch_class = kNoClass;
    if (st.answered != nullptr && st.command_class != kNoClass) {
        std::string_view text = recorder.classes.entries()[static_cast<std::size_t>(st.command_class)].text;
        const std::size_t blank = text.find(' ');
        if (blank != std::string_view::npos) text.remove_prefix(blank + 1);
        std::string& name = recorder.scratch.class_text;
        name.assign("FetchNextResultSetRows ").append(text);
        fetch_class = recorder.classes.id(protocol, name);
    }
    st.drop_cursor(st.cursor_name);
    if (st.cursors.size() >= State::kMaxCursors) {
        recorder.count("cjdbc.cursor_evicted");
        st.cursors.erase(st.cursors.begin());
    }
    st.cursors.push_back({st.cursor_name, fetch_class, st.types});
}

}  // namespace tapscope
