// AJP13: framing, pairing, route class and evidence of one connection (ajp_wire.hpp has the packets).
//
// One request at a time. FORWARD_REQUEST and its body packets are the request, SEND_HEADERS to END_RESPONSE the
// response. A body packet carries no type: what tells it from a new request is that one is owed (the first after
// FORWARD_REQUEST with a content length, each further one after GET_BODY_CHUNK), and its own inner length.
// The shared secret is never read, and no header but cookies, X-... and traceparent becomes evidence.
#pragma once

#include <cstdint>

#include "../record.hpp"
#include "ajp_wire.hpp"
#include "dissector.hpp"

namespace tapscope {

namespace ajp {
inline constexpr std::size_t kFormBytes = 8 * 1024;  // of a form body that are looked at
}

class AjpDissector {
public:
    static constexpr Protocol protocol = Protocol::ajp;

    static Probe probe(Bytes bytes, Direction direction) noexcept;
    Parsed parse(Direction direction, Bytes bytes, Recorder& recorder);
    void on_gap(Direction direction, std::uint64_t missing, Recorder& recorder);
    void on_end(Direction direction, Recorder& recorder);

private:
    struct Side {
        std::uint64_t skip = 0;  // rest of a packet that a gap went through
        std::uint64_t left = 0;  // bytes that the last parse call gave back
        std::uint64_t partial =
            0;  // length of the packet that starts with them; 0: not even its header is there
        MessageRef due = kNoMessage;  // message that ends when `skip` is done
        bool begun = false;           // the message of that packet is reported already
        bool lost = false;            // packet borders unknown
    };

    Side& side(Direction d) noexcept { return sides_[static_cast<unsigned>(d)]; }

    std::size_t wanted_of_server(std::size_t length, Bytes payload) const noexcept;
    void web_server_packet(std::size_t length, Bytes payload, std::uint64_t at, std::uint64_t next,
                           Recorder& recorder);
    void container_packet(Bytes payload, std::uint64_t at, std::uint64_t next, Recorder& recorder);
    bool is_body(std::size_t length, Bytes payload) const noexcept;
    bool body_due() const noexcept { return owed_ > 0 && !answered_; }
    void begin_request(std::uint64_t at, Recorder& recorder);
    void next_exchange(Recorder& recorder);
    void begin_answer(std::uint64_t at, Recorder& recorder);
    // ajp_request.cpp
    void forward_request(Bytes payload, Recorder& recorder);
    void body(std::size_t length, Bytes payload, Recorder& recorder);
    void alone(Direction direction, MessageKind kind, const char* text, std::uint64_t at, std::uint64_t next,
               Recorder& recorder);

    Side sides_[2];
    MessageRef request_ = kNoMessage;  // the last FORWARD_REQUEST
    MessageRef answer_ = kNoMessage;   // open response
    std::uint32_t owed_ = 0;           // body packets that the container waits for
    bool answered_ = false;            // in full: a body packet may still come, more likely the next request
    bool form_ = false;                // the next body packet starts an urlencoded form
    std::uint64_t form_bytes_ = 0;     // its content length
};

}  // namespace tapscope
