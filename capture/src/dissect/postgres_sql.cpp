// What the client's messages say in SQL: text of statements, values bound to them, and the class of a request.
#include <string>
#include <vector>

#include "dissect/postgres.hpp"
#include "dissect/postgres_session.hpp"
#include "dissect/postgres_values.hpp"
#include "dissect/postgres_wire.hpp"
#include "dissect/sql_evidence.hpp"
#include "evidence.hpp"

namespace tapscope {

using namespace postgres;

namespace {

// Literals in the text of a prepared statement; its parameters have the slots from 0 on.
constexpr std::uint32_t kPreparedLiteralSlot = 128;
constexpr std::string_view kExecute = "EXECUTE ";

}  // namespace

void PostgresDissector::query(std::uint32_t total, Bytes body, Recorder& recorder) {
    const bool cut = body.size() < total;
    if (cut) recorder.count("postgres.statement_cut");
    std::string_view text = as_text(body);
    if (!cut && !text.empty() && text.back() == 0) text.remove_suffix(1);
    session_->streams = text.starts_with("START_REPLICATION");
    statement_class(
        recorder, request_, protocol,
        statement_evidence(recorder, request_, text, cut, SqlDialect::postgres, session_->strings));
}

// Name, text, u16 number of types, u32 types.
void PostgresDissector::parse_statement(std::uint32_t total, Bytes body, Recorder& recorder) {
    Session& session = *session_;
    ++session.unit.acknowledgements;
    if (session.prefix == nullptr) session.prefix = "PREPARE ";
    Reader reader(body);
    const std::string_view name = reader.text();
    if (!reader.ok()) {
        recorder.count("postgres.bad_parse");
        return;
    }
    const std::size_t name_size = name.size() + 1;
    std::string_view text = reader.text();
    const bool cut = !reader.ok() && body.size() < total;
    if (!reader.ok()) text = as_text(body.subspan(name_size));
    if (cut) recorder.count("postgres.statement_cut");
    std::uint32_t slot_of_literal = kPreparedLiteralSlot;
    const SqlFingerprinter& sql = statement_evidence(recorder, request_, text, cut, SqlDialect::postgres,
                                                     session.strings, slot_of_literal);
    std::string& class_text = recorder.scratch.class_text;
    class_text.assign(kExecute).append(sql.fingerprint());
    bool evicted = false;
    const std::int32_t slot = session.statements.define(name, evicted);
    if (evicted) recorder.count("postgres.statement_evicted");
    Statement& statement = session.statements.at(slot);
    statement.execute_class = recorder.classes.id(protocol, class_text);
    const std::uint16_t types = reader.u16();
    for (std::uint16_t i = 0; i < types && i < kMaxParameters && reader.ok(); ++i)
        statement.parameters.push_back(type_of(reader.u32()));
    session.unit.statement = session.statements.reference(slot);
}

// Portal, statement, u16 number of formats, u16 formats, u16 number of values, (i32 size, value) each,
// u16 number of result formats, u16 formats. One format stands for all; none for text.
void PostgresDissector::bind(Bytes body, Recorder& recorder) {
    Session& session = *session_;
    ++session.unit.acknowledgements;
    if (session.prefix == nullptr || session.prefix[0] != 'B') session.prefix = "BIND ";
    Reader reader(body);
    const std::string_view portal_name = reader.text();
    const std::string_view name = reader.text();
    if (!reader.ok()) {
        recorder.count("postgres.bad_bind");
        return;
    }
    Portal& portal = session.portals.define(portal_name);
    std::int32_t slot = session.statements.find(name);
    // One without name may be another one by now.
    if (slot < 0 && !name.empty()) slot = adopt(name, recorder);
    portal.statement = session.statements.reference(slot);
    session.unit.statement = portal.statement;
    Statement* const statement = session.statements.get(portal.statement);

    const std::uint16_t formats = reader.u16();
    const Bytes format = reader.take(std::size_t{formats} * 2);
    const std::uint16_t count = reader.u16();
    if (statement != nullptr) statement->bound = count;
    std::string& value_text = recorder.scratch.value;
    std::vector<Element> elements;
    for (std::uint16_t i = 0; i < count; ++i) {
        const std::uint32_t size = reader.u32();
        if (!reader.ok()) break;
        if (size == 0xffffffff) continue;  // NULL
        const Bytes bytes = reader.take(size);
        if (!reader.ok()) break;  // cut at kMaxText
        if (i >= kMaxParameters) continue;
        const std::size_t which = formats == 1 ? 0 : i;
        const bool binary = which < formats && load_be16(&format[which * 2]) == 1;
        const ValueType type = statement != nullptr && i < statement->parameters.size()
                                   ? statement->parameters[i]
                                   : ValueType::unknown;
        const auto take = [&](Bytes part, ValueType part_type) {
            if (part.size() > kMaxParameterText) return;
            const Value value = read_value(part, binary, part_type, value_text);
            if (value.kind == Value::Kind::none) return;
            recorder.token(request_, i,
                           value.kind == Value::Kind::number ? TokenKind::number : TokenKind::text,
                           as_bytes(value.text));
        };
        if (!read_array(bytes, binary, type, elements)) {
            take(bytes, type);
            continue;
        }
        for (const Element& element : elements) take(element.bytes, element.type);
    }
    const std::uint16_t result_formats = reader.u16();
    if (!reader.ok()) {
        recorder.count("postgres.bind_cut");
        return;
    }
    if (result_formats == 1) {
        portal.binary = reader.u16() == 1 ? ~0u : 0u;
    } else {
        for (std::uint16_t i = 0; i < result_formats && i < kTokenColumns; ++i)
            if (reader.u16() == 1) portal.binary |= 1u << i;
    }
}

void PostgresDissector::execute(Bytes body, Recorder& recorder) {
    Session& session = *session_;
    Reader reader(body);
    Portal* portal = session.portals.find(reader.text());
    if (portal == nullptr) {
        session.unit.statement = {};
        class_of_statement(kExecute.data(), recorder);
        return;
    }
    session.unit.statement = portal->statement;
    session.unit.binary = portal->binary;
    class_of_statement(portal->executed ? "FETCH " : kExecute.data(), recorder);
    portal->executed = true;
}

// 'S' or 'P', name.
void PostgresDissector::describe_or_close(char type, Bytes body) {
    Session& session = *session_;
    if (unit_open_) ++session.unit.acknowledgements;
    Reader reader(body);
    const bool statement = reader.u8() == 'S';
    const std::string_view name = reader.text();
    if (type == client::close) {
        if (statement)
            session.statements.close(name);
        else
            session.portals.close(name);
        return;
    }
    if (session.prefix == nullptr) session.prefix = "DESCRIBE ";
    if (session.unit.statement.slot >= 0) return;
    if (statement)
        session.unit.statement = session.statements.reference(session.statements.find(name));
    else if (const Portal* portal = session.portals.find(name); portal != nullptr)
        session.unit.statement = portal->statement;
}

// The class of the open unit: `prefix` and the fingerprint of its statement.
void PostgresDissector::class_of_statement(const char* prefix, Recorder& recorder) {
    Session& session = *session_;
    const std::string_view word(prefix);
    if (word == "PREPARE ") recorder.add_flags(request_, message_flag::setup);
    const Statement* statement = session.statements.get(session.unit.statement);
    std::string& text = recorder.scratch.class_text;
    if (word == "CLOSE") {
        text.assign(word);
    } else if (statement == nullptr || statement->execute_class < 0) {
        text.assign(word).append("(text unseen)");
    } else if (word == kExecute) {
        return recorder.set_class(request_, statement->execute_class);
    } else {
        const auto& entry = recorder.classes.entries()[static_cast<std::size_t>(statement->execute_class)];
        const bool other = !entry.text.starts_with(kExecute);  // the dictionary is full
        text.assign(word).append(other ? std::string_view(entry.text)
                                       : std::string_view(entry.text).substr(kExecute.size()));
    }
    recorder.set_class(request_, protocol, text);
}

}  // namespace tapscope
