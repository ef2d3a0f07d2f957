// Packets of the client: login, commands, statement text.
#include <algorithm>
#include <array>
#include <string>

#include "mysql.hpp"
#include "mysql_compression.hpp"
#include "mysql_values.hpp"
#include "sql_evidence.hpp"

namespace tapscope {

using namespace mysql;

namespace {

constexpr std::size_t kInflight = 64;      // statements awaiting their answer that are remembered
constexpr std::size_t kMostOfUser = 1024;  // bytes of a CHANGE_USER: names, password and collation
constexpr std::uint8_t kSemiSyncAck = 0xEF;

bool is_one_way(std::uint8_t command) noexcept {
    switch (static_cast<Command>(command)) {
        case Command::quit:
        case Command::stmt_close:
        case Command::stmt_send_long_data:
        case Command::binlog_dump:
        case Command::binlog_dump_gtid:
        case Command::clone:
            return true;
        default:
            return false;
    }
}

bool starts_stream(std::uint8_t command) noexcept {
    const auto c = static_cast<Command>(command);
    return c == Command::binlog_dump || c == Command::binlog_dump_gtid || c == Command::clone;
}

bool has_text(std::uint8_t command) noexcept {
    return command == static_cast<std::uint8_t>(Command::query) ||
           command == static_cast<std::uint8_t>(Command::stmt_prepare);
}

}  // namespace

// ---- commands -------------------------------------------------------------------------------------------------------

bool MysqlDissector::starts_command(std::uint8_t seq) const noexcept {
    return seq == 0 && !sends_file() &&
           (phase_ == Phase::command || phase_ == Phase::auth || phase_ == Phase::replication);
}

// LOCAL INFILE: what the client says is the file, also where its numbers come round to 0 with the 256th packet.
bool MysqlDissector::sends_file() const noexcept {
    return answer_ == Answer::infile && answer_row_ != kNoMessage &&
           !sides_[static_cast<unsigned>(Direction::to_client)]
                .lost;  // else the end may be among what was lost
}

std::size_t MysqlDissector::wanted_of_client(std::uint32_t length, std::uint8_t seq,
                                             Bytes payload) const noexcept {
    if (phase_ == Phase::login) return std::min<std::size_t>(length, 36);
    if (!starts_command(seq)) return 0;
    if (payload.empty()) return 1;
    switch (static_cast<Command>(payload[0])) {
        case Command::query:
        case Command::stmt_prepare:
        case Command::stmt_execute:
        case Command::stmt_bulk_execute:
            return std::min<std::size_t>(length, kMaxText);
        case Command::change_user:
            return std::min<std::size_t>(length, kMostOfUser);
        case Command::stmt_send_long_data:
            return std::min<std::size_t>(length, 7);
        case Command::stmt_close:
        case Command::stmt_reset:
        case Command::stmt_fetch:
            return std::min<std::size_t>(length, 5);
        default:
            return 1;
    }
}

void MysqlDissector::begin_command(std::uint8_t command, std::uint64_t at, Recorder& recorder) {
    if (phase_ == Phase::auth) phase_ = Phase::command;  // the end of the login was not seen
    command_since_loss_ = true;
    if (answer_row_ != kNoMessage && uncertain_ && recorder.acknowledges_answer(at)) end_answer(recorder);
    const bool ack = phase_ == Phase::replication && command == kSemiSyncAck;
    const bool one_way = is_one_way(command) || ack;
    if (one_way) {
        request_ = recorder.begin(Direction::to_server, MessageKind::one_way, at);
    } else {
        serial_ = (serial_ + 1) & 0xFFFFFF;
        request_ = recorder.begin(Direction::to_server, MessageKind::request, at, serial_ << 8 | command);
    }
    if (inferred_) recorder.add_flags(request_, message_flag::inferred);
    if (command == static_cast<std::uint8_t>(Command::stmt_prepare) ||
        command == static_cast<std::uint8_t>(Command::ping)) {
        recorder.add_flags(request_, message_flag::setup);
    }
    if (ack) {
        recorder.set_class(request_, protocol, "BINLOG_ACK");
        return;
    }
    if (has_text(command) || command == static_cast<std::uint8_t>(Command::stmt_execute)) {
        return;  // classed by the statement
    }
    const char* name = command_name(command);
    if (name == nullptr) {
        recorder.count("mysql.unknown_command");
        name = "UNKNOWN_COMMAND";
    }
    recorder.set_class(request_, protocol, name);
    if (starts_stream(command)) {
        phase_ = Phase::replication;
        recorder.count("mysql.replication_stream");
    }
}

// The client went on: the answer that is being read is over, whatever its grammar says after a loss.
void MysqlDissector::end_answer(Recorder& recorder) {
    recorder.count("mysql.answer_ended_by_next_command");
    recorder.end(answer_row_, 0);
    answer_row_ = kNoMessage;
    answer_ = Answer::first;
    Side& s = side(Direction::to_client);
    if (s.skip > 0 || s.left > 0) lose(Direction::to_client);
}

void MysqlDissector::client_packet(std::uint32_t length, std::uint8_t seq, Bytes payload, std::uint64_t at,
                                   Recorder& recorder) {
    Side& s = side(Direction::to_server);
    if (phase_ == Phase::login) {
        if (length == 32 && payload.size() >= 4 && (load_le32(payload.data()) & client::ssl) != 0) {
            request_ = recorder.begin(Direction::to_server, MessageKind::one_way, at);
            recorder.set_class(request_, protocol, "SSL_REQUEST");
            recorder.count("mysql.tls_connection");
            turns_to_tls_ = true;
            return;
        }
        begin_login(at, recorder);
        login(length, payload, recorder);
        return;
    }
    if (starts_command(seq) && length > 0) {
        if (!s.begun) begin_command(payload[0], at, recorder);
        s.begun = false;
        command(length, payload, recorder);
        return;
    }
    // Auth data, or the file of LOCAL INFILE: more of the last request.
    if (answer_ == Answer::infile && answer_row_ != kNoMessage) {
        if (length == 0) answer_ = Answer::first;
        return;
    }
    if (phase_ == Phase::auth) return;
    recorder.count("mysql.unexpected_client_packet");
    if (request_ == kNoMessage) {
        request_ = recorder.begin(Direction::to_server, MessageKind::one_way, at);
        recorder.add_flags(request_, message_flag::suspicious);
    }
}

void MysqlDissector::begin_login(std::uint64_t at, Recorder& recorder) {
    serial_ = (serial_ + 1) & 0xFFFFFF;
    request_ = recorder.begin(Direction::to_server, MessageKind::request, at,
                              serial_ << 8 | static_cast<std::uint32_t>(Command::login));
    recorder.set_class(request_, protocol, "LOGIN");
    recorder.add_flags(request_, message_flag::setup);
    phase_ = Phase::auth;
}

void MysqlDissector::login(std::uint32_t length, Bytes payload, Recorder& recorder) {
    if (length < 32 || payload.size() < 32) {  // HandshakeResponse320: two bytes of capabilities
        if (payload.size() >= 2) caps_ = load_le16(payload.data());
        recorder.count("mysql.old_login");
        deprecate_eof_ = Known::no;
        return;
    }
    caps_ = load_le32(payload.data());
    note_collation(payload[8]);
    if (server_caps_ != 0) {
        caps_ &= server_caps_;
    } else {
        inferred_ = true;  // greeting not seen: the client's wishes are all there is
        recorder.count("mysql.greeting_not_seen");
    }
    if ((load_le32(payload.data()) & client::mysql) == 0) {
        caps_mariadb_ = load_le32(payload.data() + 28);
        if (server_caps_ != 0) caps_mariadb_ &= server_caps_mariadb_;
    }
    deprecate_eof_ = (caps_ & client::deprecate_eof) != 0 ? Known::yes : Known::no;
}

void MysqlDissector::command(std::uint32_t length, Bytes payload, Recorder& recorder) {
    const std::uint8_t code = payload[0];
    Reader reader(payload.subspan(1));
    switch (static_cast<Command>(code)) {
        case Command::query:
        case Command::stmt_prepare:
            statement_text(code, length, payload, recorder);
            break;
        case Command::stmt_execute:
            execute(payload, recorder);
            break;
        case Command::stmt_bulk_execute:
            bulk_execute(payload, recorder);
            break;
        case Command::stmt_close: {
            const std::int32_t slot = statement_slot(reader.u32());
            if (slot != StatementTable::kNone) {
                if (slot == last_prepared_) last_prepared_ = StatementTable::kNone;
                statements_.release(slot);
            }
            break;
        }
        case Command::stmt_reset: {
            const std::int32_t slot = statement_slot(reader.u32());
            if (slot != StatementTable::kNone) statements_.at(slot).forget_long();
            break;
        }
        case Command::stmt_send_long_data: {
            const std::int32_t slot = statement_slot(reader.u32());
            const std::uint16_t param = reader.u16();
            if (slot == StatementTable::kNone || !reader.ok()) break;
            statements_.at(slot).note_long(param);
            break;
        }
        case Command::stmt_fetch:
            remember(statement_slot(reader.u32()));
            break;
        case Command::change_user:
            note_change_of_user(payload);
            phase_ = Phase::auth;
            break;
        default:
            break;
    }
}

std::int32_t MysqlDissector::statement_slot(std::uint32_t id) {
    if (id == kLastPrepared) return last_prepared_;
    const std::int32_t slot = statements_.find(id);
    return slot == StatementTable::kNone ? slot_unheard(id) : slot;
}

// Lets the answer of the request just begun find its statement.
void MysqlDissector::remember(std::int32_t slot) {
    if (slot == StatementTable::kNone) return;
    if (inflight_.empty()) inflight_.resize(kInflight);
    inflight_[serial_ % kInflight] = {serial_, statements_.at(slot).generation, slot};
}

// ---- statement text -------------------------------------------------------------------------------------------------

// Takes the query attributes off the front of a COM_QUERY payload and reports them; returns the statement text.
Bytes MysqlDissector::query_attributes(Bytes payload, Recorder& recorder) {
    const Bytes body = payload.subspan(1);
    // Without the login it shows by the byte 1 (number of parameter sets), which starts no statement.
    const bool known = (caps_ & client::query_attributes) != 0;
    if (!known && !(inferred_ && body.size() >= 2 && body[0] < 9 && body[1] == 1)) return body;
    Reader reader(body);
    const std::uint64_t count = reader.lenenc();
    const std::uint64_t sets = reader.lenenc();
    if (!reader.ok() || sets != 1 || count > 4096) {
        recorder.count("mysql.bad_query_attributes");
        return body;
    }
    if (count == 0) return {reader.here(), reader.left()};
    const Bytes nulls = reader.take((count + 7) / 8);
    if (reader.u8() != 1) {  // types were sent before: their sizes are not known here
        recorder.count("mysql.bad_query_attributes");
        return {};
    }
    struct Attribute {
        std::uint16_t type;
        Bytes name;
    };
    std::array<Attribute, 64> attributes;
    for (std::uint64_t i = 0; i < count && reader.ok(); ++i) {
        const Attribute attribute{reader.u16(), reader.lenenc_string()};
        if (i < attributes.size()) attributes[i] = attribute;
    }
    if (!reader.ok() || count > attributes.size()) {
        recorder.count("mysql.bad_query_attributes");
        return {};
    }
    char buffer[kMaxValueText];
    for (std::uint64_t i = 0; i < count && reader.ok(); ++i) {
        if ((nulls[i / 8] >> (i % 8) & 1) != 0) continue;
        const Value value = read_binary_value(reader, attributes[i].type, buffer);
        if (value.kind() == Value::Kind::none || value.text().size() > kMaxTokenText) continue;
        const std::string_view name = as_text(attributes[i].name);
        recorder.token(request_, slot_of_name(name),
                       value.kind() == Value::Kind::number ? TokenKind::number : TokenKind::text,
                       as_bytes(name == kTraceParent ? trace_id(value.text()) : value.text()));
    }
    if (!reader.ok()) {
        recorder.count("mysql.bad_query_attributes");
        return {};
    }
    return {reader.here(), reader.left()};
}

void MysqlDissector::statement_text(std::uint8_t command, std::uint32_t length, Bytes payload,
                                    Recorder& recorder) {
    const bool prepare = command == static_cast<std::uint8_t>(Command::stmt_prepare);
    const bool cut = payload.size() < length || length == kMaxPayload;
    if (cut) recorder.count("mysql.statement_cut");
    const Bytes text = prepare ? payload.subspan(1) : query_attributes(payload, recorder);

    note_settings(as_text(text));
    const SqlFingerprinter& sql =
        statement_evidence(recorder, request_, as_text(text), cut, SqlDialect::mysql, strings_);
    if (!prepare) return statement_class(recorder, request_, protocol, sql);
    std::string& class_text = recorder.scratch.class_text;
    class_text.assign("PREPARE ").append(sql.fingerprint());
    recorder.set_class(request_, protocol, class_text);
    bool evicted = false;
    const std::int32_t slot = statements_.reserve(evicted);
    if (evicted) recorder.count("mysql.statement_evicted");
    Statement& statement = statements_.at(slot);
    class_text.assign("EXECUTE ").append(sql.fingerprint());
    statement.execute_class = recorder.classes.id(protocol, class_text);
    statement.params = static_cast<std::uint16_t>(std::min<std::uint32_t>(sql.placeholders(), 0xFFFF));
    last_prepared_ = unheard_.slot = slot;
    ++unheard_.prepares;
    remember(slot);
}

}  // namespace tapscope
