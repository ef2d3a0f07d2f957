#include "ajp.hpp"

#include <algorithm>

namespace tapscope {

using namespace ajp;

namespace {

// A payload that is a FORWARD_REQUEST as far as it goes: method, then the protocol "HTTP/...".
Probe looks_like_request(Bytes payload) noexcept {
    constexpr std::string_view http = "HTTP/";
    if (payload.empty()) return Probe::need_more;
    if (payload[0] != static_cast<std::uint8_t>(Type::forward_request)) return Probe::no;
    if (payload.size() >= 2 && method_name(payload[1]) == nullptr && payload[1] != kStoredMethod)
        return Probe::no;
    if (payload.size() >= 3 && payload[2] != 0) return Probe::no;
    if (payload.size() >= 4 && (payload[3] < 6 || payload[3] > 16)) return Probe::no;
    for (std::size_t i = 0; i < http.size(); ++i) {
        if (4 + i >= payload.size()) return Probe::need_more;
        if (payload[4 + i] != static_cast<std::uint8_t>(http[i])) return Probe::no;
    }
    return Probe::yes;
}

// A packet from the container, judged by the lengths that its type allows.
Probe looks_like_answer(std::size_t length, Bytes payload) noexcept {
    if (payload.empty()) return length == 0 ? Probe::no : Probe::need_more;
    switch (static_cast<Type>(payload[0])) {
        case Type::send_body_chunk:
            if (length < 3) return Probe::no;
            if (payload.size() < 3) return Probe::need_more;
            // The 00 behind the data is missing from some containers' flush packets.
            return load_be16(&payload[1]) + std::size_t{4} == length ||
                           load_be16(&payload[1]) + std::size_t{3} == length
                       ? Probe::yes
                       : Probe::no;
        case Type::send_headers: {
            if (length < 7) return Probe::no;
            if (payload.size() < 3) return Probe::need_more;
            const std::uint16_t status = load_be16(&payload[1]);
            return status >= 100 && status <= 999 ? Probe::yes : Probe::no;
        }
        case Type::end_response:
            return length == 2 ? Probe::yes : Probe::no;
        case Type::get_body_chunk:
            return length == 3 ? Probe::yes : Probe::no;
        case Type::cpong:
            return length == 1 ? Probe::yes : Probe::no;
        default:
            return Probe::no;
    }
}

// Packet of the web server at the start of `bytes`, the state of the connection being unknown.
Probe looks_like_web_server(Bytes bytes) noexcept {
    if (bytes[0] != 0x12) return Probe::no;
    if (bytes.size() >= 2 && bytes[1] != 0x34) return Probe::no;
    if (bytes.size() < kHeader + 1) return Probe::need_more;
    const std::size_t length = load_be16(&bytes[2]);
    const Bytes payload = bytes.subspan(kHeader, std::min(length, bytes.size() - kHeader));
    if (length == 1) return payload[0] == static_cast<std::uint8_t>(Type::cping) ? Probe::yes : Probe::no;
    const Probe request = looks_like_request(payload);
    return length < 16 ? Probe::no : request;
}

Probe looks_like_container(Bytes bytes) noexcept {
    if (bytes[0] != 0x41) return Probe::no;
    if (bytes.size() >= 2 && bytes[1] != 0x42) return Probe::no;
    if (bytes.size() < kHeader) return Probe::need_more;
    const std::size_t length = load_be16(&bytes[2]);
    return looks_like_answer(length, bytes.subspan(kHeader, std::min(length, bytes.size() - kHeader)));
}

// First place in `bytes` where a packet may start; bytes.size() when there is none.
std::size_t find_packet(Bytes bytes, Direction direction) noexcept {
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        const Bytes rest = bytes.subspan(at);
        const Probe probe =
            direction == Direction::to_server ? looks_like_web_server(rest) : looks_like_container(rest);
        if (probe != Probe::no) return at;
    }
    return bytes.size();
}

}  // namespace

Probe AjpDissector::probe(Bytes bytes, Direction direction) noexcept {
    if (bytes.empty()) return Probe::need_more;
    if (direction == Direction::to_client) return looks_like_container(bytes);
    const Probe answer = looks_like_web_server(bytes);
    if (answer != Probe::no || bytes.size() < kHeader + 2 || bytes[0] != 0x12 || bytes[1] != 0x34)
        return answer;
    // Joined midstream, at a body packet.
    const std::size_t length = load_be16(&bytes[2]);
    return length > 2 && load_be16(&bytes[kHeader]) == length - 2 ? Probe::yes : Probe::no;
}

