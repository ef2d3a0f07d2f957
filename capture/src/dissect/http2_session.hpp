// One HTTP/2 connection while it is read: frames to streams (http2.cpp), header blocks to messages
// (http2_headers.cpp), losses (http2_loss.cpp).
#pragma once

#include "dissect/http2.hpp"
#include "dissect/http_head.hpp"

namespace tapscope {

namespace http2 {

inline constexpr const char* kControl = "http2.control";  // bytes of frames that belong to no message

// The message of `stream` that frames of `direction` belong to, when it was begun and is not over.
inline Interleaved* open_message(Stream& stream, Direction direction) noexcept {
    const bool to_server = direction == Direction::to_server;
    Interleaved& message = to_server ? stream.request : stream.response;
    const bool open = to_server ? !stream.client_ended : stream.answered && !stream.server_ended;
    return open && !stream.closed && message.ref != kNoMessage ? &message : nullptr;
}

}  // namespace http2

struct Http2Dissector::Session {
    Parsed start(Direction direction, Bytes bytes, Recorder& recorder);
    Parsed frame(Direction direction, Bytes bytes, Recorder& recorder);
    Parsed headers(Direction direction, Recorder& recorder);
    Parsed data(Direction direction, Recorder& recorder);
    Parsed form(Bytes bytes, Recorder& recorder);
    Parsed prefix(Direction direction, Bytes bytes, Recorder& recorder);
    Parsed fragment(Direction direction, Bytes bytes, Recorder& recorder);
    Parsed control(Direction direction, Bytes bytes, Recorder& recorder);
    void reset(Direction direction, Recorder& recorder);
    void promised(std::uint32_t id, Recorder& recorder);
    void stream_ended(Direction direction, http2::Stream& stream, Recorder& recorder);
    bool is_lossy() const noexcept { return lossy[0] || lossy[1]; }

    // http2_loss.cpp
    void lose(Direction direction, bool bytes_missing, Recorder& recorder);
    Parsed lost(Direction direction, Bytes bytes, Recorder& recorder);
    Parsed malformed(Direction direction, const char* label, Recorder& recorder);

    // http2_headers.cpp
    void open_block(Direction direction, Recorder& recorder);
    void end_block(Direction direction, Recorder& recorder);
    void end_request(http2::Stream& stream, http2::Side& side, Recorder& recorder);
    void end_response(http2::Stream& stream, http2::Side& side, Recorder& recorder);
    void end_trailer(http2::Stream& stream, Direction direction, http2::Side& side, Recorder& recorder);
    void grpc_result(MessageRef ref, const http2::Fields& fields, Recorder& recorder);
    Interleaved* message_of_block(Direction direction) noexcept;

    http2::Side& side(Direction direction) noexcept { return sides[static_cast<unsigned>(direction)]; }
    http2::Stream& add_stream(std::uint32_t id, Recorder& recorder);

    http2::Side sides[2];
    http2::StreamTable streams;
    std::uint32_t highest = 0;                          // stream number of a client's request
    std::uint32_t max_frame = http2::kDefaultMaxFrame;  // the larger one that either side allows
    bool lossy[2] = {true, true};                       // the start or a part of the direction was not seen
};

}  // namespace tapscope
