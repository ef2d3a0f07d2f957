#include "dissect/http2_frame.hpp"

#include "bytes.hpp"

namespace tapscope::http2 {
namespace {

constexpr std::uint32_t kLastErrorCode = 0xd;  // RFC 9113 section 7
constexpr std::uint16_t kLastSetting = 0x20;   // ids in use: 1 to 9 and a few registered ones
constexpr unsigned kEnough = 3;                // points for frames to be believed

bool on_stream_zero(Type type) noexcept {
    return type == Type::settings || type == Type::ping || type == Type::goaway;
}

// Can a header block begin with this byte? RFC 7541 section 6: indexed field, literal with indexed name, size update.
// First come the pseudo-header fields, static entries 1-7 (requests) or 8-14 (responses), or an entry of the dynamic
// table; the fields of a trailer are mostly literals with a new name.
bool starts_block(std::uint8_t byte, Direction direction, bool may_be_trailer) noexcept {
    const unsigned first = direction == Direction::to_server ? 1 : 8;
    const auto pseudo = [&](unsigned index) { return index >= first && index < first + 7; };
    if (byte >= 0x80) return pseudo(byte & 0x7Fu) || byte >= 0x80 + 62;
    if (byte >= 0x40) return pseudo(byte & 0x3Fu) || byte >= 0x40 + 62 || (may_be_trailer && byte == 0x40);
    if (byte >= 0x20) return true;
    return pseudo(byte & 0x0Fu) || (may_be_trailer && (byte & 0x0F) == 0) || (byte & 0x0F) == 0x0F;
}

// Points for one frame; 0: no endpoint sends that. `payload`: as much of it as is there.
unsigned points(const FrameHeader& frame, Bytes payload, Direction direction, const Known& known) {
    const std::uint32_t length = frame.length;
    const bool whole = payload.size() >= length;
    if (length > known.max_frame || frame.stream > known.max_stream || !is_allowed(frame)) return 0;
    const bool by_client = (frame.stream & 1) != 0;
    switch (frame.type) {
        case Type::data:
            if ((frame.flags & ~(kEndStream | kPadded)) != 0 || (length == 0 && !frame.has(kEndStream)))
                return 0;
            if (direction == Direction::to_server && !by_client) return 0;
            return known.is_open && known.is_open(frame.stream) ? kEnough : 1;
        case Type::headers: {
            if ((frame.flags & ~(kEndStream | kEndHeaders | kPadded | kPriority)) != 0 || length == 0)
                return 0;
            if (direction == Direction::to_server && !by_client) return 0;
            const std::size_t prefix = (frame.has(kPadded) ? 1u : 0u) + (frame.has(kPriority) ? 5u : 0u);
            if (prefix >= length) return 0;
            if (payload.size() <= prefix) return 1;
            return starts_block(payload[prefix], direction, frame.has(kEndStream)) ? 2 : 0;
        }
        case Type::priority:
            return frame.flags == 0 ? 2 : 0;
        case Type::rst_stream:
            if (frame.flags != 0 || (whole && load_be32(payload.data()) > kLastErrorCode)) return 0;
            return whole ? 3 : 1;
        case Type::settings:
            if ((frame.flags & ~kAck) != 0 || (frame.has(kAck) && length != 0)) return 0;
            for (std::size_t at = 0; at + 6 <= length && at + 6 <= payload.size(); at += 6)
                if (load_be16(&payload[at]) > kLastSetting) return 0;
            return whole ? 3 : 1;
        case Type::push_promise:
            return direction == Direction::to_client && (frame.flags & ~(kEndHeaders | kPadded)) == 0 ? 1 : 0;
        case Type::ping:
            return (frame.flags & ~kAck) == 0 ? (whole ? 3 : 2) : 0;
        case Type::goaway:
            if (frame.flags != 0 || (payload.size() >= 8 && load_be32(&payload[4]) > kLastErrorCode))
                return 0;
            return payload.size() >= 8 ? 3 : 1;
        case Type::window_update:
            if (frame.flags != 0 || (whole && (load_be32(payload.data()) & 0x7FFFFFFF) == 0)) return 0;
            return whole ? 3 : 1;
        case Type::continuation:
            return (frame.flags & ~kEndHeaders) == 0 && length > 0 ? 1 : 0;
    }
    return 0;
}

}  // namespace

FrameHeader read_frame_header(const std::uint8_t* bytes) noexcept {
    return {load_be32(bytes) >> 8, static_cast<Type>(bytes[3]), bytes[4], load_be32(bytes + 5) & 0x7FFFFFFF};
}

bool is_allowed(const FrameHeader& frame) noexcept {
    switch (frame.type) {
        case Type::data:
        case Type::headers:
        case Type::continuation:
            return frame.stream != 0 &&
                   frame.length >= (frame.has(kPadded) && frame.type != Type::continuation);
        case Type::push_promise:
            return frame.stream != 0 && frame.length >= 4;
        case Type::priority:
            return frame.stream != 0 && frame.length == 5;
        case Type::rst_stream:
            return frame.stream != 0 && frame.length == 4;
        case Type::settings:
            return frame.stream == 0 && frame.length % 6 == 0;
        case Type::ping:
            return frame.stream == 0 && frame.length == 8;
        case Type::goaway:
            return frame.stream == 0 && frame.length >= 8;
        case Type::window_update:
            return frame.length == 4;
    }
    return true;  // an extension: to be ignored
}

bool looks_like_frames(Bytes bytes, Direction direction, const Known& known) {
    unsigned sum = 0;
    bool open_block = false;
    while (bytes.size() >= kHeaderSize) {
        const FrameHeader frame = read_frame_header(bytes.data());
        // A header block is not interrupted (RFC 9113 section 4.3); one that began before `bytes` may go on.
        if ((frame.type == Type::continuation) != open_block && (open_block || sum > 0)) return false;
        const unsigned more = points(frame, bytes.subspan(kHeaderSize), direction, known);
        if (more == 0) return false;
        sum += more;
        if (frame.type == Type::headers || frame.type == Type::push_promise ||
            frame.type == Type::continuation)
            open_block = !frame.has(kEndHeaders);
        const std::size_t size = kHeaderSize + frame.length;
        if (size > bytes.size()) return sum >= kEnough;
        bytes = bytes.subspan(size);
        if (bytes.empty() && !on_stream_zero(frame.type))
            ++sum;  // endpoints end what they write with a frame
    }
    return sum >= kEnough;
}

}  // namespace tapscope::http2
