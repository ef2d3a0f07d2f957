// C-JDBC 2.0, driver to controller: framing by decoding every field, pairing, statement class and evidence of one
// connection (cjdbc_wire.hpp has the layouts). Sequoia, its successor, is framed by its markers and flagged inferred.
//
// One command at a time: what cannot be decoded (a loss, a cursor opened before the capture) is delimited by whose turn
// it is. An answer ends at the latest where the client goes on, a command where the controller answers.
// Passwords, and the stack traces in exceptions, are passed over by counting.
#pragma once

#include <cstdint>
#include <memory>

#include "dissect/cjdbc_wire.hpp"
#include "dissect/dissector.hpp"
#include "record.hpp"

namespace tapscope {

class CjdbcDissector {
public:
    static constexpr Protocol protocol = Protocol::cjdbc;

    CjdbcDissector();
    CjdbcDissector(CjdbcDissector&&) noexcept;
    CjdbcDissector& operator=(CjdbcDissector&&) noexcept;
    ~CjdbcDissector();

    static Probe probe(Bytes bytes, Direction direction) noexcept;
    Parsed parse(Direction direction, Bytes bytes, Recorder& recorder);
    void on_gap(Direction direction, std::uint64_t missing, Recorder& recorder);
    void on_end(Direction direction, Recorder& recorder);

private:
    struct State;
    struct Side;
    struct Text;
    enum class Run : std::uint8_t {
        more,  // bytes are needed
        done,
        blind,           // nothing more can be decoded, and why is noted
        desynchronised,  // these bytes cannot be what was expected
    };

    // cjdbc.cpp: messages.
    std::uint64_t client(Bytes bytes, Recorder& recorder);
    std::uint64_t controller(Bytes bytes, Recorder& recorder);
    bool begin_command(Bytes bytes, std::uint64_t& pos, Recorder& recorder);
    void begin_login(MessageRef message, Recorder& recorder);
    void set_class(std::string_view text, Recorder& recorder);
    bool begin_answer(Bytes bytes, std::uint64_t& pos, Recorder& recorder);
    void finish_command(Recorder& recorder);
    void client_speaks(Recorder& recorder);
    void controller_speaks(Recorder& recorder);
    bool find_mode(Direction direction, Bytes bytes, Recorder& recorder);

    // cjdbc_fields.cpp: the fields of a message, by its layout.
    class Input;
    Run fields(Side& side, Bytes bytes, std::uint64_t& pos, Recorder& recorder);
    Run field(Side& side, Input& in, Recorder& recorder);
    Run number(Side& side, std::int32_t value, Recorder& recorder);
    Run flag(Side& side, bool value, Recorder& recorder);
    Run text_field(Side& side, Input& in, Recorder& recorder);
    Run text(Text& text, Input& in) const;
    Run text_read(Side& side, Recorder& recorder);

    // cjdbc_answers.cpp: what the controller answers.
    Run answer_tag(Side& side, Recorder& recorder);
    Run nulls(Side& side, Input& in);
    Run values(Side& side, Input& in, Recorder& recorder);
    void result_token(std::string_view value, Recorder& recorder);

    // cjdbc_statement.cpp: what a command says.
    void statement(bool cut, Recorder& recorder);
    void named(Recorder& recorder);
    void parameters(Recorder& recorder);
    void keep_cursor(Recorder& recorder);

    // cjdbc_sequoia.cpp: messages by markers and turns.
    std::uint64_t sequoia(Direction direction, Bytes bytes, Recorder& recorder);

    std::unique_ptr<State> state_;
};

namespace cjdbc {

// Are these the first bytes of a command or login (of an answer) of C-JDBC 2.0? cjdbc_recognise.cpp
Probe looks_like_client(Bytes bytes) noexcept;
Probe looks_like_controller(Bytes bytes) noexcept;

}  // namespace cjdbc

}  // namespace tapscope
