// Answers of a connection of which only the server is seen: what the server says tells what it was asked.
//
// Up to ReadyForQuery all is either simple or extended protocol. In the extended one something is acknowledged before
// anything is executed, and more rows of a portal come without a description: then each Execute is an answer of its own,
// as it is with the client in sight. What is left open: a Sync or Flush by itself, and an error at a Sync.
#include "dissect/postgres.hpp"
#include "dissect/postgres_session.hpp"
#include "dissect/postgres_wire.hpp"

namespace tapscope {

using namespace postgres;

namespace {

// Messages that answer the extended protocol only.
bool is_acknowledgement(char type) noexcept {
    return type == server::parse_complete || type == server::bind_complete ||
           type == server::close_complete || type == server::no_data ||
           type == server::parameter_description || type == server::portal_suspended;
}

// Messages that come before anything else on a connection, and nowhere else.
bool is_login(char type) noexcept {
    return type == server::authentication || type == server::negotiate_version;
}

}  // namespace

// The first bytes that are read begin with this message of the server: is it the answer to a login? Of anything else
// the start may not have been seen.
bool PostgresDissector::opens_unheard(char type, Recorder& recorder) noexcept {
    if (!is_login(type) && (type != server::error || !recorder.after_gap(Direction::to_server))) return false;
    session_->request_lost = true;
    return true;
}

// A message of the server: what it says of the request that is answered.
void PostgresDissector::note_unheard(char type) noexcept {
    Session& session = *session_;
    session.extended |= is_acknowledgement(type) || (type == server::data_row && answer_ == kNoMessage);
    if (type == server::bind_complete) session.bound = true;
    if (answer_ == kNoMessage) return;
    if (session.extended && session.answered.kind == UnitKind::unknown)
        session.answered.kind = UnitKind::execute;
    // Formats are in the description of a portal, not in that of a statement.
    session.formats_given = session.answered.kind != UnitKind::execute || session.bound;
}

// The answer that `type` begins.
void PostgresDissector::begin_unheard(char type) noexcept {
    Session& session = *session_;
    session.bound = type == server::bind_complete;
    session.answered.kind = is_login(type)     ? UnitKind::login
                            : session.extended ? UnitKind::execute
                                               : UnitKind::unknown;
    session.formats_given = session.answered.kind != UnitKind::execute || session.bound;
    wants_rows_ = false;  // before their format is known
}

}  // namespace tapscope
