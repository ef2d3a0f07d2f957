// Avatica's JSON: members are found by the names of the objects and arrays around them.
#include <array>

#include "dissect/avatica_wire.hpp"
#include "dissect/json_scan.hpp"
#include "dissect/sql_evidence.hpp"

namespace tapscope::avatica {

namespace {

using Kind = JsonScanner::Kind;

// Member names that matter.
enum class Key : std::uint8_t {
    none,
    request,
    response,
    connection_id,
    statement_id,
    id,
    type,
    sql,
    sql_commands,
    parameter_values,
    value,
    statement_handle,
    statement,
    signature,
    rows,
    error_message,
    missing_statement,
};

Key key_of(std::string_view name) noexcept {
    switch (name.size()) {
        case 2:
            return name == "id" ? Key::id : Key::none;
        case 3:
            return name == "sql" ? Key::sql : Key::none;
        case 4:
            return name == "rows" ? Key::rows : name == "type" ? Key::type : Key::none;
        case 5:
            return name == "value" ? Key::value : Key::none;
        case 7:
            return name == "request" ? Key::request : Key::none;
        case 8:
            return name == "response" ? Key::response : Key::none;
        case 9:
            return name == "statement" ? Key::statement : name == "signature" ? Key::signature : Key::none;
        case 11:
            return name == "statementId"   ? Key::statement_id
                   : name == "sqlCommands" ? Key::sql_commands
                                           : Key::none;
        case 12:
            return name == "connectionId"   ? Key::connection_id
                   : name == "errorMessage" ? Key::error_message
                                            : Key::none;
        case 15:
            return name == "statementHandle"   ? Key::statement_handle
                   : name == "parameterValues" ? Key::parameter_values
                                               : Key::none;
        case 16:
            return name == "missingStatement" ? Key::missing_statement : Key::none;
        default:
            return Key::none;
    }
}

// Where the scanner stands: the containers around the next value, outermost first.
class Place {
public:
    static constexpr std::size_t kMaxDepth = 24;  // deeper values are passed over
    struct Level {
        bool array;
        Key key;              // the member that the container is the value of
        std::uint32_t index;  // array: elements passed
    };

    // Moves on by a token that opens or closes a container; true when `token` is a value.
    bool moves(const JsonScanner::Token& token) noexcept {
        switch (token.kind) {
            case Kind::key:
                key_ = key_of(token.text);
                return false;
            case Kind::begin_object:
            case Kind::begin_array:
                if (depth_ < kMaxDepth) levels_[depth_] = {token.kind == Kind::begin_array, key_, 0};
                ++depth_;
                key_ = Key::none;
                return false;
            case Kind::end_object:
            case Kind::end_array:
                if (depth_ > 0) --depth_;
                passed();
                return false;
            default:
                return true;
        }
    }
    // A value ends here.
    void passed() noexcept {
        key_ = Key::none;
        if (depth_ > 0 && depth_ <= kMaxDepth && levels_[depth_ - 1].array) ++levels_[depth_ - 1].index;
    }

