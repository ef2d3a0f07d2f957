#include "dissect/http2.hpp"

#include <algorithm>
#include <string_view>

#include "bytes.hpp"
#include "dissect/http2_session.hpp"
#include "dissect/route.hpp"
#include "evidence.hpp"

namespace tapscope {

using http2::Block;
using http2::FrameHeader;
using http2::kControl;
using http2::kHeaderSize;
using http2::open_message;
using http2::Side;
using http2::Stream;
using http2::Type;
using State = http2::Side::State;

namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";  // RFC 9113 section 3.4
constexpr std::uint32_t kMaxSettings = 600;  // bytes of a SETTINGS frame that is read
constexpr std::uint16_t kSettingMaxFrame = 5;
constexpr std::uint32_t kMaxFrameUnseen = 1024 * 1024;  // believed where the settings were not seen
constexpr std::size_t kFormBytes = 8 * 1024;

bool agrees(Bytes bytes, std::string_view pattern) noexcept {
    return as_text(bytes.first(std::min(bytes.size(), pattern.size()))) == pattern.substr(0, bytes.size());
}

bool is_first_settings(const FrameHeader& frame) noexcept {
    return frame.type == Type::settings && frame.flags == 0 && frame.stream == 0 && frame.length % 6 == 0 &&
           frame.length <= kMaxSettings;
}

}  // namespace

namespace http2 {

Stream* StreamTable::find(std::uint32_t id) noexcept {
    const auto at =
        std::lower_bound(streams_.begin(), streams_.end(), id,
                         [](const Stream& stream, std::uint32_t wanted) { return stream.id < wanted; });
    return at != streams_.end() && at->id == id ? &*at : nullptr;
}

Stream& StreamTable::add(std::uint32_t id, Stream& out) {
    if (closed_ >= kKeptClosed) {
        std::erase_if(streams_, [](const Stream& stream) { return stream.closed; });
        closed_ = 0;
    }
    if (streams_.size() >= kMaxStreams) {
        out = streams_.front();
        closed_ -= out.closed ? 1 : 0;
        streams_.erase(streams_.begin());
    }
    const auto at =
        std::upper_bound(streams_.begin(), streams_.end(), id,
                         [](std::uint32_t wanted, const Stream& stream) { return wanted < stream.id; });
    Stream fresh;
    fresh.id = id;
    return *streams_.insert(at, fresh);
}

void StreamTable::close(Stream& stream) {
    if (!stream.closed) ++closed_;
    stream.closed = true;
}

}  // namespace http2

void Http2Dissector::Delete::operator()(Session* session) const noexcept { delete session; }

Http2Dissector::Session& Http2Dissector::session() {
    if (session_ == nullptr) session_.reset(new Session);
    return *session_;
}

Probe Http2Dissector::probe(Bytes bytes, Direction direction) noexcept {
    if (bytes.empty()) return Probe::need_more;
    if (direction == Direction::to_server && agrees(bytes, kPreface))
        return bytes.size() < kPreface.size() ? Probe::need_more : Probe::yes;
    if (bytes[0] != 0) return Probe::no;
    if (direction == Direction::to_client) {
        // A server may speak first, with SETTINGS.
        std::uint8_t head[kHeaderSize] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
        for (std::size_t i = 0; i < std::min(bytes.size(), kHeaderSize); ++i) head[i] = bytes[i];
        const FrameHeader first = http2::read_frame_header(head);
        if (is_first_settings(first) && bytes.size() < kHeaderSize + first.length) return Probe::need_more;
    }
    return bytes.size() >= kHeaderSize && http2::looks_like_frames(bytes, direction, {}) ? Probe::yes
                                                                                         : Probe::no;
}

Parsed Http2Dissector::parse(Direction direction, Bytes bytes, Recorder& recorder) {
    Session& session = this->session();
    Side& side = session.side(direction);
    switch (side.state) {
        case State::start:
            return session.start(direction, bytes, recorder);
        case State::frame:
            return session.frame(direction, bytes, recorder);
        case State::prefix:
            return session.prefix(direction, bytes, recorder);
        case State::fragment:
            return session.fragment(direction, bytes, recorder);
        case State::form:
            return session.form(bytes, recorder);
        case State::skip:
            side.state = State::frame;
            return {Step::ok, side.left};
        case State::lost:
            return session.lost(direction, bytes, recorder);
    }
    return {Step::ok, bytes.size()};
}

