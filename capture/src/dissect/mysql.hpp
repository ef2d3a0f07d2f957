// MySQL and MariaDB client protocol: framing, pairing, statement classes and evidence of one connection.
//
// mysql_wire.hpp has the packet layout and the specifications. A connection goes through
//   greeting -> login (auth round trips) -> commands                    or, when its start was not seen,
//   start -> commands, with everything flagged `inferred`.
// Requests carry a tag, command | serial << 8, by which their answer is read: the Recorder's FIFO decides which request
// an answer belongs to, so a lost packet cannot shift the pairing. Large packets are skipped by counting.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../record.hpp"
#include "dissector.hpp"
#include "mysql_statements.hpp"
#include "mysql_wire.hpp"
#include "sql_strings.hpp"

namespace tapscope {

namespace mysql {

// Maps positions of the bytes given to the packet layer to offsets of the running parse call. They differ when the
// bytes come out of a compressed packet: byte i of `in` inner bytes then stands i/in of the way into `out` outer ones.
struct OffsetMap {
    std::uint64_t base = 0;
    std::uint64_t carried = 0;  // inner bytes from earlier outer packets: they map to `base`
    std::uint64_t in = 0;       // 0: identity
    std::uint64_t out = 0;

    std::uint64_t operator()(std::uint64_t at) const noexcept {
        if (in == 0) return base + at;
        if (at <= carried) return base;
        const std::uint64_t fresh = at - carried;
        return fresh >= in ? base + out : base + fresh * out / in;
    }
};

class Decompressor;

}  // namespace mysql

class MysqlDissector {
public:
    static constexpr Protocol protocol = Protocol::mysql;

    MysqlDissector();
    MysqlDissector(MysqlDissector&&) noexcept;
    MysqlDissector& operator=(MysqlDissector&&) noexcept;
    ~MysqlDissector();

    static Probe probe(Bytes bytes, Direction direction) noexcept;
    Parsed parse(Direction direction, Bytes bytes, Recorder& recorder);
    void on_gap(Direction direction, std::uint64_t missing, Recorder& recorder);
    void on_end(Direction direction, Recorder& recorder);

    // Statement text beyond this is not fingerprinted (counted as mysql.statement_cut).
    static constexpr std::size_t kMaxText = 64 * 1024;

private:
    enum class Phase : std::uint8_t {
        start,  // nothing understood yet
        login,  // greeting seen, the client's answer is next
        auth,   // login or CHANGE_USER under way: client packets continue the request
        command,
        replication,  // the server streams binlog events
    };
    enum class Answer : std::uint8_t {
        first,            // OK, ERR, LOCAL INFILE, or the column count of a result set
        definitions,      // `definitions_left_` column definitions
        definitions_end,  // EOF, unless deprecated
        rows,
        prepare,     // definitions of parameters and columns with their EOFs
        field_list,  // definitions until EOF
        infile,      // the client sends the file
    };
    enum class Known : std::uint8_t { no, yes, unknown };

    struct Side {
        std::uint64_t skip = 0;  // bytes of the current packet that are skipped before parsing goes on
        std::uint64_t left = 0;  // bytes that the last parse call gave back
        std::uint64_t partial =
            0;  // length of the packet that starts with them; 0: not even its header is there
        bool continues = false;       // the next packet continues the last one (payload of 0xFFFFFF)
        bool begun = false;           // the message of that packet is reported already
        MessageRef due = kNoMessage;  // message that ends when `skip` is done
        bool lost = false;            // packet borders unknown
    };
    struct Inflight {
        std::uint32_t serial = 0;
        std::uint32_t generation = 0;
        std::int32_t slot = mysql::StatementTable::kNone;
    };
    struct Compression;

    Side& side(Direction d) noexcept { return sides_[static_cast<unsigned>(d)]; }

