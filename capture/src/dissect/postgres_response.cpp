// Messages of the server: results, errors, what it says unasked, and the ReadyForQuery that ends it all.
#include <algorithm>
#include <string>

#include "dissect/postgres.hpp"
#include "dissect/postgres_session.hpp"
#include "dissect/postgres_values.hpp"
#include "dissect/postgres_wire.hpp"
#include "evidence.hpp"

namespace tapscope {

using namespace postgres;

namespace {

constexpr std::size_t kRowPrefix = 1024;   // bytes of a row that are looked at
constexpr std::size_t kErrorPrefix = 256;  // severity and SQLSTATE come first
constexpr std::size_t kDescriptionPrefix = 4096;
constexpr std::size_t kTagPrefix = 32;
constexpr std::size_t kParameterPrefix = 64;  // name and value of the ones that are read

bool is_token_type(ValueType type) noexcept {
    return type == ValueType::integer || type == ValueType::text || type == ValueType::uuid ||
           type == ValueType::unknown;
}

struct Failure {
    std::int32_t status = 0;
    bool fatal = false;
};

// The five characters of an SQLSTATE as a number to base 36: "42P01" is 42P01 to base 36, 6844177.
std::int32_t status_of(std::string_view sqlstate) noexcept {
    if (sqlstate.size() != 5) return 0;
    std::int32_t status = 0;
    for (const char c : sqlstate) {
        const int digit = is_digit(c) ? c - '0' : c >= 'A' && c <= 'Z' ? c - 'A' + 10 : -1;
        if (digit < 0) return 0;
        status = status * 36 + digit;
    }
    return status;
}

// Fields: a letter and a text each; V is the severity (untranslated), C the SQLSTATE.
Failure failure_of(Bytes body) noexcept {
    Failure failure;
    Reader reader(body);
    while (reader.ok() && reader.left() > 0) {
        const char field = static_cast<char>(reader.u8());
        if (field == 0) break;
        const std::string_view text = reader.text();
        if (field == 'C') failure.status = status_of(text);
        if (field == 'V' || field == 'S') failure.fatal |= text == "FATAL" || text == "PANIC";
    }
    return failure;
}

}  // namespace

std::size_t PostgresDissector::wanted_of_server(char type, std::uint32_t body) const noexcept {
    const auto up_to = [body](std::size_t n) { return std::min<std::size_t>(body, n); };
    switch (type) {
        case server::data_row:
            return wants_rows_ && !await_ready_ ? up_to(kRowPrefix) : 0;
        case server::ready:  // whole, so that what is reported behind it has a time
            return body;
        case server::error:
            return up_to(kErrorPrefix);
        case server::row_description:
            return up_to(kDescriptionPrefix);
        case server::parameter_description:
            return up_to(2 + 4 * kMaxParameters);
        case server::command_complete:
            return session_->naming ? up_to(kTagPrefix) : 0;
        case server::parameter_status:
            return up_to(kParameterPrefix);
        default:
            return 0;
    }
}

// ---- answers --------------------------------------------------------------------------------------------------------

void PostgresDissector::begin_answer(char type, std::uint64_t at, Recorder& recorder) {
    Session& session = *session_;
    const std::uint32_t tag = recorder.front_tag(0);
    session.answered = {};
    if (const RequestUnit* unit = session.units.find(serial_of(tag)); unit != nullptr) {
        session.answered = *unit;
    } else {
        session.answered.kind = kind_of(tag);
    }
    answer_ = recorder.begin(Direction::to_client, MessageKind::response, at);
    if (inferred_) recorder.add_flags(answer_, message_flag::inferred);
    session.closes_seen = 0;
    session.rows_seen = session.tokens = 0;
    session.columns = 0;
    session.binary = session.answered.binary;
    session.formats_given = session.answered.kind == UnitKind::query;
    after_execute_ = in_error_ = false;
    wants_rows_ = true;
    if (unheard()) begin_unheard(type);
    begin_naming(recorder);
    if (const Statement* statement = session.statements.get(session.answered.statement);
        statement != nullptr && session.answered.kind == UnitKind::execute && statement->columns > 0) {
        session.columns = statement->columns;
        std::copy_n(statement->column_type, kTokenColumns, session.column_type);
    }
}

void PostgresDissector::end_answer(std::uint64_t next, Recorder& recorder) {
    Session& session = *session_;
    recorder.end(answer_, next);
    session.last_answer = answer_;
    after_execute_ = session.answered.kind == UnitKind::execute;
    answer_ = kNoMessage;
}

std::uint32_t PostgresDissector::front_group(Recorder& recorder) noexcept {
    const RequestUnit* unit = session_->units.find(serial_of(recorder.front_tag(0)));
    return unit != nullptr ? unit->group : 0;
}

// Messages that are no part of the answer to the oldest open request. True when this was one.
bool PostgresDissector::outside_answer(char type, Bytes body, std::uint64_t at, std::uint64_t next,
                                       Recorder& recorder) {
    Session& session = *session_;
    const auto alone = [&](std::string_view text) {
        one_way(Direction::to_client, text, at, next, recorder);
    };
    if (phase_ == Phase::copy_both) {
        if (type == server::ready) {
            phase_ = Phase::command;
            alone("REPLICATION_END");
            return true;
        }
        // An error ends it, too; ReadyForQuery follows.
        alone(type == server::copy_data ? "REPLICATION_DATA" : "REPLICATION_END");
        return true;
    }
    const bool unasked = !recorder.has_request() && !(unheard() && session.request_lost);
    switch (type) {
        case server::notification:
        case server::notice:
        case server::parameter_status:
            if (after_execute_) {  // between CommandComplete and ReadyForQuery
                recorder.end(session.last_answer, next);
                return true;
            }
            if (!unasked && type != server::notification) return false;
            alone(type == server::notification ? "NOTIFICATION"
                  : type == server::notice     ? "NOTICE"
                                               : "PARAMETER_STATUS");
            return true;
        case server::close_complete:
            if (!after_execute_) return false;
            if (const RequestUnit* unit = session.units.find(session.answered.serial);
                unit == nullptr || session.closes_seen >= unit->closes_behind)
                return false;
            ++session.closes_seen;
            recorder.end(session.last_answer, next);
            return true;
        case server::copy_in:
            if ((unasked && !unheard()) || kind_of(recorder.front_tag(0)) == UnitKind::login) return false;
            {
                const MessageRef ref = recorder.begin(Direction::to_client, MessageKind::interim, at);
                recorder.set_class(ref, protocol, "COPY_IN");
                recorder.end(ref, next);
            }
            return true;
        case server::ready:
            return false;
        case server::error: {
            const bool at_sync =
                after_execute_ && !unheard() && (unasked || front_group(recorder) != session.answered.group);
            if (at_sync) {  // the transaction could not be committed
                answer_ = session.last_answer;
                error(body, next, recorder);
                if (answer_ != kNoMessage) recorder.end(answer_, next);
                answer_ = kNoMessage;
                in_error_ = false;
                return true;
            }
            if (!unasked || (unheard() && !failure_of(body).fatal)) return false;
            answer_ = recorder.begin(Direction::to_client, MessageKind::one_way, at);
            recorder.set_class(answer_, protocol, "SERVER_ERROR");
            recorder.count("postgres.unsolicited_error");
            error(body, next, recorder);
            if (answer_ != kNoMessage) recorder.end(answer_, next);
            answer_ = kNoMessage;
            in_error_ = false;
            return true;
        }
        default:
            return false;
    }
}

void PostgresDissector::server_message(char type, std::uint32_t, Bytes body, std::uint64_t at,
                                       std::uint64_t next, Recorder& recorder) {
    if (type == server::parameter_status) parameter_status(body);
    if (session_->request_lost && answer_ == kNoMessage && recorder.has_request() && !await_ready_) {
        // Was it the first statement of a pipeline that was lost? Then this answer is not the open request's.
        const UnitKind kind = kind_of(recorder.front_tag(0));
        await_ready_ = kind == UnitKind::unknown || kind == UnitKind::synced;
    }
    if (type == server::ready && recorder.lost_requests_received(at)) session_->request_lost = false;
    if (await_ready_) [[unlikely]] {
        recorder.remainder(Direction::to_client, "postgres.answers_not_told_apart");
        if (type == server::ready) ready_after_loss(at, recorder);
        return;
    }
    if (unheard()) [[unlikely]]
        note_unheard(type);
    if (answer_ == kNoMessage) {
        if (outside_answer(type, body, at, next, recorder)) return;
        if (type == server::ready) return ready(at, next, recorder);
        begin_answer(type, at, recorder);
    }
    switch (type) {
        case server::data_row:
            if (wants_rows_) data_row(body, recorder);
            return;
        case server::parse_complete:
        case server::bind_complete:
        case server::close_complete:
        case server::no_data:
            return acknowledged(next, recorder);
        case server::row_description:
            row_description(body);
            return acknowledged(next, recorder);
        case server::parameter_description:
            return parameter_description(body);
        case server::command_complete:
        case server::empty_query:
        case server::portal_suspended:
            recorder.set_status(answer_, 0);
            if (session_->naming)
                finish_naming(type == server::portal_suspended ? "SELECT" : as_text(body), recorder);
            if (answered_kind() == UnitKind::execute) end_answer(next, recorder);
            return;
        case server::copy_both:
            recorder.set_status(answer_, 0);
            recorder.count("postgres.replication_stream");
            end_answer(next, recorder);
            phase_ = Phase::copy_both;
            return;
        case server::error:
            return error(body, next, recorder);
        case server::ready:
            return ready(at, next, recorder);
        default:
            return;
    }
}

// Kind of the request that is being answered; the answer may have begun before the request was complete.
UnitKind PostgresDissector::answered_kind() noexcept {
    RequestUnit& unit = session_->answered;
    if (unit.kind == UnitKind::unknown)
        if (const RequestUnit* request = session_->units.find(unit.serial); request != nullptr)
            unit.kind = request->kind;
    return unit.kind;
}

// One message of a unit without Execute is done with.
void PostgresDissector::acknowledged(std::uint64_t next, Recorder& recorder) {
    RequestUnit& unit = session_->answered;
    if (answered_kind() != UnitKind::flushed) return;
    if (unit.acknowledgements > 0 && --unit.acknowledgements > 0) return;
    recorder.set_status(answer_, 0);
    end_answer(next, recorder);
}

void PostgresDissector::ready(std::uint64_t at, std::uint64_t next, Recorder& recorder) {
    Session& session = *session_;
    if (phase_ == Phase::login) phase_ = Phase::command;
    session.copying = session.extended = false;
    if (answer_ == kNoMessage && after_execute_) {
        after_execute_ = false;
        if (!recorder.has_request() || front_group(recorder) != session.answered.group)
            return recorder.end(session.last_answer, next);
    }
    if (answer_ == kNoMessage) {
        if (!recorder.has_request() && !unheard()) {
            recorder.count("postgres.unexpected_ready");
            return one_way(Direction::to_client, "READY", at, next, recorder);
        }
        begin_answer(server::ready, at, recorder);
    }
    if (!in_error_) recorder.set_status(answer_, 0);
    const bool failed = in_error_;
    end_answer(next, recorder);
    after_execute_ = in_error_ = false;
    if (failed) answer_skipped(next, recorder);
}

// What follows a failed request up to the Sync was not executed: its answers are empty.
void PostgresDissector::answer_skipped(std::uint64_t next, Recorder& recorder) {
    const std::uint32_t group = session_->answered.group;
    while (recorder.has_request() && front_group(recorder) == group && group != 0) {
        const MessageRef ref = recorder.begin(Direction::to_client, MessageKind::response, next);
        recorder.add_flags(ref, message_flag::error);
        recorder.end(ref, next);
        recorder.count("postgres.skipped_after_error");
        if (recorder.answers(ref) == kNoMessage) break;
    }
}

// The first ReadyForQuery after a loss. Requests that the server had received are done with; when they belonged to
// several Syncs, as many ReadyForQuery may still come for them, and until then no answer can be told from another.
void PostgresDissector::ready_after_loss(std::uint64_t at, Recorder& recorder) {
    Session& session = *session_;
    std::uint32_t groups = 0, last = 0;
    while (recorder.front_received(at)) {
        const std::uint32_t group = front_group(recorder);
        if (groups == 0 || group != last) ++groups;
        last = group;
        recorder.give_up_request();
    }
    session.stale += groups;
    if (session.stale > 0) --session.stale;
    await_ready_ = session.stale > 0;
    if (!await_ready_) recorder.answers_in_step();
    session.orphan_tail = session.extended = false;
    after_execute_ = in_error_ = false;
    if (phase_ == Phase::login) phase_ = Phase::command;
}

void PostgresDissector::error(Bytes body, std::uint64_t next, Recorder& recorder) {
    const auto [status, fatal] = failure_of(body);
    recorder.set_status(answer_, status);
    recorder.add_flags(answer_, message_flag::error);
    const UnitKind kind = session_->answered.kind;
    if (fatal || kind == UnitKind::login || kind == UnitKind::encrypt) {
        end_answer(next, recorder);
        after_execute_ = in_error_ = false;
        return;
    }
    in_error_ = true;
}

// Name, value. The server says so at login and whenever it changes.
void PostgresDissector::parameter_status(Bytes body) noexcept {
    SqlStrings& strings = session_->strings;
    Reader reader(body);
    const std::string_view name = reader.text();
    const std::string_view value = reader.text();
    if (name == "standard_conforming_strings") {
        strings.backslash = value == "on"    ? Backslash::plain
                            : value == "off" ? Backslash::escapes
                                             : Backslash::unknown;
    } else if (name == "client_encoding") {
        constexpr std::string_view two_byte[] = {"BIG5", "GB18030",        "GBK", "JOHAB",
                                                 "SJIS", "SHIFT_JIS_2004", "UHC"};
        const bool known = std::find(std::begin(two_byte), std::end(two_byte), value) != std::end(two_byte);
        strings.two_byte = known ? TwoByte::yes : reader.ok() ? TwoByte::no : TwoByte::unknown;
    }
}

// ---- rows -----------------------------------------------------------------------------------------------------------

// u16 columns; each: name, u32 table, u16 attribute, u32 type, i16 size, i32 modifier, u16 format.
void PostgresDissector::row_description(Bytes body) {
    Session& session = *session_;
    Reader reader(body);
    session.columns = reader.u16();
    std::fill_n(session.column_type, kTokenColumns, ValueType::skipped);
    if (session.formats_given) session.binary = 0;
    session.rows_seen = 0;
    wants_rows_ = session.tokens < kMaxResultTokens && (session.formats_given || !unheard());
    session.column_count = session.columns;
    session.column_names.clear();
    for (std::uint32_t i = 0; i < session.columns && i < kTokenColumns; ++i) {
        const std::string_view name = reader.text();
        if (session.naming && reader.ok()) name_column(name);
        reader.take(4 + 2);
        const std::uint32_t oid = reader.u32();
        reader.take(2 + 4);
        const std::uint16_t format = reader.u16();
        if (!reader.ok()) break;
        session.column_type[i] = type_of(oid);
        if (format == 1 && session.formats_given) session.binary |= 1u << i;
    }
    Statement* statement = session.statements.get(session.answered.statement);
    if (statement == nullptr) return;
    statement->columns = session.columns;
    std::copy_n(session.column_type, kTokenColumns, statement->column_type);
}

// u16 count, u32 types.
void PostgresDissector::parameter_description(Bytes body) {
    Session& session = *session_;
    Statement* statement = session.statements.get(session.answered.statement);
    if (statement == nullptr) return;
    Reader reader(body);
    const std::uint16_t count = reader.u16();
    statement->parameters.clear();
    for (std::uint32_t i = 0; i < count && i < kMaxParameters && reader.ok(); ++i)
        statement->parameters.push_back(type_of(reader.u32()));
}

// u16 columns; each: i32 size (-1: NULL), value.
void PostgresDissector::data_row(Bytes body, Recorder& recorder) {
    Session& session = *session_;
    std::string& scratch = recorder.scratch.value;
    Reader reader(body);
    const std::uint16_t all = reader.u16();
    session.column_count = all;
    const std::uint32_t columns = std::min<std::uint32_t>(all, kTokenColumns);
    for (std::uint32_t i = 0; i < columns && wants_result(session.rows_seen, i, session.tokens); ++i) {
        const std::uint32_t size = reader.u32();
        if (!reader.ok()) break;
        if (size == 0xffffffff) continue;
        const Bytes bytes = reader.take(size);
        if (!reader.ok()) break;
        if (size == 0 || size > kMaxResultText) continue;
        const ValueType type = session.columns > 0 ? session.column_type[i] : ValueType::unknown;
        if (!is_token_type(type)) continue;
        const Value value = read_value(bytes, (session.binary >> i & 1) != 0, type, scratch);
        if (value.kind == Value::Kind::none) continue;
        recorder.token(answer_, i, TokenKind::result, as_bytes(value.text));
        ++session.tokens;
    }
    if (++session.rows_seen >= kMaxResultRows) wants_rows_ = false;
}

}  // namespace tapscope
