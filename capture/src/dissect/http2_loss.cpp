// HTTP/2 where bytes are missing: what they may have taken, and where frames begin again.
#include <algorithm>

#include "bytes.hpp"
#include "dissect/http2.hpp"
#include "dissect/http2_session.hpp"

namespace tapscope {

using http2::Block;
using http2::kControl;
using http2::kHeaderSize;
using http2::open_message;
using http2::Side;
using http2::Stream;
using State = http2::Side::State;

namespace {

constexpr std::uint32_t kMaxStreamsAhead = 100'000;  // begun during a loss

}  // namespace

// Nothing that comes is understood before frames are found again.
void Http2Dissector::Session::lose(Direction direction, bool bytes_missing, Recorder& recorder) {
    Side& mine = side(direction);
    if (mine.block != Block::none) {
        mine.broken = mine.fields.missing = true;
        if (const Interleaved* message = message_of_block(direction))
            recorder.add_flags(message->ref, message_flag::truncated);
        end_block(direction, recorder);
    }
    mine.state = State::lost;
    mine.left = mine.at_hand = 0;
    mine.table.forget();
    lossy[static_cast<unsigned>(direction)] = true;
    if (!bytes_missing) return;
    // Frames of every open stream may be among them.
    for (Stream& stream : streams.all()) {
        if (const Interleaved* open = open_message(stream, direction))
            recorder.add_flags(open->ref, message_flag::truncated);
        if (direction == Direction::to_client) stream.in_gap = true;
    }
}

Parsed Http2Dissector::Session::malformed(Direction direction, const char* label, Recorder& recorder) {
    lose(direction, false, recorder);
    return {Step::malformed, 0, label};
}

// Looks for frames, at any byte: bodies are large, and their frames begin anywhere in a segment.
Parsed Http2Dissector::Session::lost(Direction direction, Bytes bytes, Recorder& recorder) {
    recorder.remainder_from(0, "http2.after_loss");
    http2::Known known;
    known.max_frame = max_frame;
    if (highest != 0) known.max_stream = highest + kMaxStreamsAhead;
    known.is_open = [&](std::uint32_t id) {
        const Stream* stream = streams.find(id);
        return stream != nullptr && !stream->closed &&
               !(direction == Direction::to_server ? stream->client_ended : stream->server_ended);
    };
    for (std::size_t at = 0; at + kHeaderSize <= bytes.size(); ++at) {
        if ((std::uint32_t{bytes[at]} << 16) > max_frame) continue;
        if (!http2::looks_like_frames(bytes.subspan(at), direction, known)) continue;
        recorder.remainder_from(at, kControl);
        Side& mine = side(direction);
        mine.state = State::frame;
        return at > 0 ? Parsed{Step::ok, at} : frame(direction, bytes, recorder);
    }
    return {Step::ok, bytes.size()};
}

void Http2Dissector::on_gap(Direction direction, std::uint64_t missing, Recorder& recorder) {
    Session& session = this->session();
    Side& side = session.side(direction);
    switch (side.state) {
        case State::start:
        case State::frame:
        case State::lost:
            return session.lose(direction, missing > 0, recorder);
        case State::prefix:
            if (side.block == Block::promise) side.block = Block::other;  // of a stream that is not known now
            [[fallthrough]];
        case State::fragment:
            side.broken = side.fields.missing = true;
            side.table.forget();
            session.lossy[static_cast<unsigned>(direction)] = true;
            if (const Interleaved* message = session.message_of_block(direction))
                recorder.add_flags(message->ref, message_flag::truncated);
            if (side.frame.has(http2::kEndHeaders)) session.end_block(direction, recorder);
            break;
        case State::form:
        case State::skip:
            break;
    }
    const std::uint64_t rest = side.left - std::min(side.left, side.at_hand);
    if (missing > rest) return session.lose(direction, true, recorder);
    side.left = rest - missing;
    side.at_hand = 0;
    side.state = side.left > 0 ? State::skip : State::frame;
    recorder.borders_kept();
}

void Http2Dissector::on_end(Direction direction, Recorder& recorder) {
    Session& session = this->session();
    Side& side = session.side(direction);
    if (side.block != Block::none) session.lose(direction, false, recorder);
    side.state = State::lost;
    for (Stream& stream : session.streams.all()) {
        if (const Interleaved* open = open_message(stream, direction))
            recorder.add_flags(open->ref, message_flag::unfinished);
        const bool unanswered = !stream.answered && !stream.closed && stream.request.ref != kNoMessage;
        if (direction == Direction::to_client && unanswered && stream.in_gap) {
            recorder.add_flags(stream.request.ref, message_flag::answer_lost);
            recorder.counters.add("pairing.answer_lost", 1, Unit::messages);
        }
    }
}

}  // namespace tapscope