    // mysql.cpp: the packet layer.
    std::uint64_t packets(Direction direction, Bytes bytes, const mysql::OffsetMap& map, Recorder& recorder);
    std::uint64_t packet(Direction direction, Bytes bytes, std::size_t pos, mysql::PacketHeader head,
                         std::size_t need, const mysql::OffsetMap& map, Recorder& recorder);
    std::size_t wanted(Direction direction, std::uint32_t length, std::uint8_t seq,
                       Bytes payload) const noexcept;
    void begin_early(Direction direction, std::uint8_t seq, Bytes payload, std::uint64_t at,
                     Recorder& recorder);
    void end_message(Direction direction, MessageRef ref, std::uint64_t next, Bytes bytes,
                     const mysql::OffsetMap& map, Recorder& recorder);
    bool find_command(Bytes bytes, Recorder& recorder);
    bool find_answer(Bytes bytes, std::size_t& pos, const mysql::OffsetMap& map, Recorder& recorder);
    bool pass_over_packet(Direction direction, std::uint64_t length, Recorder& recorder);
    void lose(Direction direction);
    void login_not_seen(Recorder& recorder);

    // mysql_compression.cpp: outer packets of the compressed protocol.
    std::uint64_t outer_packets(Direction direction, Bytes bytes, std::uint64_t base, Recorder& recorder);
    void inner_bytes(Direction direction, Bytes fresh, mysql::OffsetMap map, Recorder& recorder);
    void command_lost(Recorder& recorder);
    void outer_gap(Direction direction, std::uint64_t missing);
    void start_compression();
    void compression_under_way(Direction seen);
    void infer_compression(Direction seen, Recorder& recorder);

    // mysql_recognise.cpp: a connection whose start was not seen.
    static bool plausible_command(Bytes bytes) noexcept;
    static bool plausible_compressed(Bytes bytes) noexcept;
    static bool compressed_header(Bytes bytes) noexcept;
    bool login_unseen() const noexcept { return inferred_ && caps_ == 0 && !compressed_; }
    static bool plausible_login(Bytes bytes) noexcept;
    static bool opens_answer(Bytes packet) noexcept;
    static Probe compressed_answer(Bytes bytes, std::uint32_t server_caps) noexcept;

    // mysql_unheard.cpp: answers without any packet of the client.
    bool unheard() const noexcept { return request_ == kNoMessage; }
    bool compressed_unheard(Bytes bytes, Recorder& recorder);
    bool joins_unheard(Bytes bytes, Recorder& recorder);
    bool continues_unheard(std::uint8_t seq) noexcept;
    void restart_unheard(std::uint8_t seq, std::uint64_t at, Recorder& recorder);
    std::int32_t slot_unheard(std::uint32_t id);

    // mysql_request.cpp: packets of the client.
    bool starts_command(std::uint8_t seq) const noexcept;
    bool sends_file() const noexcept;
    std::size_t wanted_of_client(std::uint32_t length, std::uint8_t seq, Bytes payload) const noexcept;
    void begin_command(std::uint8_t command, std::uint64_t at, Recorder& recorder);
    void end_answer(Recorder& recorder);
    void begin_login(std::uint64_t at, Recorder& recorder);
    void client_packet(std::uint32_t length, std::uint8_t seq, Bytes payload, std::uint64_t at,
                       Recorder& recorder);
    void command(std::uint32_t length, Bytes payload, Recorder& recorder);
    void login(std::uint32_t length, Bytes payload, Recorder& recorder);
    void statement_text(std::uint8_t command, std::uint32_t length, Bytes payload, Recorder& recorder);
    Bytes query_attributes(Bytes payload, Recorder& recorder);
    std::int32_t statement_slot(std::uint32_t id);
    void remember(std::int32_t slot);

    // mysql_execute.cpp: bound parameters.
    mysql::Statement* executed(std::uint32_t id, Recorder& recorder);
    void execute(Bytes payload, Recorder& recorder);
    void bulk_execute(Bytes payload, Recorder& recorder);

    // mysql_unseen.cpp: statements that were prepared before the capture began.
    std::int32_t adopt(std::uint32_t id, Recorder& recorder);
    static bool find_parameters(mysql::Statement& statement, Bytes payload);
    void begin_naming(Recorder& recorder);
    void name_column(Bytes payload);
    void finish_naming(bool rows, Recorder& recorder);

    // mysql_strings.cpp: how strings are read.
    void note_status(std::uint16_t status) noexcept;
    void note_collation(unsigned collation) noexcept;
    void note_change_of_user(Bytes payload) noexcept;
    void note_settings(std::string_view text) noexcept;
    void doubt_strings(Direction direction) noexcept;

