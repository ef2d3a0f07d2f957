// Framing: one message after the other, skipping what is not needed, and back on track after a loss.
#include "dissect/postgres.hpp"

#include <algorithm>

#include "dissect/postgres_session.hpp"
#include "dissect/postgres_wire.hpp"

namespace tapscope {

using namespace postgres;

PostgresDissector::PostgresDissector() : session_(std::make_unique<Session>()) {}
PostgresDissector::PostgresDissector(PostgresDissector&&) noexcept = default;
PostgresDissector& PostgresDissector::operator=(PostgresDissector&&) noexcept = default;
PostgresDissector::~PostgresDissector() = default;

Probe PostgresDissector::probe(Bytes bytes, Direction direction) noexcept {
    if (bytes.empty()) return Probe::need_more;
    if (direction == Direction::to_server && bytes[0] == 0) return starts_connection(bytes);
    if (bytes.size() < kHeader)
        return Probe::no;  // no start of a connection, and too short to be sure midstream
    if (direction == Direction::to_client && asks_for_login(bytes)) return Probe::yes;
    return find_chain(direction, bytes, 0, true) == 0 ? Probe::yes : Probe::no;
}

Parsed PostgresDissector::parse(Direction direction, Bytes bytes, Recorder& recorder) {
    Side& s = side(direction);
    Parsed parsed;
    recorder.dissector_pairs();
    if (phase_ == Phase::opaque) {
        parsed.consumed = bytes.size();
    } else if (s.skip > 0) [[unlikely]] {
        parsed.consumed = s.skip;
        s.skip = 0;
    } else if (phase_ == Phase::start || phase_ == Phase::encrypt) {
        parsed = start(direction, bytes, recorder);
    } else {
        parsed = messages(direction, bytes, 0, recorder);
    }
    s.left = parsed.consumed < bytes.size() ? static_cast<std::uint32_t>(bytes.size() - parsed.consumed) : 0;
    return parsed;
}

// Before the first typed message.
Parsed PostgresDissector::start(Direction direction, Bytes bytes, Recorder& recorder) {
    // Was the answer to a request for encryption lost? A client that goes on in the clear has read that it was declined.
    const bool answer_lost = phase_ == Phase::encrypt && side(Direction::to_client).lost;
    if (direction == Direction::to_server && (phase_ == Phase::start || answer_lost) &&
        !side(direction).lost) {
        const Probe first = starts_connection(bytes);
        if (first == Probe::need_more) return {Step::ok, 0};
        if (first == Probe::yes) {
            phase_ = Phase::start;
            return startup_message(bytes, recorder);
        }
    }
    if (direction == Direction::to_client && phase_ == Phase::encrypt) {
        const auto answer = static_cast<char>(bytes[0]);
        if (answer == 'S' || answer == 'N' || answer == 'G') {
            begin_answer(answer, 0, recorder);
            recorder.set_status(answer_, 0);
            end_answer(1, recorder);
            phase_ = Phase::start;
            if (answer == 'N') return {Step::ok, 1};
            const char* const name = answer == 'S' ? "postgres.tls" : "postgres.gss_encrypted";
            recorder.count(answer == 'S' ? "postgres.tls_connection" : "postgres.gss_connection");
            for (const Direction d : {Direction::to_server, Direction::to_client})
                recorder.remainder(d, name);
            if (answer == 'S') return {Step::switch_to, 1, nullptr, Protocol::tls};
            phase_ = Phase::opaque;
            return {Step::ok, 1};
        }
        phase_ = Phase::login;  // a server that does not know the request answers with an error
        return messages(direction, bytes, 0, recorder);
    }
    if (phase_ == Phase::encrypt) return {Step::malformed, 0, "postgres.bytes_before_encryption"};
    // Joined in the middle.
    const bool login = direction == Direction::to_client && asks_for_login(bytes);
    const std::size_t begin = login ? 0 : find_chain(direction, bytes, 0, false);
    if (begin == bytes.size()) {
        recorder.remainder(direction, "postgres.before_first_message");
        return {Step::ok, bytes.size()};
    }
    phase_ = Phase::command;
    inferred_ = true;
    recorder.count("postgres.joined_midstream");
    side(Direction::to_server).lost = side(Direction::to_client).lost = true;
    // An extended message may stand in the middle of a pipeline; then the answers before its own come first.
    const auto first = static_cast<char>(bytes[begin]);
    await_ready_ = direction == Direction::to_server && first != client::query;
    if (direction == Direction::to_client && begin == 0 && opens_unheard(first, recorder))
        side(direction).lost = false;
    return messages(direction, bytes, 0, recorder);
}

Parsed PostgresDissector::messages(Direction direction, Bytes bytes, std::uint64_t pos, Recorder& recorder) {
    Side& s = side(direction);
    const std::size_t size = bytes.size();
    const bool to_server = direction == Direction::to_server;
    s.partial = 0;
    while (pos < size) {
        if (s.lost && !find_border(direction, bytes, pos, recorder)) return {Step::ok, size};
        if (pos + kHeader > size) break;
        const auto type = static_cast<char>(bytes[pos]);
        const std::uint32_t length = load_be32(&bytes[pos + 1]);
        if (!plausible_length(direction, type, length)) [[unlikely]]
            return {Step::malformed, pos,
                    to_server ? "postgres.bad_client_message" : "postgres.bad_server_message"};
        const std::uint32_t total = length - 4;
        const std::size_t need = to_server ? wanted_of_client(type, total) : wanted_of_server(type, total);
        const std::size_t have = size - pos - kHeader;
        if (have < need) {
            if (!s.begun) {
                if (to_server)
                    begin_client_message(type, pos, recorder);
                else if (answer_ == kNoMessage && type == server::data_row && recorder.has_request() &&
                         !await_ready_)
                    begin_answer(type, pos, recorder);
                s.begun = true;
            }
            s.partial = 1 + length;
            s.type = type;
            break;
        }
        const std::uint64_t next = pos + 1 + length;
        // Never more than was asked for: what is reported must not depend on how much happens to be at hand.
        const Bytes body = bytes.subspan(pos + kHeader, need);
        if (to_server) {
            client_message(type, total, body, pos, next, recorder);
        } else {
            server_message(type, total, body, pos, next, recorder);
        }
        s.begun = false;
        pos = next;
    }
    return {Step::ok, pos};
}

// ---- losses ---------------------------------------------------------------------------------------------------------

void PostgresDissector::on_gap(Direction direction, std::uint64_t missing, Recorder& recorder) {
    Side& s = side(direction);
    if (phase_ == Phase::opaque) return recorder.borders_kept();
    if (direction == Direction::to_server && missing > 0 && unheard()) session_->request_lost = true;
    if (s.lost) return;
    if (missing > 0 && s.skip >= missing) {
        s.skip -= static_cast<std::uint32_t>(missing);
        return recorder.borders_kept();
    }
    if (s.partial > 0 && s.left + missing <= s.partial) {
        // The length of the message that the gap goes through is known: is the state behind it, too?
        const std::uint32_t rest = s.partial - s.left;
        bool known = false;
        if (direction == Direction::to_client) {
            known = s.type == server::data_row && answer_ != kNoMessage;
        } else if (s.type == client::query && s.begun) {
            recorder.count("postgres.request_text_lost");
            end_unit(UnitKind::query, rest, recorder);
            known = true;
        } else if ((s.type == client::parse || s.type == client::bind) && s.begun) {
            recorder.count("postgres.request_text_lost");
            session_->unit.statement = {};
            known = true;
        }
        if (known) {
            s.skip = rest - static_cast<std::uint32_t>(missing);
            s.left = s.partial = 0;
            s.begun = false;
            return recorder.borders_kept();
        }
    }
    lose(direction, recorder);
    if (phase_ != Phase::start) recorder.remainder(direction, "postgres.resynchronisation");
}

void PostgresDissector::lose(Direction direction, Recorder& recorder) {
    Side& s = side(direction);
    s = {};
    s.lost = true;
    const bool several = recorder.open_requests() > 1;
    if (direction == Direction::to_client) {
        session_->command_since_loss = session_->extended = false;
        session_->strings = {};  // a change may be among what was lost
        after_execute_ = false;
    } else {
        close_unit(0, recorder);
        extendable_ = false;
        ++session_->group;
        session_->request_lost = true;
        // A Parse of the names that are used again and again may be among the lost bytes.
        session_->statements.close({});
        session_->portals.close({});
    }
    // With several requests on the way nothing but a ReadyForQuery tells which of them an answer belongs to.
    if (!several) return;
    await_ready_ = true;
    session_->orphan_tail = false;
    if (answer_ == kNoMessage) return;
    recorder.add_flags(answer_, message_flag::truncated);
    recorder.end(answer_, 0);
    answer_ = kNoMessage;
}

// Message borders are unknown. Finds the next one at or behind `pos` and the state to go on with.
bool PostgresDissector::find_border(Direction direction, Bytes bytes, std::uint64_t& pos,
                                    Recorder& recorder) {
    Side& s = side(direction);
    const std::size_t found = find_chain(direction, bytes, pos, false);
    recorder.remainder(direction, "postgres.resynchronisation");
    if (direction == Direction::to_server) {
        if (found == bytes.size()) return false;
        s.lost = false;
        pos = found;
        return true;
    }
    if (found == bytes.size()) return false;
    if (recorder.open_requests() > 1) await_ready_ = true;
    if (!recorder.has_request() && !await_ready_) {
        // The tail of an answer to a request that was not seen: its end is where reading can start.
        await_ready_ = session_->orphan_tail = true;
    }
    if (answer_ != kNoMessage && (await_ready_ || session_->command_since_loss)) {
        recorder.end(answer_, 0);  // the client went on: that answer was over
        answer_ = kNoMessage;
    }
    s.lost = false;
    pos = found;
    return true;
}

void PostgresDissector::on_end(Direction direction, Recorder& recorder) {
    Side& s = side(direction);
    if (direction == Direction::to_server &&
        (s.begun || (unit_open_ && session_->unit.kind != UnitKind::flushed)))
        recorder.count("postgres.request_cut");
    if (direction == Direction::to_client && answer_ != kNoMessage && in_error_) {
        recorder.end(answer_, 0);  // a fatal error needs no ReadyForQuery
        answer_ = kNoMessage;
    }
    s.begun = false;
}

}  // namespace tapscope