Parsed AjpDissector::parse(Direction direction, Bytes bytes, Recorder& recorder) {
    Side& s = side(direction);
    const std::size_t size = bytes.size();
    std::uint64_t pos = s.skip;
    s.skip = s.left = s.partial = 0;
    if (s.due != kNoMessage) {
        recorder.end(s.due, pos);
        s.due = kNoMessage;
    }
    const std::uint16_t magic = direction == Direction::to_server ? kMagicToContainer : kMagicToServer;
    while (pos < size) {
        const auto here = static_cast<std::size_t>(pos);
        if (s.lost) [[unlikely]] {
            const std::size_t found = here + find_packet(bytes.subspan(here), direction);
            recorder.remainder(direction, "ajp.resynchronisation");
            pos = found;
            if (found == size) break;
            const Bytes rest = bytes.subspan(found);
            const Probe sure =
                direction == Direction::to_server ? looks_like_web_server(rest) : looks_like_container(rest);
            if (sure == Probe::need_more) break;
            s.lost = false;
            continue;
        }
        if (size - here < kHeader) break;
        if (load_be16(&bytes[here]) != magic) {
            recorder.count("ajp.bad_magic");
            recorder.remainder(direction, "ajp.bad_magic");
            s.lost = true;
            pos = here + 1;
            continue;
        }
        const std::size_t length = load_be16(&bytes[here + 2]);
        const std::size_t have = std::min(size - here - kHeader, length);
        const Bytes payload = bytes.subspan(here + kHeader, have);
        const std::size_t wanted = direction == Direction::to_server ? wanted_of_server(length, payload)
                                                                     : std::min<std::size_t>(length, 3);
        if (have < wanted) {
            // Reported now, so that a loss inside the packet does not lose the message.
            if (direction == Direction::to_server && !s.begun && !body_due() &&
                looks_like_request(payload) == Probe::yes) {
                begin_request(here, recorder);
                s.begun = true;
            }
            s.partial = kHeader + length;
            break;
        }
        const std::uint64_t next = here + kHeader + length;
        // Never more than was asked for: what is reported must not depend on how much happens to be at hand.
        if (direction == Direction::to_server) {
            web_server_packet(length, payload.first(wanted), here, next, recorder);
        } else {
            container_packet(payload.first(wanted), here, next, recorder);
        }
        pos = next;
    }
    s.left = pos < size ? size - pos : 0;
    return {Step::ok, pos, nullptr};
}

// ---- web server to container ----------------------------------------------------------------------------------------

// A body packet says its length twice; an empty one ends the body.
bool AjpDissector::is_body(std::size_t length, Bytes payload) const noexcept {
    if (length == 0) return true;
    if (length < 2 || payload.size() < 2) return false;
    return load_be16(payload.data()) == length - 2;
}

std::size_t AjpDissector::wanted_of_server(std::size_t length, Bytes payload) const noexcept {
    if (payload.size() < 2) return std::min<std::size_t>(length, 2);
    if (is_body(length, payload) && (body_due() || looks_like_request(payload) == Probe::no)) {
        return form_ ? std::min(length, 2 + kFormBytes) : 2;
    }
    return payload[0] == static_cast<std::uint8_t>(Type::forward_request) ? length : 1;
}

void AjpDissector::web_server_packet(std::size_t length, Bytes payload, std::uint64_t at, std::uint64_t next,
                                     Recorder& recorder) {
    Side& s = side(Direction::to_server);
    if (!s.begun && is_body(length, payload) && (body_due() || looks_like_request(payload) != Probe::yes)) {
        if (owed_ == 0) recorder.count("ajp.unexpected_body");
        if (request_ == kNoMessage) {  // joined in the middle of a body
            if (owed_ > 0) --owed_;
            recorder.remainder(Direction::to_server, "ajp.before_first_request");
            return;
        }
        body(length, payload, recorder);
        recorder.end(request_, next);
        return;
    }
    switch (static_cast<Type>(payload[0])) {
        case Type::forward_request:
            if (!s.begun) begin_request(at, recorder);
            s.begun = false;
            forward_request(payload, recorder);
            recorder.end(request_, next);
            return;
        case Type::cping:
            next_exchange(recorder);
            return alone(Direction::to_server, MessageKind::one_way, "CPING", at, next, recorder);
        case Type::shutdown:
            return alone(Direction::to_server, MessageKind::one_way, "SHUTDOWN", at, next, recorder);
        case Type::ping:
            return alone(Direction::to_server, MessageKind::one_way, "PING", at, next, recorder);
        default:
            break;
    }
    recorder.count("ajp.unknown_packet");
    recorder.remainder(Direction::to_server, "ajp.unknown_packet");
}

void AjpDissector::begin_request(std::uint64_t at, Recorder& recorder) {
    request_ = recorder.begin(Direction::to_server, MessageKind::request, at);
    if (owed_ > 0) recorder.count("ajp.body_not_sent", owed_);
    owed_ = 0;
    form_ = answered_ = false;
    next_exchange(recorder);
}

