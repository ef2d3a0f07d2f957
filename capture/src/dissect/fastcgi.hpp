// FastCGI 1.0: https://fastcgi-archives.github.io/FastCGI_Specification.html
//
//     version 1 | type u8 | request id u16 | content length u16 | padding length u8 | 0 | content | padding
//
// BEGIN_REQUEST, PARAMS and STDIN up to its empty record are the request, STDOUT and STDERR up to END_REQUEST the
// response. Class and evidence are those of the HTTP request that the parameters describe, so that the same request has
// the same class text and hashes on both sides of a web server.
//
// Web servers have one request at a time on a connection, and all with one id: messages are in one piece then, and paired
// by their order as in other protocols. At the first record of a second id (multiplexing), or one of the connection
// itself inside a message, messages become sums of records that are paired by id (fastcgi_streams.hpp), for good.
#pragma once

#include <cstdint>
#include <memory>

#include "dissect/dissector.hpp"
#include "dissect/fastcgi_message.hpp"
#include "dissect/fastcgi_streams.hpp"
#include "record.hpp"

namespace tapscope {

class FastcgiDissector {
public:
    static constexpr Protocol protocol = Protocol::fastcgi;

    static Probe probe(Bytes bytes, Direction direction) noexcept;
    Parsed parse(Direction direction, Bytes bytes, Recorder& recorder);
    void on_gap(Direction direction, std::uint64_t missing, Recorder& recorder);
    void on_end(Direction direction, Recorder& recorder);

private:
    struct Side {
        std::uint32_t skip = 0;     // rest of a record that a gap went through
        std::uint32_t left = 0;     // bytes that the last parse call gave back
        std::uint32_t partial = 0;  // length of the record that starts with them; 0: its header is not there
        fastcgi::Type type{};       // ... and what it is
        std::uint16_t id = 0;
        bool lost = false;   // record borders unknown
        bool lossy = false;  // they were once
    };

    Side& side(Direction d) noexcept { return sides_[static_cast<unsigned>(d)]; }
    std::size_t wanted(Bytes header) const noexcept;
    void record(Bytes header, Bytes content, std::uint64_t at, std::uint64_t next, Recorder& recorder);
    void begin_request(Bytes content, std::uint64_t at, Recorder& recorder);
    void end_request(std::uint64_t next, Recorder& recorder);
    void begin_answer(std::uint64_t at, Recorder& recorder);
    void alone(Direction direction, const char* text, std::uint64_t at, std::uint64_t next,
               Recorder& recorder);
    bool interleaves(Direction direction, Bytes header) noexcept;
    void interleave(Direction direction, std::uint64_t at, Recorder& recorder);
    bool find_border(Direction direction, Bytes bytes, std::uint64_t& pos, Recorder& recorder);

    Side sides_[2];
    fastcgi::OpenMessage<fastcgi::RequestText> request_;
    fastcgi::OpenMessage<fastcgi::AnswerHead> answer_;
    std::unique_ptr<fastcgi::Streams> streams_;  // several ids
    std::uint16_t id_ = 0;                       // the only one so far; 0: none was seen
    bool began_since_loss_ = false;              // a request began after bytes to the client were lost
};

}  // namespace tapscope