    // mysql_response.cpp: packets of the server.
    std::size_t wanted_of_server(std::uint32_t length, Bytes payload) const noexcept;
    void begin_answer(Bytes payload, std::uint8_t seq, std::uint64_t at, Recorder& recorder);
    bool server_packet(std::uint32_t length, std::uint8_t seq, Bytes payload, bool more, Recorder& recorder);
    bool greeting(Bytes payload, Recorder& recorder);
    bool first_packet(std::uint32_t length, Bytes payload, Recorder& recorder);
    bool auth_packet(std::uint32_t length, Bytes payload, Recorder& recorder);
    bool prepare_ok(std::uint32_t length, Bytes payload, Recorder& recorder);
    bool prepare_packet(std::uint32_t length, Bytes payload, bool more);
    bool column_count(std::uint32_t length, Bytes payload, Recorder& recorder);
    bool error(Bytes payload, Recorder& recorder);
    std::uint16_t status_of_ok(Bytes payload) noexcept;
    bool ok(Bytes payload, Recorder& recorder);
    bool finished(std::uint16_t status, Recorder& recorder);
    void succeed(Recorder& recorder);
    mysql::Statement* answered_statement() noexcept;

    // mysql_rows.cpp: result sets.
    bool wants_rows() const noexcept;
    void definition(std::uint32_t length, Bytes payload);
    bool row_or_end(std::uint32_t length, Bytes payload, Recorder& recorder);
    void row(Bytes payload, Recorder& recorder);
    std::size_t result_set(Bytes bytes, std::size_t pos, Recorder& recorder);

    mysql::Command answer_command() const noexcept { return static_cast<mysql::Command>(answer_tag_ & 0xFF); }

    // What is told of a connection as long as one of its sides is not seen.
    struct Unheard {
        MessageRef last_answer = kNoMessage;
        std::uint8_t next_seq = 0;  // of the server's next packet, if it is more of the same answer
        std::int32_t slot = mysql::StatementTable::kNone;  // the last PREPARE
        std::uint32_t prepares = 0;                        // since an id was last told
        std::uint32_t id = 0;                              // the highest one that was told
    };

    // What the definitions of an answer say of an unseen statement so far.
    struct Naming {
        std::string text, table;  // the table of the last column
    };

    Side sides_[2];
    Phase phase_ = Phase::start;
    Answer answer_ = Answer::first;
    Known deprecate_eof_ = Known::unknown;
    bool inferred_ = false;   // the login was not seen
    bool uncertain_ = false;  // ... or bytes were lost: the grammar of an answer may be mistaken
    bool mariadb_ = false;
    bool compressed_ = false;
    bool turns_to_tls_ = false;        // an SSLRequest was just read
    bool command_since_loss_ = false;  // a command began after bytes to the client were lost
    bool prepare_expects_eof_ = false;
    bool answer_binary_ = false;
    bool heard_ = false;  // a message of the server was seen
    SqlStrings strings_;
    std::uint8_t server_collation_ = 0;
    std::uint32_t server_caps_ = 0, server_caps_mariadb_ = 0;
    std::uint32_t caps_ = 0, caps_mariadb_ = 0;  // effective: of client and server

    std::uint32_t serial_ = 0;
    MessageRef request_ = kNoMessage;  // the last message of the client
    MessageRef answer_row_ = kNoMessage;
    std::uint32_t answer_tag_ = 0;
    std::uint32_t definitions_left_ = 0;
    std::uint16_t prepare_params_ = 0, prepare_columns_ = 0;
    std::uint16_t columns_ = 0;   // of the result set being read
    std::uint8_t rows_seen_ = 0;  // of an answer, up to kMaxResultRows,
    std::uint8_t tokens_ = 0;     // and what they gave
    std::uint8_t column_type_[mysql::kTokenColumns] = {};
    std::uint32_t column_unsigned_ = 0;

    mysql::StatementTable statements_;
    std::int32_t last_prepared_ = mysql::StatementTable::kNone;
    std::vector<Inflight> inflight_;  // by serial, of commands that name a statement
    std::unique_ptr<Naming> name_;    // where the answer being read is to tell what its statement is
    std::unique_ptr<Compression> compression_;
    Unheard unheard_;
};

}  // namespace tapscope
