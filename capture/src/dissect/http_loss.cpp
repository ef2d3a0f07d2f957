// HTTP/1.x after bytes that the tap never saw, and at the end of a stream: what the open message becomes, and where the
// next one begins.
#include <algorithm>
#include <string_view>

#include "dissect/http.hpp"

namespace tapscope {

Parsed HttpDissector::lost(Direction direction, Bytes bytes, Recorder& recorder) {
    Half& side = half(direction);
    const bool to_server = direction == Direction::to_server;
    const Probe next = to_server ? starts_request(bytes) : starts_response(bytes);
    // Nothing else begins as a status line does, even when little of it is there.
    if (next == Probe::need_more && !to_server && side.state == State::lost) return {Step::ok, 0};
    if (next == Probe::yes) {
        if (side.state == State::lost_body) recorder.end(side.message, 0);
        side.state = State::start;
        return start(direction, bytes, recorder);
    }
    const bool in_body = side.state == State::lost_body;
    if (!in_body && !side.given_up) recorder.remainder(direction, "http.after_loss");
    // Another message may follow the end of the lost one in the same segment.
    const std::size_t at = start_inside(bytes, direction, in_body);
    if (at < bytes.size()) {
        if (in_body) return finish(direction, at, recorder);
        side.state = State::start;
        return {Step::ok, at};
    }
    const std::string_view text = as_text(bytes);
    if (in_body && (text.ends_with(kLastChunk) || text == kLastChunk.substr(2)))
        return finish(direction, bytes.size(), recorder);
    return {Step::ok, bytes.size()};
}

void HttpDissector::on_gap(Direction direction, std::uint64_t missing, Recorder& recorder) {
    Half& side = half(direction);
    if (missing > 0) side.given_up = false;
    if (watching(direction)) finish_watching(direction, false, recorder);
    if (avatica_ != nullptr && direction == Direction::to_server) avatica_->requests_lost(recorder);
    switch (side.state) {
        case State::start:
        case State::skip:
            side.state = State::lost;
            return;
        case State::head:
            recorder.add_flags(side.message, message_flag::truncated);
            recorder.end(side.message, 0);
            side.state = State::lost;
            return;
        case State::watched_chunk:
            if (missing > side.left) {
                recorder.add_flags(side.message, message_flag::truncated);
                side.state = State::lost_body;
                return;
            }
            side.left -= missing;
            if (side.left == 0) side.state = State::chunk_end;
            recorder.borders_kept();
            return;
        case State::watched:
        case State::form:
        case State::expected: {
            if (side.state == State::expected && !continued_) {
                // The body, or what the client said instead of it.
                recorder.add_flags(side.message, message_flag::truncated);
                recorder.end(side.message, 0);
                side.state = State::lost;
                return;
            }
            if (side.state == State::expected && expected_ == State::chunk_size) {
                recorder.add_flags(side.message, message_flag::truncated);
                side.state = State::lost_body;
                return;
            }
            if (side.state == State::watched) side.scanned = 0;
            const std::uint64_t at_hand = std::min(side.scanned, side.left);
            const std::uint64_t left = side.left - at_hand;
            recorder.end(side.message, std::min(left, std::max(missing, left)));
            if (missing > left) {
                side.state = State::lost;
                return;
            }
            side.left = left - missing;
            side.state = side.left > 0 ? State::skip : State::start;
            recorder.borders_kept();
            return;
        }
        case State::chunk_size:
        case State::chunk_end:
        case State::trailer:
            recorder.add_flags(side.message, message_flag::truncated);
            side.state = State::lost_body;
            return;
        case State::unsure_body:
            if (missing < side.left) {
                side.left -= missing;
                if (!request_since_)
                    recorder.borders_kept();  // else the next answer may have begun in the gap
                return;
            }
            recorder.end(side.message, side.left);
            side.state = missing == side.left ? State::start : State::lost;
            return;
        case State::until_close:
        case State::tunnel:
            recorder.borders_kept();
            return;
        case State::lost:
        case State::lost_body:
            return;
    }
}

void HttpDissector::on_end(Direction direction, Recorder& recorder) {
    Half& side = half(direction);
    if (watching(direction)) finish_watching(direction, false, recorder);
    switch (side.state) {
        case State::until_close:
            if (recorder.aborted()) recorder.add_flags(side.message, message_flag::unfinished);
            recorder.end_with_stream(side.message);
            break;
        case State::lost_body:
            recorder.end(side.message, 0);
            break;
        case State::head:
        case State::form:
        case State::watched:
        case State::watched_chunk:
        case State::expected:
        case State::unsure_body:
        case State::chunk_size:
        case State::chunk_end:
        case State::trailer:
            recorder.add_flags(side.message, message_flag::unfinished);
            recorder.end(side.message, 0);
            break;
        case State::start:
        case State::skip:
        case State::tunnel:
        case State::lost:
            break;
    }
    side.state = State::lost;
}

}  // namespace tapscope