// One exchange at a time: with the next one an answer that is still open is over, its end was not seen.
void AjpDissector::next_exchange(Recorder& recorder) {
    if (answer_ == kNoMessage) return;
    recorder.count("ajp.answer_without_end");
    answer_ = kNoMessage;
}

void AjpDissector::alone(Direction direction, MessageKind kind, const char* text, std::uint64_t at,
                         std::uint64_t next, Recorder& recorder) {
    const MessageRef ref = recorder.begin(direction, kind, at);
    recorder.set_class(ref, protocol, text);
    recorder.end(ref, next);
}

// ---- container to web server ----------------------------------------------------------------------------------------

void AjpDissector::begin_answer(std::uint64_t at, Recorder& recorder) {
    answer_ = recorder.begin(Direction::to_client, MessageKind::response, at);
}

void AjpDissector::container_packet(Bytes payload, std::uint64_t at, std::uint64_t next, Recorder& recorder) {
    if (payload.empty()) {
        recorder.count("ajp.empty_packet");
        recorder.remainder(Direction::to_client, "ajp.empty_packet");
        return;
    }
    switch (static_cast<Type>(payload[0])) {
        case Type::send_headers: {
            const int status = payload.size() >= 3 ? load_be16(&payload[1]) : -1;
            if (status / 100 == 1 && status != 101) {  // the answer proper is still to come
                const MessageRef ref = recorder.begin(Direction::to_client, MessageKind::interim, at);
                recorder.set_status(ref, status);
                return recorder.end(ref, next);
            }
            next_exchange(recorder);
            begin_answer(at, recorder);
            recorder.set_status(answer_, status);
            if (status >= 500) recorder.add_flags(answer_, message_flag::error);
            return;
        }
        case Type::send_body_chunk:
        case Type::end_response: {
            if (answer_ == kNoMessage) {
                if (!recorder.has_request()) {  // the tail of an answer whose request was not seen
                    recorder.count("ajp.answer_without_request");
                    recorder.remainder(Direction::to_client, "ajp.before_first_request");
                    return;
                }
                begin_answer(at, recorder);
                recorder.count("ajp.answer_without_headers");
            }
            if (payload[0] == static_cast<std::uint8_t>(Type::send_body_chunk)) return;
            recorder.end(answer_, next);
            answer_ = kNoMessage;
            answered_ = true;
            return;
        }
        case Type::get_body_chunk:
            if (!side(Direction::to_server).lost) ++owed_;  // else it may have been sent in the hole
            if (answer_ == kNoMessage)
                alone(Direction::to_client, MessageKind::interim, "GET_BODY_CHUNK", at, next, recorder);
            return;
        case Type::cpong:
            // Sent between exchanges only: what was asked before has its answer, seen or not.
            next_exchange(recorder);
            while (recorder.has_request() && recorder.front_received(at)) recorder.give_up_request();
            return alone(Direction::to_client, MessageKind::interim, "CPONG", at, next, recorder);
        default:
            break;
    }
    recorder.count("ajp.unknown_packet");
    if (answer_ == kNoMessage) recorder.remainder(Direction::to_client, "ajp.unknown_packet");
}

// ---- losses ---------------------------------------------------------------------------------------------------------

void AjpDissector::on_gap(Direction direction, std::uint64_t missing, Recorder& recorder) {
    Side& s = side(direction);
    if (s.lost) return;
    if (missing > 0 && s.skip >= missing) {
        s.skip -= missing;
        return recorder.borders_kept();
    }
    const bool inside = s.partial > 0 && s.left > kHeader && s.left + missing <= s.partial;
    const bool known =
        direction == Direction::to_server && (s.begun || (owed_ > 0 && request_ != kNoMessage));
    if (inside && known) {
        if (s.begun) {
            recorder.count("ajp.request_head_lost");
        } else {  // a form
            --owed_;
        }
        form_ = s.begun = false;
        s.skip = s.partial - s.left - missing;
        s.due = request_;
        s.left = s.partial = 0;
        return recorder.borders_kept();
    }
    // Where a body packet is owed, the hole has it, or a part of it.
    if (direction == Direction::to_server && owed_ > 0 && request_ != kNoMessage) {
        recorder.add_flags(request_, message_flag::truncated);
        owed_ = 0;
    }
    s.lost = true;
    s.begun = false;
    s.skip = s.left = s.partial = 0;
    s.due = kNoMessage;
}

void AjpDissector::on_end(Direction direction, Recorder& recorder) {
    Side& s = side(direction);
    if (s.begun) recorder.count("ajp.request_cut");
    s.begun = false;
}

}  // namespace tapscope