Parsed Http2Dissector::Session::start(Direction direction, Bytes bytes, Recorder& recorder) {
    Side& mine = side(direction);
    bool first = false;
    if (direction == Direction::to_server) {
        first = agrees(bytes, kPreface);
        if (first && bytes.size() < kPreface.size()) return {Step::ok, 0};
    } else {
        if (bytes.size() < kHeaderSize) return {Step::ok, 0};
        first = is_first_settings(http2::read_frame_header(bytes.data()));
    }
    if (!first) {
        recorder.count("http2.joined_midstream");
        mine.state = State::lost;
        return lost(direction, bytes, recorder);
    }
    recorder.remainder_from(0, kControl);
    mine.table.start_empty();
    lossy[static_cast<unsigned>(direction)] = false;
    mine.state = State::frame;
    if (direction == Direction::to_server) return {Step::ok, kPreface.size()};
    return frame(direction, bytes, recorder);
}

Parsed Http2Dissector::Session::frame(Direction direction, Bytes bytes, Recorder& recorder) {
    if (bytes.size() < kHeaderSize) return {Step::ok, 0};
    Side& mine = side(direction);
    const FrameHeader frame = http2::read_frame_header(bytes.data());
    const std::uint32_t limit = is_lossy() ? std::max(max_frame, kMaxFrameUnseen) : max_frame;
    if (!http2::is_allowed(frame)) return malformed(direction, "http2.bad_frame", recorder);
    if (frame.length > limit) return malformed(direction, "http2.frame_too_large", recorder);
    const bool goes_on = frame.type == Type::continuation;
    if (mine.block != Block::none && (!goes_on || frame.stream != mine.block_stream))
        return malformed(direction, "http2.header_block_interrupted", recorder);
    if (goes_on && mine.block == Block::none) {
        if (!is_lossy()) return malformed(direction, "http2.lone_continuation", recorder);
        mine.table.forget();  // what it inserts is not known
        recorder.remainder_from(0, "http2.unknown_stream");
        return {Step::ok, kHeaderSize + frame.length};
    }
    mine.frame = frame;
    mine.left = frame.length;
    mine.at_hand = 0;
    if (frame.type == Type::data) return data(direction, recorder);
    if (frame.type == Type::headers || frame.type == Type::push_promise || goes_on)
        return headers(direction, recorder);
    return control(direction, bytes, recorder);
}

// HEADERS: [pad length (1)] [priority (5)] fragment [padding]; PUSH_PROMISE: [pad length] promised stream (4) ...
Parsed Http2Dissector::Session::headers(Direction direction, Recorder& recorder) {
    Side& mine = side(direction);
    const FrameHeader& frame = mine.frame;
    mine.pad = mine.prefix = 0;
    if (frame.type != Type::continuation) {
        mine.prefix = frame.has(http2::kPadded) ? 1 : 0;
        if (frame.type == Type::push_promise)
            mine.prefix += 4;
        else if (frame.has(http2::kPriority))
            mine.prefix += 5;
        if (mine.prefix > frame.length) return malformed(direction, "http2.bad_frame", recorder);
        open_block(direction, recorder);
    }
    if (Interleaved* message = message_of_block(direction))
        recorder.piece(*message, 0, kHeaderSize + frame.length);
    else
        recorder.remainder_from(0, is_lossy() ? "http2.unknown_stream" : "http2.closed_stream");
    mine.state = mine.prefix > 0 ? State::prefix : State::fragment;
    if (mine.left == 0) fragment(direction, {}, recorder);
    return {Step::ok, kHeaderSize};
}

