// FastCGI 1.0: https://fastcgi-archives.github.io/FastCGI_Specification.html
//
//     version 1 | type u8 | request id u16 | content length u16 | padding length u8 | 0 | content | padding
//
// BEGIN_REQUEST, PARAMS and STDIN up to its empty record are the request, STDOUT and STDERR up to END_REQUEST the
// response. Class and evidence are those of the HTTP request that the parameters describe, so that the same request has
// the same class text and hashes on both sides of a web server. Several requests at once (multiplexing; no web server
// in use asks for it) are told apart by their id as far as whole answers follow each other.
#pragma once

#include <cstdint>
#include <string>

#include "dissect/dissector.hpp"
#include "record.hpp"

namespace tapscope {

namespace fastcgi {
enum class Type : std::uint8_t;
}

class FastcgiDissector {
public:
    static constexpr Protocol protocol = Protocol::fastcgi;

    static Probe probe(Bytes bytes, Direction direction) noexcept;
    Parsed parse(Direction direction, Bytes bytes, Recorder& recorder);
    void on_gap(Direction direction, std::uint64_t missing, Recorder& recorder);
    void on_end(Direction direction, Recorder& recorder);

private:
    enum class Body : std::uint8_t { none, params, form };  // what `text_` collects
    struct Side {
        std::uint32_t skip = 0;     // rest of a record that a gap went through
        std::uint32_t left = 0;     // bytes that the last parse call gave back
        std::uint32_t partial = 0;  // length of the record that starts with them; 0: its header is not there
        bool lost = false;          // record borders unknown
    };

    Side& side(Direction d) noexcept { return sides_[static_cast<unsigned>(d)]; }
    std::size_t wanted(fastcgi::Type type, std::size_t content) const noexcept;
    void record(Bytes header, Bytes content, std::uint64_t at, std::uint64_t next, Recorder& recorder);
    bool begin_answer(std::uint16_t id, std::uint64_t at, Recorder& recorder);
    void head(Bytes content, Recorder& recorder);
    void end_request(Bytes content, std::uint64_t next, Recorder& recorder);
    void alone(Direction direction, const char* text, std::uint64_t at, std::uint64_t next,
               Recorder& recorder);
    bool find_border(Direction direction, Bytes bytes, std::uint64_t& pos, Recorder& recorder);

    // fastcgi_request.cpp
    void begin_request(std::uint16_t id, Bytes content, std::uint64_t at, Recorder& recorder);
    void end_of_params(Recorder& recorder);
    void stdin_record(Bytes content, std::size_t length, std::uint64_t next, Recorder& recorder);

    Side sides_[2];
    MessageRef request_ = kNoMessage;  // open request
    MessageRef answer_ = kNoMessage;   // open response
    std::string text_;                 // parameters, then the start of a form
    std::uint64_t form_bytes_ = 0;     // of the form seen so far
    std::uint16_t request_id_ = 0;
    std::uint16_t answer_id_ = 0;
    std::int16_t status_ = -1;  // of the answer, as far as its head was read
    std::uint8_t role_ = 0;
    Body body_ = Body::none;
    bool form_ = false;              // the body of the request is a form
    bool head_open_ = false;         // the CGI head of the answer is not complete
    bool began_since_loss_ = false;  // a request began after bytes to the web server were lost
};

}  // namespace tapscope
