#include "dissect/http.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "dissect/route.hpp"
#include "evidence.hpp"

namespace tapscope {
namespace {

enum Tag : std::uint32_t { kOther = 0, kHead = 1, kConnect = 2, kUnknown = 3, kSimple = 4, kAvatica = 5 };

constexpr std::size_t kFormBytes = 8 * 1024;
constexpr std::size_t kMaxSimpleLine = 256;  // of HTTP/0.9, where it comes in pieces

std::size_t blank_lines(Bytes bytes) noexcept {
    std::size_t i = 0;
    while (i < bytes.size() && (bytes[i] == '\r' || bytes[i] == '\n')) ++i;
    return i;
}

}  // namespace

Probe HttpDissector::probe(Bytes bytes, Direction direction) noexcept {
    if (bytes.empty()) return Probe::need_more;
    if (direction == Direction::to_client) return starts_response(bytes);
    const std::size_t blank = blank_lines(bytes);
    if (blank > 8) return Probe::no;
    if (simple_request(bytes) > 0) return Probe::yes;
    return starts_request(bytes.subspan(blank));
}

Parsed HttpDissector::parse(Direction direction, Bytes bytes, Recorder& recorder) {
    // One state at a time; the driver comes back with what is left over.
    if (half(direction).state == State::start) [[likely]]
        return start(direction, bytes, recorder);
    return step(direction, bytes, recorder);
}

Parsed HttpDissector::step(Direction direction, Bytes bytes, Recorder& recorder) {
    Half& side = half(direction);
    switch (side.state) {
        case State::start:
            return start(direction, bytes, recorder);
        case State::head:
            return head(direction, bytes, recorder);
        case State::form: {
            const std::uint64_t wanted = std::min<std::uint64_t>(side.left, kFormBytes);
            side.scanned = bytes.size();
            if (bytes.size() < wanted) return {Step::ok, 0};
            form_evidence(recorder, side.message, as_text(bytes.first(wanted)), wanted == side.left);
            return finish(direction, side.left, recorder);
        }
        case State::watched:
        case State::watched_chunk:
            return watched(direction, bytes, recorder);
        case State::expected:
            return expected(bytes, recorder);
        case State::skip:
            side.state = State::start;
            return {Step::ok, side.left};
        case State::chunk_size:
            return chunk_size(direction, bytes, recorder);
        case State::chunk_end: {
            const std::size_t n = bytes[0] == '\n' ? 1 : 2;
            if (bytes.size() < n && bytes[0] == '\r') return {Step::ok, 0};
            if (n == 2 && (bytes[0] != '\r' || bytes[1] != '\n'))
                return malformed(direction, 0, "http.bad_chunk_end", recorder);
            if (n == 1) recorder.add_flags(side.message, message_flag::suspicious);
            side.state = State::chunk_size;
            return {Step::ok, n};
        }
        case State::trailer:
            return trailer(direction, bytes, recorder);
        case State::unsure_body:
            // Another answer where the body should be: this was one to a HEAD.
            if (starts_response(bytes) == Probe::yes && (request_since_ || !recorder.has_request())) {
                recorder.add_flags(side.message, message_flag::suspicious);
                recorder.end(side.message, 0);
                side.state = State::start;
                return start(direction, bytes, recorder);
            }
            if (bytes.size() >= side.left) return finish(direction, side.left, recorder);
            side.left -= bytes.size();
            return {Step::ok, bytes.size()};
        case State::until_close:
            if (direction == Direction::to_client &&
                (request_since_ || (!recorder.has_request() && recorder.after_gap(Direction::to_server))) &&
                starts_response(bytes) == Probe::yes) {
                // The client went on, seen or not, and the server answers: the body ended, whatever its head said.
                recorder.add_flags(side.message, message_flag::suspicious);
                recorder.end(side.message, 0);
                side.state = State::start;
                return start(direction, bytes, recorder);
            }
            return {Step::ok, bytes.size()};
        case State::tunnel:
            return {Step::ok, bytes.size()};
        case State::lost:
        case State::lost_body:
            return lost(direction, bytes, recorder);
    }
    return {Step::ok, bytes.size()};
}

// The client sends what it asked leave for; or, refused (whether that was seen or not), the next request.
Parsed HttpDissector::expected(Bytes bytes, Recorder& recorder) {
    Half& side = half(Direction::to_server);
    const Probe next = continued_ ? Probe::no : starts_request(bytes);
    const bool whole = expected_ != State::chunk_size && bytes.size() >= side.left;
    if (next == Probe::need_more && !whole) {
        side.scanned = bytes.size();
        return {Step::ok, 0};
    }
    if (next == Probe::yes) {
        recorder.add_flags(side.message, message_flag::unfinished);
        recorder.end(side.message, 0);
        side.state = State::start;
        return start(Direction::to_server, bytes, recorder);
    }
    if (expected_ == State::skip) return finish(Direction::to_server, side.left, recorder);
    side.state = expected_;
    return step(Direction::to_server, bytes, recorder);
}

Parsed HttpDissector::start(Direction direction, Bytes bytes, Recorder& recorder) {
    const std::size_t blank = bytes[0] == '\r' || bytes[0] == '\n' ? blank_lines(bytes) : 0;
    if (blank > 0) {
        recorder.count("http.blank_line_before_message");
        return {Step::ok, blank};
    }
    if (direction == Direction::to_server) {
        if (bytes[0] == 'P' && is_http2_preface(bytes)) [[unlikely]]
            return {Step::switch_to, 0, nullptr, Protocol::http2};
        if (const std::size_t size = fresh_ ? simple_request(bytes) : 0; size > 0)
            return simple(bytes.first(size), recorder);
    } else if (recorder.front_tag(kUnknown) == kSimple && starts_response(bytes) == Probe::no) {
        // HTTP/0.9: the answer is all that comes until the end of the stream, without a head.
        Half& side = half(direction);
        side.message = recorder.begin(direction, MessageKind::response, 0);
        side.state = State::until_close;
        request_since_ = false;
        return {Step::ok, bytes.size()};
    }
    return head(direction, bytes, recorder);
}

// HTTP/0.9: "GET /path" alone.
Parsed HttpDissector::simple(Bytes bytes, Recorder& recorder) {
    Half& side = half(Direction::to_server);
    new_request_seen(recorder);
    side.message = recorder.begin(Direction::to_server, MessageKind::request, 0, kSimple);
    const std::string_view text = as_text(bytes);
    const std::string_view target = text.substr(4, text.find_first_of("\r\n") - 4);
    request_route(recorder, side.message, protocol, "GET", target);
    recorder.endpoint_token(side.message);
    recorder.count("http.version_0_9");
    return finish(Direction::to_server, bytes.size(), recorder);
}

Parsed HttpDissector::head(Direction direction, Bytes bytes, Recorder& recorder) {
    Half& side = half(direction);
    HttpHead found;
    const char* label = nullptr;
    HeadStep result = HeadStep::incomplete;
    if (side.state == State::start || head_is_complete(bytes, side.scanned))
        result = parse_head(direction, bytes, found, label);
    if (result == HeadStep::complete)
        return direction == Direction::to_server ? request(found, recorder) : response(found, recorder);
    if (result == HeadStep::malformed) return malformed(direction, 0, label, recorder);
    // What came of it is the message's all the same.
    if (bytes.size() > kMaxHead) return malformed(direction, bytes.size(), "http.head_too_long", recorder);
    if (side.state == State::head) {
        side.scanned = bytes.size();
        return {Step::ok, 0};
    }
    // The rest of the head is still to come. The message is noted now, so that it is known if the rest is lost.
    const Probe plain = direction == Direction::to_server ? starts_request(bytes) : starts_response(bytes);
    if (plain == Probe::no) return malformed(direction, 0, "http.bad_start_line", recorder);
    if (plain == Probe::need_more) return {Step::ok, 0};
    if (direction == Direction::to_server) {
        if (fresh_ && bytes.size() < kMaxSimpleLine &&
            std::memchr(bytes.data(), '\n', bytes.size()) == nullptr)
            return {Step::ok, 0};  // the line may turn out to be a whole request of HTTP/0.9
        new_request_seen(recorder);
        const std::string_view text = as_text(bytes);
        const std::uint32_t tag = text.starts_with("HEAD ")      ? kHead
                                  : text.starts_with("CONNECT ") ? kConnect
                                                                 : kOther;
        side.message = recorder.begin(direction, MessageKind::request, 0, tag);
    } else {
        const std::string_view text = as_text(bytes);
        const bool interim = text[9] == '1' && text.substr(9, 3) != "101";
        side.message = recorder.begin(direction, interim ? MessageKind::interim : MessageKind::response, 0);
    }
    side.state = State::head;
    side.scanned = bytes.size();
    return {Step::ok, 0};
}

void HttpDissector::new_request_seen(Recorder& recorder) {
    fresh_ = false;
    request_since_ = true;
    Half& answer = half(Direction::to_client);
    if (answer.state == State::lost_body && !recorder.pipelined()) {
        // The client goes on, so the answer with the unknown end is over.
        recorder.end(answer.message, 0);
        answer.state = State::lost;
    }
}

Parsed HttpDissector::request(const HttpHead& head, Recorder& recorder) {
    Half& side = half(Direction::to_server);
    if (side.state == State::start) {
        new_request_seen(recorder);
        const std::uint32_t tag = head.method == "HEAD"      ? kHead
                                  : head.method == "CONNECT" ? kConnect
                                                             : kOther;
        side.message = recorder.begin(Direction::to_server, MessageKind::request, 0, tag);
    }
    const MessageRef ref = side.message;
    request_route(recorder, ref, protocol, head.method, head.target);
    for (const auto& [name, value] : head.extras) {
        if ((name.front() | 0x20) == 'c')
            cookie_evidence(recorder, ref, value);
        else
            header_evidence(recorder, ref, name, value);
    }
    recorder.endpoint_token(ref);
    const bool bad_coding = head.has_coding && !head.chunked;
    if (head.suspicious || bad_coding) {
        recorder.add_flags(ref, message_flag::suspicious);
        recorder.count("http.suspicious_request");
    }
    const bool call = head.call && head.method == "POST" && !head.compressed;
    if (call && !head.expects_continue && (head.chunked || (head.has_length && head.content_length > 0))) {
        if (avatica_ == nullptr) avatica_ = std::make_unique<AvaticaBodies>();
        avatica_->watch(Direction::to_server, ref, false);
    }
    side.left = head.has_length && !head.chunked ? head.content_length : 0;
    State body = State::skip;
    if (head.chunked)
        body = State::chunk_size;
    else if (watching(Direction::to_server))
        body = State::watched;
    else if (side.left > 0 && head.form)
        body = State::form;
    if (head.expects_continue && (head.chunked || side.left > 0)) {
        expected_ = body;
        continued_ = false;
        body = State::expected;
    }
    if (body == State::skip) return finish(Direction::to_server, head.size + side.left, recorder);
    side.state = body;
    side.scanned = 0;
    return {Step::ok, head.size};
}

Parsed HttpDissector::response(const HttpHead& head, Recorder& recorder) {
    Half& side = half(Direction::to_client);
    const bool interim = head.status < 200 && head.status != 101;
    if (side.state == State::start)
        side.message =
            recorder.begin(Direction::to_client, interim ? MessageKind::interim : MessageKind::response, 0);
    const MessageRef ref = side.message;
    const std::uint32_t tag = recorder.front_tag(kUnknown);
    recorder.set_status(ref, head.status);
    if (head.status >= 500) recorder.add_flags(ref, message_flag::error);
    if (head.suspicious) {
        recorder.add_flags(ref, message_flag::suspicious);
        recorder.count("http.suspicious_response");
    }
    if (head.status == 100 && half(Direction::to_server).state == State::expected) continued_ = true;
    if (interim) return finish(Direction::to_client, head.size, recorder);
    request_since_ = false;
    if (head.status == 101 && head.upgrade_h2c) {
        // RFC 7540 section 3.2: the answer proper comes as stream 1 of HTTP/2; the request stays open for it.
        recorder.make_interim(ref);
        recorder.end(ref, head.size);
        return {Step::switch_to, head.size, nullptr, Protocol::http2};
    }
    if (head.status == 101 || (tag == kConnect && head.status / 100 == 2)) {
        recorder.count("http.switched_to_tunnel");
        recorder.end(ref, head.size);
        for (const Direction d : {Direction::to_server, Direction::to_client}) {
            half(d).state = State::tunnel;
            recorder.remainder(d, "http.tunnel");
        }
        return {Step::ok, head.size};
    }
    if (tag == kHead || head.status == 204 || head.status == 304)
        return finish(Direction::to_client, head.size, recorder);
    if (tag == kAvatica && recorder.answers(ref) != kNoMessage) {
        recorder.set_protocol(ref, Protocol::avatica);
        const bool counted = head.has_length && !head.has_coding && head.content_length > 0;
        if (avatica_ != nullptr && (head.chunked || counted))
            avatica_->watch(Direction::to_client, ref, head.compressed);
        if (counted && watching(Direction::to_client)) {
            side.left = head.content_length;
            side.state = State::watched;
            return {Step::ok, head.size};
        }
    }
    if (head.chunked) {
        side.state = State::chunk_size;
        return {Step::ok, head.size};
    }
    if (head.has_length && !head.has_coding) {
        if (tag == kUnknown && head.content_length > 0) {
            side.left = head.content_length;
            side.state = State::unsure_body;
            return {Step::ok, head.size};
        }
        return finish(Direction::to_client, head.size + head.content_length, recorder);
    }
    side.state = State::until_close;
    return {Step::ok, head.size};
}

// The message ends `size` bytes from the start of the bytes given, which may be beyond them.
Parsed HttpDissector::finish(Direction direction, std::uint64_t size, Recorder& recorder) {
    Half& side = half(direction);
    if (watching(direction)) finish_watching(direction, true, recorder);
    recorder.end(side.message, size);
    side.state = State::start;
    return {Step::ok, size};
}

void HttpDissector::finish_watching(Direction direction, bool complete, Recorder& recorder) {
    if (avatica_->finish(direction, complete, recorder)) recorder.set_tag(half(direction).message, kAvatica);
}

Parsed HttpDissector::malformed(Direction direction, std::uint64_t consumed, const char* label,
                                Recorder& recorder) {
    Half& side = half(direction);
    const bool open = side.state != State::start && side.state != State::lost;
    if (watching(direction)) finish_watching(direction, false, recorder);
    if (open) {
        recorder.add_flags(side.message, message_flag::unfinished | message_flag::suspicious);
        recorder.end(side.message, consumed);
    }
    side.state = State::lost;
    side.given_up = true;
    return {Step::malformed, consumed, label};
}

}  // namespace tapscope