Parsed Http2Dissector::Session::prefix(Direction direction, Bytes bytes, Recorder& recorder) {
    Side& mine = side(direction);
    mine.at_hand = bytes.size();
    if (bytes.size() < mine.prefix) return {Step::ok, 0};
    const std::size_t size = mine.prefix;
    const bool padded = mine.frame.has(http2::kPadded);
    mine.pad = padded ? bytes[0] : 0;
    if (mine.pad > mine.left - size) return malformed(direction, "http2.bad_padding", recorder);
    if (mine.frame.type == Type::push_promise)
        promised(load_be32(&bytes[padded ? 1 : 0]) & 0x7FFFFFFF, recorder);
    mine.left -= size;
    mine.at_hand = 0;
    mine.state = State::fragment;
    if (mine.left > mine.pad) return {Step::ok, size};
    return {Step::ok, size + fragment(direction, {}, recorder).consumed};
}

Parsed Http2Dissector::Session::fragment(Direction direction, Bytes bytes, Recorder& recorder) {
    Side& mine = side(direction);
    const std::size_t size = std::min<std::uint64_t>(bytes.size(), mine.left - mine.pad);
    const bool whole = size == mine.left - mine.pad;
    const bool last = whole && mine.frame.has(http2::kEndHeaders);
    if (!mine.broken && (size > 0 || last)) {
        const Interleaved* message = message_of_block(direction);
        const bool request = mine.block == Block::request && message != nullptr;
        const MessageRef evidence_of = request ? message->ref : kNoMessage;
        const bool good =
            mine.table.read(bytes.first(size), last, [&](std::string_view name, std::string_view value) {
                mine.fields.read(name, value, recorder, evidence_of);
            });
        if (!good) {
            recorder.count("http2.header_block_unreadable");
            mine.broken = mine.fields.missing = true;
        }
    }
    mine.left -= size;
    if (!whole) return {Step::ok, size};
    mine.left = 0;
    mine.state = State::frame;
    const std::uint64_t consumed = size + mine.pad;
    if (last) end_block(direction, recorder);
    return {Step::ok, consumed};
}

Parsed Http2Dissector::Session::data(Direction direction, Recorder& recorder) {
    Side& mine = side(direction);
    const FrameHeader& frame = mine.frame;
    const std::uint64_t size = kHeaderSize + frame.length;
    Stream* const stream = streams.find(frame.stream);
    Interleaved* message = stream != nullptr ? open_message(*stream, direction) : nullptr;
    const bool head_lost = message == nullptr && stream != nullptr && direction == Direction::to_client &&
                           !stream->closed && !stream->answered && lossy[1];
    if (head_lost) {
        stream->response = recorder.begin_stream(MessageKind::response, 0, stream->request.ref);
        stream->answered = true;
        message = &stream->response;
        recorder.add_flags(message->ref, message_flag::truncated | message_flag::inferred);
        recorder.count("http2.answer_without_head");
    }
    if (message == nullptr) {
        recorder.remainder_from(0, is_lossy() ? "http2.unknown_stream" : "http2.closed_stream");
        return {Step::ok, size};
    }
    recorder.piece(*message, 0, size);
    const bool form = direction == Direction::to_server && stream->form && frame.length > 0;
    if (frame.has(http2::kEndStream)) stream_ended(direction, *stream, recorder);
    if (!form) return {Step::ok, size};
    stream->form = false;
    mine.state = State::form;
    return {Step::ok, kHeaderSize};
}

// The first DATA of a form: its fields are evidence, as far as 8 KiB go.
Parsed Http2Dissector::Session::form(Bytes bytes, Recorder& recorder) {
    Side& mine = side(Direction::to_server);
    const std::uint64_t wanted = std::min<std::uint64_t>(mine.left, kFormBytes);
    mine.at_hand = bytes.size();
    if (bytes.size() < wanted) return {Step::ok, 0};
    mine.state = State::frame;
    Bytes content = bytes.first(wanted);
    const bool whole = wanted == mine.left;
    if (mine.frame.has(http2::kPadded)) {
        const std::size_t pad = content[0];
        content = content.subspan(1);
        if (whole && pad <= content.size()) content = content.first(content.size() - pad);
    }
    if (const Stream* stream = streams.find(mine.frame.stream))
        form_evidence(recorder, stream->request.ref, as_text(content),
                      whole && mine.frame.has(http2::kEndStream));
    return {Step::ok, mine.left};
}

