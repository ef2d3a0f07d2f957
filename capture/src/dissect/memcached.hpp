// memcached: text commands, meta commands and the binary protocol over TCP.
// https://docs.memcached.org/protocols/basic/, /meta/, /binary/ (https://github.com/memcached/memcached/blob/master/doc)
//
//     text      command key ... CRLF [block CRLF]        VALUE key flags size CRLF block CRLF ... END CRLF, or a line
//     meta      mg key flags CRLF; ms key size flags     VA size flags CRLF block CRLF, or two letters and flags
//     binary    magic 80|81, opcode, key length u16, extras length, data type, vbucket or status u16, body length u32,
//               opaque u32, cas u64; extras, key, value
//
// Quiet commands (noreply, the meta flag q, binary ...Q) are one-way; so is what a quiet get has found. A binary answer
// repeats opcode and opaque of its request, by which the two are found again after a loss; text answers are in step again
// when the client, having had answers, sends a command while none is open.
#pragma once

#include <cstdint>
#include <string_view>

#include "dissect/dissector.hpp"
#include "dissect/in_step.hpp"
#include "record.hpp"

namespace tapscope {

class MemcachedDissector {
public:
    static constexpr Protocol protocol = Protocol::memcached;

    static Probe probe(Bytes bytes, Direction direction) noexcept;
    Parsed parse(Direction direction, Bytes bytes, Recorder& recorder);
    void on_gap(Direction direction, std::uint64_t missing, Recorder& recorder);
    void on_end(Direction direction, Recorder& recorder);

private:
    enum class Form : std::uint8_t { unknown, text, binary };

    void begin(MessageKind kind, std::uint32_t tag, Recorder& recorder);
    void end_answer(std::uint64_t next, Recorder& recorder);
    bool out_of_step(Recorder& recorder);

    // memcached_text.cpp
    Parsed text_request(std::string_view line, std::size_t line_size, Recorder& recorder);
    Parsed text_answer(std::string_view line, std::size_t line_size, Recorder& recorder);

    // memcached_binary.cpp
    Parsed binary_request(Bytes bytes, Recorder& recorder);
    Parsed binary_answer(Bytes bytes, Recorder& recorder);

    MessageRef request_ = kNoMessage;  // the last message of the client
    MessageRef answer_ = kNoMessage;   // open answer
    std::uint32_t found_ = 0;          // values of the open answer
    Form form_ = Form::unknown;
    bool stream_ = false;       // watch: the server sends on and on
    bool lost_client_ = false;  // the borders of commands are unknown
    bool lost_server_ = false;  // the borders of answers are unknown
    InStep step_;               // text answers to commands
};

static_assert(sizeof(MemcachedDissector) <= 64);

}  // namespace tapscope
