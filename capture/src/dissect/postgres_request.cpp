// Messages of the client: start of the connection, and which unit each message begins, joins or ends; COPY data.
#include <algorithm>
#include <string_view>

#include "dissect/postgres.hpp"
#include "dissect/postgres_session.hpp"
#include "dissect/postgres_wire.hpp"

namespace tapscope {

using namespace postgres;

namespace {

bool is_extended(char type) noexcept {
    return type == client::parse || type == client::bind || type == client::describe ||
           type == client::execute || type == client::close;
}

}  // namespace

std::size_t PostgresDissector::wanted_of_client(char type, std::uint32_t body) noexcept {
    switch (type) {
        case client::query:
        case client::parse:
        case client::bind:
            return std::min<std::size_t>(body, kMaxText);
        case client::describe:
        case client::execute:
        case client::close:
            return body;  // plausible_length has bounded it
        default:
            return 0;
    }
}

// ---- start of the connection ----------------------------------------------------------------------------------------

Parsed PostgresDissector::startup_message(Bytes bytes, Recorder& recorder) {
    const std::uint32_t length = load_be32(bytes.data());
    const std::uint32_t code = load_be32(&bytes[4]);
    if (code == kCancelRequest) {
        one_way(Direction::to_server, "CANCEL_REQUEST", 0, length, recorder);
        recorder.count("postgres.cancel_request");
        phase_ = Phase::opaque;
        return {Step::ok, length};
    }
    if (code == kSslRequest || code == kGssRequest) {
        begin_unit(UnitKind::encrypt, 0, recorder);
        recorder.set_class(request_, protocol, code == kSslRequest ? "SSL_REQUEST" : "GSSENC_REQUEST");
        recorder.add_flags(request_, message_flag::setup);
        phase_ = Phase::encrypt;
        end_unit(UnitKind::encrypt, length, recorder);
        return {Step::ok, length};
    }
    begin_unit(UnitKind::login, 0, recorder);
    recorder.set_class(request_, protocol, "LOGIN");
    recorder.add_flags(request_, message_flag::setup);
    phase_ = Phase::login;
    end_unit(UnitKind::login, length, recorder);
    return {Step::ok, length};
}

// ---- units ----------------------------------------------------------------------------------------------------------

void PostgresDissector::begin_unit(UnitKind kind, std::uint64_t at, Recorder& recorder) {
    Session& session = *session_;
    session.serial = (session.serial + 1) & kSerialMask;
    session.command_since_loss = true;
    session.unit = {};
    session.unit.serial = session.serial;
    session.unit.group = session.group;
    session.unit.kind = kind;
    session.prefix = nullptr;
    session.copying = session.streams = false;
    unit_open_ = true;
    extendable_ = false;
    if (session.request_lost && answer_ != kNoMessage && recorder.answers(answer_) == kNoMessage) {
        // The answer to a request that was lost may be over (Flush) or not: which of what follows is an answer to
        // this one, a ReadyForQuery tells.
        recorder.end(answer_, 0);
        answer_ = kNoMessage;
        await_ready_ = true;
    }
    request_ = recorder.begin(Direction::to_server, MessageKind::request, at, tag_of(session.serial, kind));
    if (inferred_) recorder.add_flags(request_, message_flag::inferred);
    if (await_ready_ && session.orphan_tail && recorder.open_requests() == 1) {
        await_ready_ = session.orphan_tail = false;  // the answer to the unseen request is over
    }
    session.units.put(session.unit, recorder.open_requests());
}

void PostgresDissector::end_unit(UnitKind kind, std::uint64_t at, Recorder& recorder) {
    Session& session = *session_;
    session.unit.kind = kind;
    session.units.put(session.unit, recorder.open_requests());
    recorder.end(request_, at);
    unit_open_ = false;
    extendable_ = kind == UnitKind::execute;
}

// A unit that ended with Flush goes on with what the client sends before the answer comes.
void PostgresDissector::join_flushed(Recorder& recorder) {
    Session& session = *session_;
    if (!unit_open_ || session.unit.kind != UnitKind::flushed) return;
    unit_open_ = unanswered(recorder);
    if (!unit_open_) return;
    session.unit.kind = UnitKind::unknown;
    session.units.put(session.unit, recorder.open_requests());
}

// The open unit ends here without Execute, Sync or Flush: bytes were lost, or the client does what it should not.
void PostgresDissector::close_unit(std::uint64_t at, Recorder& recorder) {
    if (unit_open_ && session_->unit.kind != UnitKind::flushed) end_unit(UnitKind::unknown, at, recorder);
    unit_open_ = false;
}

// Sync, Flush and Close behind an Execute belong to its request, unless its answer is there already.
bool PostgresDissector::may_extend(Recorder& recorder) const noexcept {
    return extendable_ && unanswered(recorder);
}

// Nothing was heard of the answer to the last request.
bool PostgresDissector::unanswered(Recorder& recorder) const noexcept {
    if (!recorder.has_request()) return false;
    return answer_ == kNoMessage || session_->answered.serial != session_->serial;
}

void PostgresDissector::one_way(Direction direction, std::string_view text, std::uint64_t at,
                                std::uint64_t next, Recorder& recorder) {
    const MessageRef ref = recorder.begin(direction, MessageKind::one_way, at);
    recorder.set_class(ref, protocol, text);
    if (inferred_) recorder.add_flags(ref, message_flag::inferred);
    recorder.end(ref, next);
    if (direction == Direction::to_server) {
        request_ = ref;
        extendable_ = false;
    }
}

// Reports the request of a message that is not complete yet, so that a loss inside it does not lose the request.
void PostgresDissector::begin_client_message(char type, std::uint64_t at, Recorder& recorder) {
    if (phase_ == Phase::copy_both && !unheard()) return;
    // The end of the login was not seen, or that of a stream that nobody was seen to ask for.
    if (phase_ == Phase::login || phase_ == Phase::copy_both) phase_ = Phase::command;
    if (type == client::query) {
        close_unit(at, recorder);
        ++session_->group;
        begin_unit(UnitKind::query, at, recorder);
    } else if (is_extended(type)) {
        join_flushed(recorder);
        if (!unit_open_ && !(type == client::close && may_extend(recorder)))
            begin_unit(UnitKind::unknown, at, recorder);
    }
}

void PostgresDissector::client_message(char type, std::uint32_t total, Bytes body, std::uint64_t at,
                                       std::uint64_t next, Recorder& recorder) {
    Session& session = *session_;
    if (!side(Direction::to_server).begun && (type == client::query || is_extended(type)))
        begin_client_message(type, at, recorder);
    switch (type) {
        case client::query:
            query(total, body, recorder);
            end_unit(UnitKind::query, next, recorder);
            return;
        case client::parse:
            return parse_statement(total, body, recorder);
        case client::bind:
            return bind(body, recorder);
        case client::execute:
            execute(body, recorder);
            return end_unit(UnitKind::execute, next, recorder);
        case client::describe:
        case client::close:
            describe_or_close(type, body);
            if (unit_open_) return;
            recorder.end(request_, next);
            if (RequestUnit* last = session.units.find(session.serial); last != nullptr)
                ++last->closes_behind;
            return;
        case client::sync:
            if (phase_ == Phase::login) phase_ = Phase::command;
            join_flushed(recorder);
            if (unit_open_) {
                class_of_statement(session.prefix != nullptr ? session.prefix : "CLOSE", recorder);
                end_unit(UnitKind::synced, next, recorder);
            } else if (session.copying || may_extend(recorder)) {
                // While it copies the server ignores Sync, that of the Execute too: this one is the first it heeds.
                recorder.end(request_, next);
            } else {
                begin_unit(UnitKind::synced, at, recorder);
                recorder.set_class(request_, protocol, "SYNC");
                end_unit(UnitKind::synced, next, recorder);
            }
            extendable_ = false;
            ++session.group;
            return;
        case client::flush:
            join_flushed(recorder);
            if (unit_open_) {
                class_of_statement(session.prefix != nullptr ? session.prefix : "CLOSE", recorder);
                end_unit(UnitKind::flushed, next, recorder);
                unit_open_ = true;  // what follows before an answer comes joins it
            } else if (unanswered(recorder)) {
                recorder.end(request_, next);
            } else {
                one_way(Direction::to_server, "FLUSH", at, next, recorder);
            }
            return;
        case client::function_call:
            close_unit(at, recorder);
            ++session.group;
            begin_unit(UnitKind::query, at, recorder);
            recorder.set_class(request_, protocol, "FUNCTION_CALL");
            return end_unit(UnitKind::query, next, recorder);
        case client::terminate:
            return one_way(Direction::to_server, "TERMINATE", at, next, recorder);
        case client::password:
        case client::copy_data:
        case client::copy_done:
        case client::copy_fail:
            break;
        default:
            return;
    }
    // Data behind START_REPLICATION: it was granted, whether that was seen or not.
    if (phase_ == Phase::copy_both || (type == client::copy_data && session.streams)) {
        const bool data = type == client::copy_data;
        return one_way(Direction::to_server, data ? "REPLICATION_STATUS" : "REPLICATION_END", at, next,
                       recorder);
    }
    // More of the last request: the login's, or that of COPY FROM STDIN.
    if (request_ == kNoMessage) {
        one_way(Direction::to_server, type == client::password ? "LOGIN" : "COPY_DATA", at, next, recorder);
        return;
    }
    recorder.end(request_, next);
    // Where nothing is open the Execute was lost.
    session.copying =
        type != client::password && (session.unit.kind == UnitKind::execute || !recorder.has_request());
}

}  // namespace tapscope