// Frames that belong to no message.
Parsed Http2Dissector::Session::control(Direction direction, Bytes bytes, Recorder& recorder) {
    const FrameHeader& frame = side(direction).frame;
    const std::uint64_t size = kHeaderSize + frame.length;
    switch (frame.type) {
        case Type::settings:
            if (frame.length > kMaxSettings) break;
            if (bytes.size() < size) return {Step::ok, 0};
            for (std::size_t at = kHeaderSize; at + 6 <= size; at += 6)
                if (load_be16(&bytes[at]) == kSettingMaxFrame)
                    max_frame = std::max(max_frame, load_be32(&bytes[at + 2]));
            break;
        case Type::rst_stream:
            if (bytes.size() < size) return {Step::ok, 0};
            reset(direction, recorder);
            return {Step::ok, size};
        case Type::goaway:
            recorder.count("http2.goaway");
            break;
        default:
            break;
    }
    recorder.remainder_from(0, kControl);
    return {Step::ok, size};
}

// RST_STREAM, whatever its code. By the server it is the answer, or its end, and of the request nothing more comes; by
// the client the call is given up, which a one-way message tells that refers to the request.
void Http2Dissector::Session::reset(Direction direction, Recorder& recorder) {
    const std::uint64_t size = kHeaderSize + 4;
    Stream* const stream = streams.find(side(direction).frame.stream);
    Interleaved* message = nullptr;
    Interleaved given_up;
    if (stream != nullptr && !stream->closed) {
        if (direction == Direction::to_client) {
            if (const Interleaved* open = open_message(*stream, Direction::to_server);
                open != nullptr && !lossy[0])
                recorder.add_flags(open->ref, message_flag::unfinished);
            if (!stream->answered) {
                stream->response = recorder.begin_stream(MessageKind::response, 0, stream->request.ref);
                message = &stream->response;
            } else {
                message = open_message(*stream, direction);
                if (message != nullptr) recorder.add_flags(message->ref, message_flag::unfinished);
            }
            if (message != nullptr) {
                recorder.add_flags(message->ref, message_flag::error);
                recorder.count("http2.reset_by_server");
            }
        } else {
            for (const Direction d : {Direction::to_server, Direction::to_client})
                if (const Interleaved* open = open_message(*stream, d))
                    recorder.add_flags(open->ref, message_flag::unfinished);
            if (!stream->server_ended) {
                recorder.count("http2.cancelled");
                if (stream->request.ref != kNoMessage) {
                    given_up = recorder.begin_stream(MessageKind::one_way, 0, stream->request.ref);
                    message = &given_up;
                }
            }
        }
        // What the server has done for the client all the same, or sent before it knew, is still its answer.
        stream->client_ended = true;
        if (direction == Direction::to_client || stream->server_ended) streams.close(*stream);
    }
    if (message != nullptr)
        recorder.piece(*message, 0, size);
    else
        recorder.remainder_from(0, kControl);
}

// The number of a promised stream is known: its request is the promise.
void Http2Dissector::Session::promised(std::uint32_t id, Recorder& recorder) {
    Side& mine = side(Direction::to_client);
    if (id == 0 || (id & 1) != 0 || streams.find(id) != nullptr) {
        recorder.count("http2.bad_promise");
        return;
    }
    Stream& stream = add_stream(id, recorder);
    stream.request = mine.promise;
    stream.client_ended = true;
}

http2::Stream& Http2Dissector::Session::add_stream(std::uint32_t id, Recorder& recorder) {
    Stream out;
    Stream& stream = streams.add(id, out);
    if (out.id != 0 && !out.closed) {
        recorder.count("http2.stream_table_overflow");
        for (const Direction d : {Direction::to_server, Direction::to_client})
            if (const Interleaved* open = open_message(out, d))
                recorder.add_flags(open->ref, message_flag::unfinished);
    }
    return stream;
}

void Http2Dissector::Session::stream_ended(Direction direction, Stream& stream, Recorder&) {
    (direction == Direction::to_server ? stream.client_ended : stream.server_ended) = true;
    // Where bytes of the client are missing, the end of its half may be among them.
    if (stream.server_ended && (stream.client_ended || lossy[0])) streams.close(stream);
}

}  // namespace tapscope
