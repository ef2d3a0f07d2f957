// Packets of the server: greeting, auth, OK and ERR, answers to PREPARE, binlog events.
#include <algorithm>

#include "mysql.hpp"
#include "mysql_compression.hpp"
#include "mysql_values.hpp"

namespace tapscope {

using namespace mysql;

namespace {

constexpr std::size_t kPrepareOk = 12;  // answer to a PREPARE; one more where metadata is optional

bool is_binary(Command command) noexcept {
    return command == Command::stmt_execute || command == Command::stmt_fetch ||
           command == Command::stmt_bulk_execute;
}

}  // namespace

std::size_t MysqlDissector::wanted_of_server(std::uint32_t length, Bytes payload) const noexcept {
    const auto up_to = [length](std::size_t n) { return std::min<std::size_t>(length, n); };
    if (phase_ == Phase::start || phase_ == Phase::login) return up_to(512);
    if (answer_row_ == kNoMessage) return up_to(kRowPrefix);
    switch (answer_) {
        case Answer::first:
        case Answer::infile:
            return up_to(32);
        case Answer::definitions:
            // The type stands near the end of a definition: all of it, or none.
            return length <= kRowPrefix && (wants_rows() || name_ != nullptr) ? length : up_to(4);
        case Answer::definitions_end:
        case Answer::rows:
            if (!payload.empty() && payload[0] == kEof) return up_to(32);
            return up_to(wants_rows() ? kRowPrefix : kTerminator);
        case Answer::prepare:
            return up_to(1);
        case Answer::field_list:
            return up_to(kTerminator);
    }
    return 1;
}

void MysqlDissector::begin_answer(Bytes payload, std::uint8_t seq, std::uint64_t at, Recorder& recorder) {
    answer_ = Answer::first;
    heard_ = true;
    name_.reset();
    rows_seen_ = tokens_ = 0;
    const char* one_way = nullptr;
    if (phase_ == Phase::start || phase_ == Phase::login) {
        one_way = "GREETING";
    } else if (phase_ == Phase::replication) {
        one_way = "BINLOG_EVENT";
    } else if (!recorder.has_request() && seq == 0 && !payload.empty() && payload[0] == kErr) {
        one_way = "SERVER_ERROR";  // killed, timed out, shut down
        recorder.count("mysql.unsolicited_error");
    }
    answer_tag_ = static_cast<std::uint32_t>(Command::unknown);
    if (one_way != nullptr) {
        answer_row_ = recorder.begin(Direction::to_client, MessageKind::one_way, at);
        recorder.set_class(answer_row_, protocol, one_way);
        if (inferred_) recorder.add_flags(answer_row_, message_flag::inferred);
        return;
    }
    answer_tag_ = recorder.front_tag(phase_ == Phase::auth ? static_cast<std::uint32_t>(Command::login)
                                                           : static_cast<std::uint32_t>(Command::unknown));
    answer_row_ = recorder.begin(Direction::to_client, MessageKind::response, at);
    if (inferred_) recorder.add_flags(answer_row_, message_flag::inferred);
    const Command command = answer_command();
    answer_binary_ = is_binary(command);
    if (answer_binary_ && command != Command::stmt_fetch) begin_naming(recorder);
    if (command == Command::stmt_fetch) {
        answer_ = Answer::rows;
        columns_ = 0;
        if (const Statement* statement = answered_statement(); statement != nullptr) {
            columns_ = statement->columns;
            std::copy_n(statement->column_type, kTokenColumns, column_type_);
            column_unsigned_ = statement->column_unsigned;
        }
    } else if (command == Command::field_list) {
        answer_ = Answer::field_list;
    }
}

Statement* MysqlDissector::answered_statement() noexcept {
    const std::uint32_t serial = answer_tag_ >> 8;
    if (inflight_.empty() || serial == 0) return nullptr;
    const Inflight& entry = inflight_[serial % inflight_.size()];
    if (entry.serial != serial || entry.slot == StatementTable::kNone) return nullptr;
    Statement& statement = statements_.at(entry.slot);
    return statement.used && statement.generation == entry.generation ? &statement : nullptr;
}

// One packet of the answer; true when it is the last one.
bool MysqlDissector::server_packet(std::uint32_t length, std::uint8_t, Bytes payload, bool eof_follows,
                                   Recorder& recorder) {
    if (phase_ == Phase::start || phase_ == Phase::login) return greeting(payload, recorder);
    if (payload.empty()) return answer_ != Answer::rows;  // only a row may be empty
    if (phase_ == Phase::replication) {
        const bool ends = payload[0] == kErr || (payload[0] == kEof && length < kTerminator);
        if (payload[0] == kErr) error(payload, recorder);
        if (ends) phase_ = Phase::command;
        return true;
    }
    switch (answer_) {
        case Answer::infile:
        case Answer::first:
            return first_packet(length, payload, recorder);
        case Answer::definitions:
            if (definitions_left_ > 0xFFFFF &&
                payload[0] != 3) {  // joined in the middle: their number is not known
                answer_ = Answer::definitions_end;
                return row_or_end(length, payload, recorder);
            }
            definition(length, payload);
            return false;
        case Answer::definitions_end:
        case Answer::rows:
            return row_or_end(length, payload, recorder);
        case Answer::prepare:
            return prepare_packet(length, payload, eof_follows);
        case Answer::field_list:
            if (payload[0] == kErr) return error(payload, recorder);
            if (payload[0] != kEof || length >= kMaxPayload) return false;
            recorder.set_status(answer_row_, 0);
            return true;
    }
    return true;
}

// 0A, version NUL, thread id u32, salt 8, 00, capabilities u16, charset, status u16, capabilities u16, auth length,
// 10 bytes of which MariaDB uses the last 4 for capabilities.
bool MysqlDissector::greeting(Bytes payload, Recorder& recorder) {
    phase_ = Phase::login;
    if (!payload.empty() && payload[0] == kErr) {
        error(payload, recorder);
        recorder.count("mysql.connection_refused");
        return true;
    }
    Reader reader(payload);
    reader.u8();
    while (reader.ok() && reader.u8() != 0) {}
    reader.skip(4 + 8 + 1);
    server_caps_ = reader.u16();
    server_collation_ = reader.u8();
    const std::uint16_t status = reader.u16();
    if (reader.ok()) note_status(status);
    server_caps_ |= std::uint32_t{reader.u16()} << 16;
    reader.skip(1 + 6);
    server_caps_mariadb_ = reader.u32();
    if (!reader.ok()) {
        recorder.count("mysql.short_greeting");
        server_caps_mariadb_ = 0;
    }
    mariadb_ = (server_caps_ & client::mysql) == 0;
    if (!mariadb_) server_caps_mariadb_ = 0;
    return true;
}

bool MysqlDissector::first_packet(std::uint32_t length, Bytes payload, Recorder& recorder) {
    const Command command = answer_command();
    if (payload[0] == kErr) return error(payload, recorder);
    switch (command) {
        case Command::login:
        case Command::change_user:
            return auth_packet(length, payload, recorder);
        case Command::statistics:
            recorder.set_status(answer_row_, 0);
            return true;
        case Command::stmt_prepare:
            // Behind a loss the command may be another one.
            if (!uncertain_ || length == kPrepareOk || length == kPrepareOk + 1)
                return prepare_ok(length, payload, recorder);
            break;
        default:
            break;
    }
    if (command == Command::unknown && length == kPrepareOk && payload[0] == kOk &&
        payload.size() >= kPrepareOk && payload[9] == 0) {
        return prepare_ok(length, payload, recorder);  // an OK of this length would need a text of five bytes
    }
    switch (payload[0]) {
        case kOk:
            if (length < 7) break;  // optional metadata: "none", then a column count
            return ok(payload, recorder);
        case kLocalInfile:
            answer_ = Answer::infile;
            recorder.count("mysql.local_infile");
            return false;
        case kEof:
            if (length >= kMaxPayload) break;
            recorder.set_status(answer_row_, 0);
            if (length >= kTerminator || payload.size() < 5) return finished(0, recorder);
            note_status(load_le16(&payload[3]));
            return finished(load_le16(&payload[3]), recorder);
        default:
            break;
    }
    return column_count(length, payload, recorder);
}

bool MysqlDissector::auth_packet(std::uint32_t length, Bytes payload, Recorder& recorder) {
    switch (payload[0]) {
        case kOk:
            recorder.set_status(answer_row_, 0);
            status_of_ok(payload);
            succeed(recorder);
            return true;
        case kEof:
            recorder.count(length == 1 ? "mysql.auth_old_password" : "mysql.auth_switch");
            return false;
        case kAuthNextFactor:
            recorder.count("mysql.auth_next_factor");
            return false;
        case kAuthMore:
        default:
            recorder.count("mysql.auth_more_data");
            return false;
    }
}

// The status in an OK; 0 when it is not there.
std::uint16_t MysqlDissector::status_of_ok(Bytes payload) noexcept {
    Reader reader(payload.subspan(1));
    reader.lenenc();  // affected rows
    reader.lenenc();  // last insert id
    const std::uint16_t status = reader.u16();
    if (!reader.ok()) return 0;
    note_status(status);
    return status;
}

bool MysqlDissector::ok(Bytes payload, Recorder& recorder) {
    const std::uint16_t status = status_of_ok(payload);
    recorder.set_status(answer_row_, 0);
    if (name_ != nullptr) finish_naming(false, recorder);
    return finished(status, recorder);
}

bool MysqlDissector::finished(std::uint16_t status, Recorder& recorder) {
    if ((status & server_status::more_results) != 0 && answer_command() != Command::stmt_fetch) {
        answer_ = Answer::first;
        return false;
    }
    succeed(recorder);
    return true;
}

// What a successful answer changes for the connection.
void MysqlDissector::succeed(Recorder& recorder) {
    switch (answer_command()) {
        case Command::login:
            phase_ = Phase::command;
            if ((caps_ & (client::compress | client::zstd_compression)) != 0 && !compressed_) {
                recorder.count("mysql.compressed_connection");
                start_compression();
            }
            break;
        case Command::change_user:
            phase_ = Phase::command;
            [[fallthrough]];
        case Command::reset_connection:
            statements_.clear();
            last_prepared_ = StatementTable::kNone;
            break;
        default:
            break;
    }
}

bool MysqlDissector::error(Bytes payload, Recorder& recorder) {
    const std::uint16_t code = payload.size() >= 3 ? load_le16(&payload[1]) : std::uint16_t{0};
    constexpr std::uint16_t kProgress = 0xFFFF;
    if (code == kProgress && phase_ == Phase::command) {
        recorder.count("mysql.progress_report");
        return false;
    }
    recorder.set_status(answer_row_, code);
    recorder.add_flags(answer_row_, message_flag::error);
    if (answer_command() == Command::stmt_prepare) {
        if (const Statement* statement = answered_statement(); statement != nullptr) {
            const std::int32_t slot = inflight_[(answer_tag_ >> 8) % inflight_.size()].slot;
            if (slot == last_prepared_) last_prepared_ = StatementTable::kNone;
            statements_.release(slot);
        }
    }
    if (answer_command() == Command::change_user) phase_ = Phase::command;
    return true;
}

// ---- PREPARE --------------------------------------------------------------------------------------------------------

// 00, statement id u32, columns u16, parameters u16, 00, warnings u16 [, metadata follows u8].
bool MysqlDissector::prepare_ok(std::uint32_t length, Bytes payload, Recorder& recorder) {
    Reader reader(payload.subspan(1));
    const std::uint32_t id = reader.u32();
    const std::uint16_t columns = reader.u16();
    const std::uint16_t params = reader.u16();
    if (payload[0] != kOk || !reader.ok()) {
        recorder.count("mysql.bad_prepare_answer");
        return true;
    }
    recorder.set_status(answer_row_, 0);
    // With the pairing in doubt this may be the answer to another PREPARE: better no text than a wrong one.
    if (Statement* statement = answered_statement(); statement != nullptr && !recorder.pairing_in_doubt()) {
        const std::int32_t slot = inflight_[(answer_tag_ >> 8) % inflight_.size()].slot;
        statement->params = params;
        statements_.bind(slot, id);
    }
    const bool no_metadata = (caps_ & client::optional_resultset_metadata) != 0 && length > 12 &&
                             payload.size() > 12 && payload[12] == 0;
    definitions_left_ = no_metadata ? 0u : std::uint32_t{params} + columns;
    answer_ = Answer::prepare;
    return definitions_left_ == 0;
}

bool MysqlDissector::prepare_packet(std::uint32_t length, Bytes payload, bool eof_follows) {
    if (payload[0] == kEof && length < kTerminator) {
        if (deprecate_eof_ == Known::unknown) deprecate_eof_ = Known::no;
        return definitions_left_ == 0;
    }
    if (definitions_left_ > 0 && --definitions_left_ > 0) return false;
    return deprecate_eof_ == Known::yes || (deprecate_eof_ == Known::unknown && !eof_follows);
}

// ---- result sets ----------------------------------------------------------------------------------------------------

// lenenc column count, with CACHE_METADATA or OPTIONAL_RESULTSET_METADATA a byte that says whether definitions follow.
// MySQL's documentation puts that byte in front, MariaDB behind; the length and the values tell which it is.
bool MysqlDissector::column_count(std::uint32_t length, Bytes payload, Recorder& recorder) {
    std::size_t at = 0;
    int metadata = -1;
    if (length == 2 && payload.size() >= 2) {
        const bool in_front = payload[0] == 0 || (payload[0] == 1 && payload[1] > 1);
        metadata = in_front ? payload[0] : payload[1];
        at = in_front ? 1 : 0;
    } else if (length == 4 && payload.size() >= 4) {
        const bool in_front = payload[0] <= 1;
        metadata = in_front ? payload[0] : payload[3];
        at = in_front ? 1 : 0;
    }
    Reader reader(payload.subspan(at));
    const std::uint64_t count = reader.lenenc();
    if (!reader.ok() || count == 0 || count > 4096 || metadata > 1 || length > 4) {
        recorder.count("mysql.bad_column_count");
        return true;
    }
    columns_ = static_cast<std::uint16_t>(count);
    std::fill_n(column_type_, kTokenColumns, kTypeUnknown);
    column_unsigned_ = 0;
    if (metadata != 0) {
        answer_ = Answer::definitions;
        definitions_left_ = columns_;
        return false;
    }
    answer_ = Answer::definitions_end;
    if (const Statement* statement = answered_statement(); statement != nullptr && statement->columns > 0) {
        std::copy_n(statement->column_type, kTokenColumns, column_type_);
        column_unsigned_ = statement->column_unsigned;
    }
    return false;
}

}  // namespace tapscope
