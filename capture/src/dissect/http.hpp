// HTTP/1.0 and 1.1: https://www.rfc-editor.org/rfc/rfc9110, https://www.rfc-editor.org/rfc/rfc9112
//
// Body length, decided in the order of RFC 9112 section 6.3: none for HEAD, 1xx, 204, 304; tunnel after CONNECT 2xx or
// 101; chunked; Content-Length; none for requests, until the end of the stream for responses. Bodies are skipped by
// counting, only the first 8 KiB of a form are looked at.
#pragma once

#include <cstdint>
#include <memory>

#include "dissect/avatica.hpp"
#include "dissect/dissector.hpp"
#include "dissect/http_head.hpp"
#include "record.hpp"

namespace tapscope {

class HttpDissector {
public:
    static constexpr Protocol protocol = Protocol::http;

    static Probe probe(Bytes bytes, Direction direction) noexcept;
    Parsed parse(Direction direction, Bytes bytes, Recorder& recorder);
    void on_gap(Direction direction, std::uint64_t missing, Recorder& recorder);
    void on_end(Direction direction, Recorder& recorder);

private:
    enum class State : std::uint8_t {
        start,          // between messages
        head,           // a message has begun, its head is not complete
        form,           // `left` bytes of a form body: wait for the part that is looked at
        watched,        // `left` bytes of body that may be an Avatica call
        watched_chunk,  // the same of a chunk
        expected,       // a body that the client sends after 100 Continue, or never
        skip,           // `left` bytes whose message is already ended
        chunk_size,
        chunk_end,
        trailer,
        unsure_body,  // `left` bytes of an answer whose request was not seen: perhaps to a HEAD, then there are none
        until_close,
        tunnel,     // 101 or CONNECT: not HTTP any more
        lost,       // bytes are missing: wait for a start line at the start of a segment
        lost_body,  // the same inside a message whose end is not known
    };
    struct Half {
        State state = State::start;
        bool given_up = false;  // lost: nothing is missing, the driver has named what follows
        MessageRef message = kNoMessage;
        std::uint64_t left = 0;
        std::uint64_t scanned = 0;  // head: bytes already searched for its end; form, expected: bytes at hand
    };

    Half& half(Direction d) noexcept { return halves_[static_cast<unsigned>(d)]; }
    Parsed step(Direction direction, Bytes bytes, Recorder& recorder);
    Parsed expected(Bytes bytes, Recorder& recorder);
    Parsed start(Direction direction, Bytes bytes, Recorder& recorder);
    Parsed head(Direction direction, Bytes bytes, Recorder& recorder);
    Parsed simple(Bytes bytes, Recorder& recorder);
    Parsed request(const HttpHead& head, Recorder& recorder);
    Parsed response(const HttpHead& head, Recorder& recorder);
    // http_body.cpp
    Parsed chunk_size(Direction direction, Bytes bytes, Recorder& recorder);
    Parsed trailer(Direction direction, Bytes bytes, Recorder& recorder);
    Parsed watched(Direction direction, Bytes bytes, Recorder& recorder);

    bool watching(Direction direction) const noexcept {
        return avatica_ != nullptr && avatica_->watching(direction);
    }
    void finish_watching(Direction direction, bool complete, Recorder& recorder);
    Parsed lost(Direction direction, Bytes bytes, Recorder& recorder);
    Parsed malformed(Direction direction, std::uint64_t consumed, const char* label, Recorder& recorder);
    Parsed finish(Direction direction, std::uint64_t size, Recorder& recorder);
    void new_request_seen(Recorder& recorder);

    Half halves_[2];
    bool fresh_ = true;                       // no request was seen
    bool request_since_ = false;              // a request began after the response that runs until close
    bool continued_ = false;                  // the server gave leave for the expected body
    State expected_ = State::skip;            // how that body is read when it comes
    std::unique_ptr<AvaticaBodies> avatica_;  // from the first POST on that may be a call
};

}  // namespace tapscope
