// Avatica's protocol buffers: field numbers by the .proto files of avatica-core (requests, responses, common).
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "dissect/avatica_wire.hpp"
#include "dissect/proto_wire.hpp"
#include "dissect/sql_evidence.hpp"
#include "evidence.hpp"

namespace tapscope::avatica {

namespace {

constexpr std::string_view kRequests = "org.apache.calcite.avatica.proto.Requests$";
constexpr std::string_view kResponses = "org.apache.calcite.avatica.proto.Responses$";

// Message name -> the name that JSON has for it, and the fields in which it carries what all of them carry (0: none).
struct Layout {
    std::string_view message, name;
    std::uint8_t connection, statement, sql;
};

constexpr std::array<Layout, 21> kLayouts = {{
    {"PrepareAndExecuteRequest", "prepareAndExecute", 1, 4, 2},
    {"PrepareRequest", "prepare", 1, 0, 2},
    {"ExecuteRequest", "execute", 0, 0, 0},
    {"FetchRequest", "fetch", 1, 2, 0},
    {"CreateStatementRequest", "createStatement", 1, 0, 0},
    {"CloseStatementRequest", "closeStatement", 1, 2, 0},
    {"OpenConnectionRequest", "openConnection", 1, 0, 0},
    {"CloseConnectionRequest", "closeConnection", 1, 0, 0},
    {"ConnectionSyncRequest", "connectionSync", 1, 0, 0},
    {"CommitRequest", "commit", 1, 0, 0},
    {"RollbackRequest", "rollback", 1, 0, 0},
    {"PrepareAndExecuteBatchRequest", "prepareAndExecuteBatch", 1, 2, 0},
    {"ExecuteBatchRequest", "executeBatch", 1, 2, 0},
    {"SyncResultsRequest", "syncResults", 1, 2, 0},
    {"DatabasePropertyRequest", "databaseProperties", 1, 0, 0},
    {"CatalogsRequest", "getCatalogs", 1, 0, 0},
    {"SchemasRequest", "getSchemas", 3, 0, 0},
    {"TablesRequest", "getTables", 7, 0, 0},
    {"TableTypesRequest", "getTableTypes", 1, 0, 0},
    {"TypeInfoRequest", "getTypeInfo", 1, 0, 0},
    {"ColumnsRequest", "getColumns", 5, 0, 0},
}};

// Representations (common.proto, Rep) that hold an integer; the ones of dates and times are no evidence.
bool is_integer(std::uint64_t rep) noexcept { return (rep >= 1 && rep <= 5) || (rep >= 9 && rep <= 13); }

bool is_floating(std::uint64_t rep) noexcept { return rep == 6 || rep == 7 || rep == 14 || rep == 15; }

constexpr std::uint64_t kByteString = 20, kBigInteger = 25, kBigDecimal = 26;

template <class T>
std::string_view decimal(T value, std::string& arena) {
    char buffer[32];
    const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
    const auto size = static_cast<std::size_t>(result.ptr - buffer);
    if (arena.capacity() - arena.size() < size) return {};  // views into it must stay valid
    const std::size_t from = arena.size();
    arena.append(buffer, size);
    return std::string_view(arena).substr(from);
}

struct Typed {
    enum class Kind : std::uint8_t { none, integer, decimal, text } kind = Kind::none;
    std::string_view text;
};

// TypedValue
Typed typed_value(Bytes bytes, std::string& arena) {
    ProtoReader reader(bytes);
    std::uint64_t rep = 0;
    std::string_view text;
    std::int64_t number = 0;
    double fraction = 0;
    bool has_text = false;
    while (reader.next() && !reader.cut()) {
        switch (reader.field()) {
            case 1:
                rep = reader.value();
                break;
            case 3:
                text = reader.text();
                has_text = true;
                break;
            case 4:
                number = reader.zigzag();
                break;
            case 6:
                fraction = std::bit_cast<double>(reader.value());
                break;
            case 7:
            case 10:
                if (reader.value() != 0) return {};
                break;
            default:
                break;
        }
    }
    if (reader.cut() || rep == kByteString) return {};
    if (has_text) {
        if (rep == kBigInteger) return {Typed::Kind::integer, text};
        return {rep == kBigDecimal ? Typed::Kind::decimal : Typed::Kind::text, text};
    }
    if (is_floating(rep)) {
        if (!std::isfinite(fraction)) return {};
        return {Typed::Kind::decimal, decimal(fraction, arena)};
    }
    if (!is_integer(rep)) return {};
    return {Typed::Kind::integer, decimal(number, arena)};
}

void add_parameter(Bytes bytes, std::uint32_t slot, Request& request) {
    if (request.parameters.size() >= kMaxParameterTokens) return;
    const Typed value = typed_value(bytes, request.arena);
    if (value.kind != Typed::Kind::none && !value.text.empty())
        request.parameters.push_back({slot, value.kind != Typed::Kind::text, value.text});
}

// StatementHandle
void statement_handle(Bytes bytes, Request& request) {
    request.statement = 0;
    ProtoReader reader(bytes);
    while (reader.next()) {
        if (reader.field() == 1) request.connection = reader.text();
        if (reader.field() == 2) request.statement = static_cast<std::int64_t>(reader.value() & 0xFFFFFFFF);
        if (reader.field() != 3) continue;
        ProtoReader signature(reader.bytes());
        while (signature.next()) {
            if (signature.field() != 2) continue;
            request.sql = signature.text();
            request.sql_cut = signature.cut();
        }
    }
}

void execute(Bytes message, Request& request) {
    ProtoReader reader(message);
    std::uint32_t slot = 0;
    while (reader.next()) {
        if (reader.field() == 1) statement_handle(reader.bytes(), request);
        if (reader.field() == 2) add_parameter(reader.bytes(), slot++, request);
    }
}

void batch(Bytes message, bool texts, Request& request) {
    ProtoReader reader(message);
    std::size_t rows = 0;
    while (reader.next()) {
        if (reader.field() != 3 || rows++ >= kMaxBatch) continue;
        if (texts) {
            request.commands.push_back(reader.text());
            request.sql_cut = request.sql_cut || reader.cut();
            continue;
        }
        ProtoReader row(reader.bytes());
        std::uint32_t slot = 0;
        while (row.next())
            if (row.field() == 1) add_parameter(row.bytes(), slot++, request);
    }
}

// Splits a WireMessage; `name` without `package`, empty when it is another one.
Bytes unwrap(Bytes body, std::string_view package, std::string_view& name) noexcept {
    ProtoReader reader(body);
    Bytes message;
    while (reader.next()) {
        if (reader.field() == 1 && !reader.cut() && reader.text().starts_with(package))
            name = reader.text().substr(package.size());
        if (reader.field() == 2) message = reader.bytes();
    }
    return message;
}

// Frame
void frame(Bytes bytes, Answer& answer) {
    ProtoReader reader(bytes);
    for (std::uint32_t at = 0; at < kMaxResultRows && reader.next();) {
        if (reader.field() != 3) continue;
        ProtoReader row(reader.bytes());
        const auto wants = [&](std::uint32_t column) {
            return wants_result(at, column, static_cast<std::uint32_t>(answer.results.size()));
        };
        for (std::uint32_t column = 0; wants(column) && row.next();) {
            if (row.field() != 1) continue;
            // The value stands in the new field and, for old clients, again in the deprecated one.
            ProtoReader value(row.bytes());
            Typed found, old;
            bool array = false;
            while (value.next() && !value.cut()) {
                if (value.field() == 1) old = typed_value(value.bytes(), answer.arena);
                if (value.field() == 4) found = typed_value(value.bytes(), answer.arena);
                array = array || (value.field() == 3 && value.value() != 0);
            }
            if (found.kind == Typed::Kind::none && !array) found = old;
            const bool usable = found.kind == Typed::Kind::integer || found.kind == Typed::Kind::text;
            if (usable && !found.text.empty() && found.text.size() <= kMaxResultText)
                answer.results.push_back({column, found.kind == Typed::Kind::integer, found.text});
            ++column;
        }
        ++at;
    }
}

// ResultSetResponse
void result_set(Bytes bytes, Answer& answer) {
    ProtoReader reader(bytes);
    answer.statement = 0;
    while (reader.next()) {
        if (reader.field() == 2) answer.statement = static_cast<std::int64_t>(reader.value() & 0xFFFFFFFF);
        if (reader.field() == 5) frame(reader.bytes(), answer);
    }
}

}  // namespace

bool read_proto_request(Bytes body, Request& request) {
    std::string_view name;
    const Bytes message = unwrap(body, kRequests, name);
    const Layout* layout = nullptr;
    for (const Layout& each : kLayouts)
        if (each.message == name) layout = &each;
    if (layout == nullptr) return false;
    request.name = layout->name;
    if (layout->message == "ExecuteRequest") {
        execute(message, request);
        return true;
    }
    if (layout->statement != 0) request.statement = 0;  // zero is not sent
    ProtoReader reader(message);
    while (reader.next()) {
        if (reader.field() == layout->connection) {
            if (!reader.cut()) request.connection = reader.text();
        } else if (reader.field() == layout->statement) {
            request.statement = static_cast<std::int64_t>(reader.value() & 0xFFFFFFFF);
        } else if (reader.field() == layout->sql) {
            request.sql = reader.text();
            request.sql_cut = reader.cut();
        }
    }
    if (layout->name == "prepareAndExecuteBatch") batch(message, true, request);
    if (layout->name == "executeBatch") batch(message, false, request);
    return true;
}

bool read_proto_answer(Bytes body, Answer& answer) {
    std::string_view name;
    const Bytes message = unwrap(body, kResponses, name);
    if (name.empty()) return false;
    answer.known = true;
    ProtoReader reader(message);
    if (name == "ErrorResponse") {
        answer.error = true;
    } else if (name == "ResultSetResponse") {
        result_set(message, answer);
    } else if (name == "ExecuteResponse") {
        while (reader.next()) {
            if (reader.field() == 1) result_set(reader.bytes(), answer);
            if (reader.field() == 2) answer.missing_statement = reader.value() != 0;
        }
    } else if (name == "FetchResponse") {
        while (reader.next()) {
            if (reader.field() == 1) frame(reader.bytes(), answer);
            if (reader.field() == 2) answer.missing_statement = reader.value() != 0;
        }
    } else if (name == "PrepareResponse") {
        while (reader.next()) {
            if (reader.field() != 1) continue;
            answer.statement = 0;
            ProtoReader handle(reader.bytes());
            while (handle.next())
                if (handle.field() == 2)
                    answer.statement = static_cast<std::int64_t>(handle.value() & 0xFFFFFFFF);
        }
    } else if (name == "CreateStatementResponse") {
        answer.statement = 0;
        while (reader.next())
            if (reader.field() == 2)
                answer.statement = static_cast<std::int64_t>(reader.value() & 0xFFFFFFFF);
    } else if (name == "ExecuteBatchResponse") {
        while (reader.next())
            if (reader.field() == 4) answer.missing_statement = reader.value() != 0;
    }
    return true;
}

// ---- either coding --------------------------------------------------------------------------------------------------

void Request::clear(std::size_t body) {
    name = connection = sql = {};
    statement = -1;
    sql_cut = false;
    commands.clear();
    parameters.clear();
    arena.clear();
    arena.reserve(body * 3 + 8 * 1024);  // never grows: texts point into it
}

void Answer::clear(std::size_t body) {
    known = error = missing_statement = false;
    statement = -1;
    results.clear();
    arena.clear();
    arena.reserve(body * 3 + 8 * 1024);
}

Probe starts_request(Bytes body) noexcept {
    if (body.empty()) return Probe::need_more;
    if (body[0] == '{') {
        constexpr std::string_view first = "\"request\"";
        std::size_t i = 1, matched = 0;
        for (; i < body.size() && i < 64; ++i) {
            const char c = static_cast<char>(body[i]);
            if (matched == 0 && (c == ' ' || c == '\n' || c == '\r' || c == '\t')) continue;
            if (c != first[matched]) return Probe::no;
            if (++matched == first.size()) return Probe::yes;
        }
        return i < 64 ? Probe::need_more : Probe::no;
    }
    // WireMessage: field 1 (0A), a length of one byte, the name
    if (body[0] != 0x0A) return Probe::no;
    if (body.size() < 2) return Probe::need_more;
    if (body[1] <= kRequests.size() || body[1] > 127) return Probe::no;
    const std::string_view name = as_text(body.subspan(2));
    const std::size_t n = std::min(name.size(), kRequests.size());
    if (name.substr(0, n) != kRequests.substr(0, n)) return Probe::no;
    return n == kRequests.size() ? Probe::yes : Probe::need_more;
}

bool read_request(Bytes body, Request& request) {
    request.clear(body.size());
    if (!body.empty() && body[0] == '{') return read_json_request(as_text(body), request);
    return read_proto_request(body, request);
}

bool read_answer(Bytes body, Answer& answer) {
    answer.clear(body.size());
    std::size_t blank = 0;
    while (blank < body.size() && (body[blank] == ' ' || body[blank] == '\n' || body[blank] == '\r')) ++blank;
    if (blank < body.size() && body[blank] == '{') return read_json_answer(as_text(body), answer);
    return read_proto_answer(body, answer);
}

}  // namespace tapscope::avatica