    Key key() const noexcept { return key_; }
    std::size_t depth() const noexcept { return depth_; }
    // The `up`-th container from the innermost (0) outwards.
    const Level* around(std::size_t up) const noexcept {
        return depth_ > up && depth_ <= kMaxDepth ? &levels_[depth_ - 1 - up] : nullptr;
    }
    bool inside(std::size_t up, Key key) const noexcept {
        const Level* level = around(up);
        return level != nullptr && level->key == key;
    }

private:
    std::array<Level, kMaxDepth> levels_{};
    std::size_t depth_ = 0;
    Key key_ = Key::none;
};

// The text of a string token; views into `arena`, which never grows beyond what it has reserved.
std::string_view text_of(const JsonScanner::Token& token, std::string& arena) {
    if (!token.escaped) return token.text;
    const std::size_t from = arena.size();
    append_json_text(token.text, arena);
    return std::string_view(arena).substr(from);
}

bool is_integer(std::string_view number) noexcept {
    return number.find_first_of(".eE") == std::string_view::npos;
}

// Dates and times come as numbers of days or milliseconds, bytes in base64: nobody else writes them so.
bool is_evidence(std::string_view type) noexcept {
    return !type.starts_with("JAVA_") && type != "BYTE_STRING";
}

std::int64_t small_number(const JsonScanner::Token& token) noexcept {
    std::int64_t value = 0;
    if (token.kind != Kind::number || token.text.size() > 10) return -1;
    for (const char c : token.text) {
        if (c < '0' || c > '9') return -1;
        value = value * 10 + (c - '0');
    }
    return value;
}

}  // namespace

bool read_json_request(std::string_view body, Request& request) {
    JsonScanner scanner(body);
    Place place;
    std::uint32_t rows = 0;
    std::string_view type;  // of the next value
    for (JsonScanner::Token token = scanner.next(); token.kind != Kind::end && token.kind != Kind::bad;
         token = scanner.next()) {
        if (!place.moves(token)) continue;
        const bool text = token.kind == Kind::string;
        const bool handle = place.depth() == 2 && place.inside(0, Key::statement_handle);
        if (place.depth() == 1 || handle) {
            if (place.key() == Key::request && text && !token.cut) {
                request.name = token.text;
            } else if (place.key() == Key::connection_id && text && !token.cut) {
                request.connection = text_of(token, request.arena);
            } else if (place.key() == (handle ? Key::id : Key::statement_id)) {
                request.statement = small_number(token);
            } else if (place.key() == Key::sql && text) {
                request.sql = text_of(token, request.arena);
                request.sql_cut = token.cut;
            }
        } else if (place.key() == Key::sql && text && place.inside(0, Key::signature) &&
                   place.inside(1, Key::statement_handle)) {
            request.sql = text_of(token, request.arena);
            request.sql_cut = token.cut;
        } else if (place.inside(0, Key::sql_commands) && text) {
            if (request.commands.size() < kMaxBatch) {
                request.commands.push_back(text_of(token, request.arena));
                request.sql_cut = request.sql_cut || token.cut;
            }
        } else if (place.key() == Key::type && text) {
            type = token.text;
        } else if (place.key() == Key::value && !token.cut && token.kind != Kind::literal &&
                   is_evidence(type)) {
            // parameterValues is an array of values, or for a batch one of arrays of values.
            const bool row = place.inside(2, Key::parameter_values);
            if ((row || place.inside(1, Key::parameter_values)) && place.around(1)->array) {
                if (row) rows = place.around(2)->index;
                if (rows < kMaxBatch && request.parameters.size() < kMaxParameterTokens)
                    request.parameters.push_back(
                        {place.around(1)->index, !text, text_of(token, request.arena)});
            }
        }
        place.passed();
    }
    return !request.name.empty();
}

bool read_json_answer(std::string_view body, Answer& answer) {
    JsonScanner scanner(body);
    Place place;
    for (JsonScanner::Token token = scanner.next(); token.kind != Kind::end && token.kind != Kind::bad;
         token = scanner.next()) {
        if (!place.moves(token)) continue;
        const bool text = token.kind == Kind::string;
        if (place.depth() == 1 && place.key() == Key::response && text) {
            answer.known = true;
            answer.error = token.text == "error";
        } else if (place.key() == Key::missing_statement && token.text == "true") {
            answer.missing_statement = true;
        } else if ((place.depth() == 1 && place.key() == Key::statement_id) ||
                   (place.depth() == 2 && place.key() == Key::id && place.inside(0, Key::statement))) {
            answer.statement = small_number(token);
        } else if (place.inside(1, Key::rows) && place.around(0)->array && place.around(1)->array &&
                   wants_result(place.around(1)->index, place.around(0)->index,
                                static_cast<std::uint32_t>(answer.results.size())) &&
                   !token.cut && (text || (token.kind == Kind::number && is_integer(token.text)))) {
            const std::string_view value = text_of(token, answer.arena);
            if (!value.empty() && value.size() <= kMaxResultText)
                answer.results.push_back({place.around(0)->index, !text, value});
        }
        place.passed();
    }
    return answer.known;
}

}  // namespace tapscope::avatica
