#include "dissect/fastcgi.hpp"

#include <algorithm>
#include <utility>

#include "dissect/fastcgi_wire.hpp"

namespace tapscope {

using namespace fastcgi;

namespace {

constexpr const char* kResynchronisation = "fastcgi.resynchronisation";

}  // namespace

Probe FastcgiDissector::probe(Bytes bytes, Direction direction) noexcept {
    if (bytes.empty()) return Probe::need_more;
    if (bytes[0] != 1) return Probe::no;
    if (bytes.size() < kHeader) {
        // BEGIN_REQUEST or GET_VALUES
        const bool begins =
            direction == Direction::to_server && (bytes.size() < 2 || bytes[1] == 1 || bytes[1] == 9);
        return begins ? Probe::need_more : Probe::no;
    }
    const Type first = type_of(bytes);
    if (first == Type::begin_request && bytes.size() < kHeader + kFixedBody)
        return plausible(direction, bytes) ? Probe::need_more : Probe::no;
    return find_chain(direction, bytes, 0, true) == 0 ? Probe::yes : Probe::no;
}

std::size_t FastcgiDissector::wanted(Bytes header) const noexcept {
    const Type type = type_of(header);
    const std::size_t length = length_of(header);
    if (streams_ != nullptr) [[unlikely]]
        return streams_->wanted(type, id_of(header), length);
    switch (type) {
        case Type::begin_request:
        case Type::end_request:
            return length;
        case Type::params:
        case Type::stdin_:
            return request_.text.wanted(type, length);
        case Type::stdout_:
            return answer_.ref == kNoMessage ? std::min(length, kMaxHead) : answer_.text.wanted(length);
        default:
            return 0;
    }
}

Parsed FastcgiDissector::parse(Direction direction, Bytes bytes, Recorder& recorder) {
    Side& s = side(direction);
    const std::size_t size = bytes.size();
    std::uint64_t pos = s.skip;
    s.skip = s.partial = 0;
    if (streams_ != nullptr) [[unlikely]]
        streams_->go_on(direction, pos, recorder);
    while (pos < size) {
        if (s.lost && !find_border(direction, bytes, pos, recorder)) {
            s.left = 0;
            return {Step::ok, size};
        }
        if (pos + kHeader > size) break;
        const Bytes rest = bytes.subspan(pos);
        if (!plausible(direction, rest.first(std::min(rest.size(), kHeader)))) [[unlikely]] {
            s.left = 0;
            return {Step::malformed, pos, "fastcgi.bad_record"};
        }
        if (interleaves(direction, rest)) [[unlikely]]
            interleave(direction, pos, recorder);
        const std::size_t need = wanted(rest);
        if (rest.size() < kHeader + need) {
            s.partial = static_cast<std::uint32_t>(size_of(rest));
            s.type = type_of(rest);
            s.id = id_of(rest);
            break;
        }
        const std::uint64_t next = pos + size_of(rest);
        if (streams_ != nullptr) [[unlikely]]
            streams_->record(rest.first(kHeader), rest.subspan(kHeader, need), pos, next, recorder);
        else
            record(rest.first(kHeader), rest.subspan(kHeader, need), pos, next, recorder);
        pos = next;
    }
    s.left = pos < size ? static_cast<std::uint32_t>(size - pos) : 0;
    return {Step::ok, pos};
}

// ---- one message at a time ------------------------------------------------------------------------------------------

void FastcgiDissector::record(Bytes header, Bytes content, std::uint64_t at, std::uint64_t next,
                              Recorder& recorder) {
    const Type type = type_of(header);
    const std::uint16_t length = length_of(header);
    switch (type) {
        case Type::begin_request:
            return begin_request(content, at, recorder);
        case Type::params:
        case Type::stdin_:
        case Type::data:
            if (request_.ref == kNoMessage) {
                recorder.count("fastcgi.record_of_other_request");
                recorder.remainder(Direction::to_server, "fastcgi.record_of_other_request");
            } else if (type == Type::params
                           ? request_.text.params(request_.ref, content, length, recorder)
                           : request_.text.input(request_.ref, type, content, length, recorder)) {
                end_request(next, recorder);
            }
            return;
        case Type::abort_request:
            recorder.count("fastcgi.abort");
            if (request_.ref == kNoMessage)
                return alone(Direction::to_server, "ABORT_REQUEST", at, next, recorder);
            return end_request(next, recorder);
        case Type::get_values:
            return alone(Direction::to_server, "GET_VALUES", at, next, recorder);
        case Type::get_values_result:
            return alone(Direction::to_client, "GET_VALUES_RESULT", at, next, recorder);
        case Type::unknown_type:
            return alone(Direction::to_client, "UNKNOWN_TYPE", at, next, recorder);
        case Type::stdout_:
            begin_answer(at, recorder);
            return answer_.text.read(answer_.ref, content, recorder);
        case Type::stderr_:
            begin_answer(at, recorder);
            if (length > 0) recorder.count("fastcgi.stderr");
            return;
        case Type::end_request:
            begin_answer(at, recorder);
            answer_.text.end(answer_.ref, content, recorder);
            recorder.end(std::exchange(answer_.ref, kNoMessage), next);
            return;
    }
}

void FastcgiDissector::begin_request(Bytes content, std::uint64_t at, Recorder& recorder) {
    if (recorder.has_request()) recorder.count("fastcgi.multiplexed");
    began_since_loss_ = true;
    request_.ref = recorder.begin(Direction::to_server, MessageKind::request, at);
    request_.text.begin(content);
}

void FastcgiDissector::end_request(std::uint64_t next, Recorder& recorder) {
    recorder.end(std::exchange(request_.ref, kNoMessage), next);
}

void FastcgiDissector::begin_answer(std::uint64_t at, Recorder& recorder) {
    if (answer_.ref != kNoMessage) return;
    answer_.ref = recorder.begin(Direction::to_client, MessageKind::response, at);
    answer_.text.begin(true);
}

void FastcgiDissector::alone(Direction direction, const char* text, std::uint64_t at, std::uint64_t next,
                             Recorder& recorder) {
    const MessageRef ref = recorder.begin(direction, MessageKind::one_way, at);
    recorder.set_class(ref, protocol, text);
    recorder.end(ref, next);
}

// ---- several ids ----------------------------------------------------------------------------------------------------

// Does the record have a second id, or stand inside a message as one of the connection itself (id 0)?
bool FastcgiDissector::interleaves(Direction direction, Bytes header) noexcept {
    const std::uint16_t id = id_of(header);
    if (id == id_ || streams_ != nullptr) [[likely]]
        return false;
    if (id == 0) return (direction == Direction::to_server ? request_.ref : answer_.ref) != kNoMessage;
    if (id_ != 0) return true;
    id_ = id;
    return false;
}

void FastcgiDissector::interleave(Direction direction, std::uint64_t at, Recorder& recorder) {
    recorder.counters.add("fastcgi.paired_by_id", 1, Unit::connections);
    streams_ = std::make_unique<Streams>();
    streams_->take_over(id_, std::move(request_), answer_, {sides_[0].lossy, sides_[1].lossy}, recorder);
    request_.ref = answer_.ref = kNoMessage;
    streams_->go_on(direction, at, recorder);
}

// ---- losses ---------------------------------------------------------------------------------------------------------

void FastcgiDissector::on_gap(Direction direction, std::uint64_t missing, Recorder& recorder) {
    Side& s = side(direction);
    if (s.skip > 0 && s.skip >= missing) {  // the same record lost more
        s.skip -= static_cast<std::uint32_t>(missing);
        return recorder.borders_kept();
    }
    // Offsets count from the first missing byte: what was kept is before it, the rest of a record that is known behind.
    const std::uint64_t kept = std::uint64_t{s.skip} - s.left;
    if (streams_ != nullptr) streams_->go_on(direction, kept, recorder);
    if (s.lost) return;
    if (s.partial > 0 && s.left + missing <= s.partial) {
        // A record whose length is known; what it was to tell is not.
        const bool to_server = direction == Direction::to_server;
        bool in_message = false;
        if (streams_ != nullptr) {
            in_message = streams_->content_lost(s.type, s.id, kept, kept + s.partial, recorder);
        } else if (to_server) {
            in_message = request_.ref != kNoMessage && request_.text.forget();
            if (in_message) recorder.count("fastcgi.request_text_lost");
        } else {
            in_message = answer_.ref != kNoMessage;
            answer_.text.forget();
        }
        if (in_message) {
            s.skip = static_cast<std::uint32_t>(s.partial - s.left - missing);
            s.left = s.partial = 0;
            return recorder.borders_kept();
        }
    }
    s = {};
    s.lost = s.lossy = true;
    if (streams_ != nullptr) {
        if (missing > 0) recorder.remainder_from(kept, kResynchronisation);
        return streams_->lose(direction, recorder);
    }
    recorder.remainder(direction, kResynchronisation);
    if (direction == Direction::to_client)
        began_since_loss_ = false;
    else
        request_.text.forget();
}

// Record borders are unknown. Finds the next one at or behind `pos` and the state to go on with.
bool FastcgiDissector::find_border(Direction direction, Bytes bytes, std::uint64_t& pos, Recorder& recorder) {
    if (streams_ != nullptr)
        recorder.remainder_from(pos, kResynchronisation);
    else
        recorder.remainder(direction, kResynchronisation);
    const std::size_t found = find_chain(direction, bytes, pos, false);
    if (found == bytes.size()) return false;
    side(direction).lost = false;
    if (interleaves(direction, bytes.subspan(found))) interleave(direction, pos, recorder);
    if (streams_ != nullptr) streams_->lose(direction, recorder);  // of requests begun since, too
    pos = found;
    if (direction == Direction::to_client && answer_.ref != kNoMessage && began_since_loss_) {
        recorder.end(answer_.ref, 0);  // the web server went on: that answer was over
        answer_.ref = kNoMessage;
    }
    return true;
}

void FastcgiDissector::on_end(Direction direction, Recorder& recorder) {
    if (streams_ != nullptr) {
        const std::uint32_t left = side(direction).left;
        streams_->go_on(direction, 0 - std::uint64_t{left}, recorder);
        if (left > 0) recorder.remainder_from(0 - std::uint64_t{left}, "cut_by_end_of_stream");
        if (side(direction).lost) streams_->lose(direction, recorder);
        return streams_->end(direction, recorder);
    }
    if (direction == Direction::to_server) {
        if (request_.ref != kNoMessage && request_.text.in_params()) recorder.count("fastcgi.request_cut");
        return;
    }
    if (answer_.ref == kNoMessage) return;
    answer_.text.cut(answer_.ref, recorder);
    recorder.add_flags(answer_.ref, message_flag::unfinished);  // END_REQUEST is missing
    recorder.end_with_stream(std::exchange(answer_.ref, kNoMessage));
}

}  // namespace tapscope
