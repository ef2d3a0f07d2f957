// PostgreSQL client protocol, version 3.0 and 3.2: framing, pairing, statement classes and evidence of one connection.
//
// postgres_wire.hpp has the messages and the specification. What a call is:
//   simple protocol    Query -> everything up to ReadyForQuery, whatever number of statements it holds
//   extended protocol  one Execute -> CommandComplete, EmptyQueryResponse or PortalSuspended. Parse, Bind, Describe and
//                      Close in front of the Execute, and Sync, Flush and Close behind it, are part of the request; the
//                      answers to them, of the answer. So every statement of a pipeline or JDBC batch is a call.
//   no Execute         Parse, Describe, Sync and the like are a call of their own (PREPARE, DESCRIBE, BIND, CLOSE, SYNC)
// An error makes the server skip to the next Sync: the failed call ends with that Sync's ReadyForQuery, the skipped ones
// with empty answers at the same place. ReadyForQuery is also where pairing comes back into step after a loss.
// Requests carry a tag, serial number << 4 | hint, by which the answer finds its unit (postgres_statements.hpp).
#pragma once

#include <cstdint>
#include <memory>

#include "dissect/dissector.hpp"
#include "dissect/sql_evidence.hpp"
#include "record.hpp"

namespace tapscope {

namespace postgres {
enum class UnitKind : std::uint8_t;
struct Session;
}  // namespace postgres

class PostgresDissector {
public:
    static constexpr Protocol protocol = Protocol::postgres;

    PostgresDissector();
    PostgresDissector(PostgresDissector&&) noexcept;
    PostgresDissector& operator=(PostgresDissector&&) noexcept;
    ~PostgresDissector();

    static Probe probe(Bytes bytes, Direction direction) noexcept;
    Parsed parse(Direction direction, Bytes bytes, Recorder& recorder);
    void on_gap(Direction direction, std::uint64_t missing, Recorder& recorder);
    void on_end(Direction direction, Recorder& recorder);

    // Statement text and bound values beyond this are not read (counted as postgres.statement_cut).
    static constexpr std::size_t kMaxText = kMaxStatementText;

private:
    enum class Phase : std::uint8_t {
        start,    // nothing understood yet, or a request for encryption was declined
        encrypt,  // one byte of the server is next
        login,    // up to the first ReadyForQuery
        command,
        copy_both,  // START_REPLICATION: both sides stream
        opaque,     // encrypted by GSSAPI, or over
    };
    struct Side {
        std::uint32_t skip = 0;     // rest of a message that a gap went through
        std::uint32_t left = 0;     // bytes that the last parse call gave back
        std::uint32_t partial = 0;  // length of the message that starts with them; 0: its header is not there
        char type = 0;              // of that message
        bool begun = false;         // its request or answer is reported already
        bool lost = false;          // message borders unknown
    };

    Side& side(Direction d) noexcept { return sides_[static_cast<unsigned>(d)]; }

    // postgres.cpp: framing and losses.
    Parsed start(Direction direction, Bytes bytes, Recorder& recorder);
    Parsed messages(Direction direction, Bytes bytes, std::uint64_t pos, Recorder& recorder);
    bool find_border(Direction direction, Bytes bytes, std::uint64_t& pos, Recorder& recorder);
    void lose(Direction direction, Recorder& recorder);

    // postgres_unheard.cpp: answers without any message of the client.
    bool unheard() const noexcept { return request_ == kNoMessage; }
    bool opens_unheard(char type, Recorder& recorder) noexcept;
    void note_unheard(char type) noexcept;
    void begin_unheard(char type) noexcept;

    // postgres_request.cpp: messages of the client.
    Parsed startup_message(Bytes bytes, Recorder& recorder);
    static std::size_t wanted_of_client(char type, std::uint32_t body) noexcept;
    void client_message(char type, std::uint32_t total, Bytes body, std::uint64_t at, std::uint64_t next,
                        Recorder& recorder);
    void begin_client_message(char type, std::uint64_t at, Recorder& recorder);
    void begin_unit(postgres::UnitKind kind, std::uint64_t at, Recorder& recorder);
    void end_unit(postgres::UnitKind kind, std::uint64_t at, Recorder& recorder);
    void join_flushed(Recorder& recorder);
    void close_unit(std::uint64_t at, Recorder& recorder);
    bool may_extend(Recorder& recorder) const noexcept;
    bool unanswered(Recorder& recorder) const noexcept;
    void one_way(Direction direction, std::string_view text, std::uint64_t at, std::uint64_t next,
                 Recorder& recorder);

    // postgres_sql.cpp: statements and bound values.
    void query(std::uint32_t total, Bytes body, Recorder& recorder);
    void parse_statement(std::uint32_t total, Bytes body, Recorder& recorder);
    void bind(Bytes body, Recorder& recorder);
    void execute(Bytes body, Recorder& recorder);
    void describe_or_close(char type, Bytes body);
    void class_of_statement(const char* prefix, Recorder& recorder);

    // postgres_unseen.cpp: statements whose text was not seen.
    std::int32_t adopt(std::string_view name, Recorder& recorder);
    void begin_naming(Recorder& recorder);
    void name_column(std::string_view name);
    void finish_naming(std::string_view tag, Recorder& recorder);

    // postgres_response.cpp: messages of the server.
    std::size_t wanted_of_server(char type, std::uint32_t body) const noexcept;
    void server_message(char type, std::uint32_t total, Bytes body, std::uint64_t at, std::uint64_t next,
                        Recorder& recorder);
    bool outside_answer(char type, Bytes body, std::uint64_t at, std::uint64_t next, Recorder& recorder);
    void begin_answer(char type, std::uint64_t at, Recorder& recorder);
    void end_answer(std::uint64_t next, Recorder& recorder);
    postgres::UnitKind answered_kind() noexcept;
    void acknowledged(std::uint64_t next, Recorder& recorder);
    void ready(std::uint64_t at, std::uint64_t next, Recorder& recorder);
    void answer_skipped(std::uint64_t next, Recorder& recorder);
    void ready_after_loss(std::uint64_t at, Recorder& recorder);
    void error(Bytes body, std::uint64_t next, Recorder& recorder);
    void parameter_status(Bytes body) noexcept;
    void row_description(Bytes body);
    void parameter_description(Bytes body);
    void data_row(Bytes body, Recorder& recorder);
    std::uint32_t front_group(Recorder& recorder) noexcept;

    Side sides_[2];
    Phase phase_ = Phase::start;
    bool inferred_ = false;       // the start of the connection was not seen
    bool unit_open_ = false;      // a request has begun and its last message is still to come
    bool extendable_ = false;     // the last request ended with Execute, and no Sync was seen since
    bool wants_rows_ = false;     // the rows being read still give tokens
    bool after_execute_ = false;  // the last answer was one to an Execute, and its ReadyForQuery is due
    bool in_error_ = false;       // the server skips to the next Sync
    bool await_ready_ = false;    // after a loss: which request an answer belongs to is known again behind it
    MessageRef request_ = kNoMessage;  // the last message of the client
    MessageRef answer_ = kNoMessage;   // open response
    std::unique_ptr<postgres::Session> session_;
};

static_assert(sizeof(PostgresDissector) <= 64);

}  // namespace tapscope
