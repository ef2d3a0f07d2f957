// Redis serialization protocol, RESP2 and RESP3: https://redis.io/docs/latest/develop/reference/protocol-spec/
//
//     request    *N CRLF, then N times $LENGTH CRLF bytes CRLF; or an inline command: a line of words
//     reply      + - : _ # , ( line    $ ! = LENGTH CRLF bytes CRLF    * ~ N elements    % N pairs    > push    | attribute
//
// Replies come in the order of the commands, which may be sent ahead (pipelining). Nothing in a reply tells which command
// it answers: after a loss the two are in step again when the client, having had answers, sends a command while none is
// open; until then replies are not paired (a client that never lets its pipeline run empty is not recovered sooner). Where
// no command was open, the replies that come before the next one are those of lost ones.
#pragma once

#include <cstdint>
#include <string_view>

#include "dissect/dissector.hpp"
#include "dissect/in_step.hpp"
#include "record.hpp"

namespace tapscope {

class RedisDissector {
public:
    static constexpr Protocol protocol = Protocol::redis;

    static Probe probe(Bytes bytes, Direction direction) noexcept;
    Parsed parse(Direction direction, Bytes bytes, Recorder& recorder);
    void on_gap(Direction direction, std::uint64_t missing, Recorder& recorder);
    void on_end(Direction direction, Recorder& recorder);

private:
    void lose(Recorder& recorder);

    // redis_request.cpp
    Parsed request(Bytes bytes, Recorder& recorder);
    Parsed array_head(Bytes bytes, Recorder& recorder);
    Parsed argument(Bytes bytes, Recorder& recorder);
    Parsed inline_command(Bytes bytes, Recorder& recorder);
    void begin_command(std::string_view name, std::uint64_t at, Recorder& recorder);
    void take_argument(std::string_view text, Recorder& recorder);
    void class_of_command(std::string_view name, std::string_view subject, Recorder& recorder);
    Parsed end_request(std::uint64_t next, Recorder& recorder);

    // redis_reply.cpp
    Parsed reply(Bytes bytes, Recorder& recorder);
    Parsed reply_head(Bytes bytes, std::string_view line, std::size_t line_size, Recorder& recorder);
    Parsed element(Bytes bytes, std::string_view line, std::size_t line_size, Recorder& recorder);
    void end_reply(std::uint64_t next, Recorder& recorder);

    MessageRef request_ = kNoMessage;  // open request
    MessageRef reply_ = kNoMessage;    // open reply or push
    std::uint64_t elements_ = 0;       // of the open reply, still to come
    std::uint32_t arguments_ = 0;      // of the open request, still to come
    std::uint32_t index_ = 0;          // of the next argument
    std::uint16_t command_ = 0;        // index into the table of commands, of the open request
    std::uint8_t results_ = 0;         // tokens of the open reply
    std::uint8_t silent_ = 0;          // CLIENT REPLY: 1 SKIP for this command, 2 OFF, 3 SKIP for the next
    bool one_way_ = false;             // the open reply is a push
    bool subscribed_ = false;
    bool confirms_ = false;      // the open reply says how many channels are subscribed to now
    bool last_channel_ = false;  // ... and that is none
    bool stream_ = false;        // MONITOR or replication: the server sends on and on
    bool ask_stream_ = false;    // asked for, not granted yet
    bool asked_ = false;         // a command was seen
    bool lost_client_ = false;   // the borders of commands are unknown
    bool lost_server_ = false;   // those of replies, until they are in step again
    bool fresh_ = true;
    InStep step_;  // replies to commands
};

static_assert(sizeof(RedisDissector) <= 64);

}  // namespace tapscope
