// HTTP/2: https://www.rfc-editor.org/rfc/rfc9113, and the gRPC calls that it carries,
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
//
// A request or response is a stream's HEADERS (with CONTINUATION), DATA and trailers in one direction; its bytes are
// those of these frames, 9 bytes of header each included. Frames of the connection itself (SETTINGS, PING,
// WINDOW_UPDATE, GOAWAY, ...) belong to no message. DATA is skipped by counting. Header blocks are decoded as they come,
// so no frame is ever kept, whatever its size; only the first 8 KiB of a form are waited for.
//
// Joined midstream or after a loss, frames are looked for by their structure, and header fields that refer to what was
// not seen are missing: the message is flagged INFERRED and gets no class that is not certain.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dissect/dissector.hpp"
#include "dissect/hpack.hpp"
#include "dissect/http2_frame.hpp"
#include "record.hpp"

namespace tapscope {

namespace http2 {

// What the fields of one header block say; filled while the block comes in pieces.
struct Fields {
    static constexpr std::size_t kMaxTarget = 16 * 1024;  // of the longest path or method that is kept, bytes

    std::string method, target, authority;
    std::int32_t status = -1, grpc_status = -1;
    unsigned extras = 0;   // cookies, X-... and traceparent, which are evidence
    bool grpc = false;     // content-type: application/grpc...
    bool form = false;     // content-type: application/x-www-form-urlencoded
    bool typed = false;    // content-type was read
    bool missing = false;  // a field could not be read
    void clear();
    // `evidence_of`: the message whose evidence these are, or kNoMessage.
    void read(std::string_view name, std::string_view value, Recorder& recorder, MessageRef evidence_of);
};

struct Stream {
    std::uint32_t id = 0;
    Interleaved request, response;  // `response`: the interim one at hand, then the final one
    bool client_ended = false;      // END_STREAM by the client
    bool server_ended = false;
    bool answered = false;  // the head of the final response was seen
    bool grpc = false;
    bool form = false;    // the next DATA of the client begins a form
    bool in_gap = false;  // bytes to the client were lost while it waited for its answer
    bool closed = false;  // nothing more is expected; kept for a while to know late frames
};

// What a header block is.
enum class Block : std::uint8_t { none, request, response, trailer, promise, other };

struct Side {
    enum class State : std::uint8_t {
        start,     // nothing was read yet
        frame,     // at a frame header
        prefix,    // pad length, priority, promised stream: `prefix` bytes before the fragment
        fragment,  // of a header block
        skip,      // `left` bytes that cannot be read any more
        form,      // the payload of DATA that is looked at
        lost,      // bytes are missing: frames must be found again
    };
    State state = State::start;
    Block block = Block::none;  // not none: until END_HEADERS
    bool block_ends_stream = false;
    bool broken = false;  // a part of the block is missing
    std::uint32_t block_stream = 0;
    FrameHeader frame;
    std::uint64_t left = 0;     // bytes of the frame that come, padding included
    std::uint64_t at_hand = 0;  // bytes of them that were given and will come again
    std::uint32_t prefix = 0, pad = 0;
    Interleaved promise;  // PUSH_PROMISE whose promised stream is not known yet
    HeaderTable table;
    Fields fields;
};

// The streams of one connection, by number. Bounded: the oldest goes first.
class StreamTable {
public:
    static constexpr std::size_t kMaxStreams = 4096;
    static constexpr std::size_t kKeptClosed = 64;

    Stream* find(std::uint32_t id) noexcept;
    // A new entry; `out` gets the one that had to go for it, if any.
    Stream& add(std::uint32_t id, Stream& out);
    void close(Stream& stream);
    std::vector<Stream>& all() noexcept { return streams_; }

private:
    std::vector<Stream> streams_;  // sorted by id
    std::size_t closed_ = 0;
};

}  // namespace http2

class Http2Dissector {
public:
    static constexpr Protocol protocol = Protocol::http2;

    static Probe probe(Bytes bytes, Direction direction) noexcept;
    Parsed parse(Direction direction, Bytes bytes, Recorder& recorder);
    void on_gap(Direction direction, std::uint64_t missing, Recorder& recorder);
    void on_end(Direction direction, Recorder& recorder);

private:
    struct Session;
    struct Delete {
        void operator()(Session* session) const noexcept;
    };
    Session& session();

    std::unique_ptr<Session, Delete> session_;  // connections that never carry a byte need none
};

}  // namespace tapscope
