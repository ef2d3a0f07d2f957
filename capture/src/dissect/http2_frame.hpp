// Frames of HTTP/2: https://www.rfc-editor.org/rfc/rfc9113 sections 4.1 and 6
//
//     +-----------------------------------------------+
//     |                 Length (24)                   |
//     +---------------+---------------+---------------+
//     |   Type (8)    |   Flags (8)   |
//     +-+-------------+---------------+---------------+
//     |R|              Stream Identifier (31)         |
//     +=+=============================================+
//     |                Payload (Length)             ...
#pragma once

#include <cstdint>
#include <functional>

#include "dissect/dissector.hpp"

namespace tapscope::http2 {

enum class Type : std::uint8_t {
    data = 0,
    headers = 1,
    priority = 2,
    rst_stream = 3,
    settings = 4,
    push_promise = 5,
    ping = 6,
    goaway = 7,
    window_update = 8,
    continuation = 9,
};

inline constexpr std::uint8_t kEndStream = 0x1, kAck = 0x1, kEndHeaders = 0x4, kPadded = 0x8,
                              kPriority = 0x20;
inline constexpr std::size_t kHeaderSize = 9;
inline constexpr std::uint32_t kDefaultMaxFrame = 16384;  // until SETTINGS say otherwise

struct FrameHeader {
    std::uint32_t length = 0;
    Type type = Type::data;
    std::uint8_t flags = 0;
    std::uint32_t stream = 0;
    bool has(std::uint8_t flag) const noexcept { return (flags & flag) != 0; }
};

// `bytes` holds kHeaderSize bytes at least. The reserved bit is ignored, as receivers must.
FrameHeader read_frame_header(const std::uint8_t* bytes) noexcept;

// False where the RFC demands a connection error for the header alone: a size or a stream that the type cannot have.
bool is_allowed(const FrameHeader& frame) noexcept;

// What a search for frames knows of the connection.
struct Known {
    std::uint32_t max_frame = kDefaultMaxFrame;
    std::uint32_t max_stream = ~std::uint32_t{0};          // ids beyond it are not believed
    std::function<bool(std::uint32_t)> is_open = nullptr;  // a stream that waits for frames of this direction
};

// Do frames begin here, by their structure alone? `bytes` may begin in the middle of a connection and end in the middle
// of a frame; unlike is_allowed, nothing that a real endpoint would not send is let through.
bool looks_like_frames(Bytes bytes, Direction direction, const Known& known);

}  // namespace tapscope::http2
