#include "ajp.hpp"

#include <algorithm>
#include <string>

#include "../evidence.hpp"
#include "few_fields.hpp"
#include "route.hpp"

namespace tapscope {

using namespace ajp;

namespace {

constexpr std::size_t kFormBytes = 8 * 1024;  // of a form body that are looked at

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

bool equals_ignoring_case(std::string_view text, std::string_view lower) noexcept {
    return text.size() == lower.size() &&
           std::equal(text.begin(), text.end(), lower.begin(), [](char a, char b) {
               return (a >= 'A' && a <= 'Z' ? static_cast<char>(a | 0x20) : a) == b;
           });
}

bool starts_ignoring_case(std::string_view text, std::string_view lower) noexcept {
    return text.size() >= lower.size() && equals_ignoring_case(text.substr(0, lower.size()), lower);
}

std::uint64_t decimal(std::string_view text) noexcept {
    std::uint64_t value = 0;
    for (const char c : text) {
        if (!is_digit(c) || value > (std::uint64_t{1} << 56)) return value;
        value = value * 10 + static_cast<std::uint64_t>(c - '0');
    }
    return value;
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
            if (direction == Direction::to_server && !s.begun && owed_ == 0 &&
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
    if (is_body(length, payload) && (owed_ > 0 || looks_like_request(payload) == Probe::no)) {
        return form_ ? std::min(length, 2 + kFormBytes) : 2;
    }
    return payload[0] == static_cast<std::uint8_t>(Type::forward_request) ? length : 1;
}

void AjpDissector::web_server_packet(std::size_t length, Bytes payload, std::uint64_t at, std::uint64_t next,
                                     Recorder& recorder) {
    Side& s = side(Direction::to_server);
    if (!s.begun && is_body(length, payload) && (owed_ > 0 || looks_like_request(payload) != Probe::yes)) {
        if (owed_ == 0) recorder.count("ajp.unexpected_body");
        if (request_ == kNoMessage) {  // joined in the middle of a body
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
    form_ = false;
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

void AjpDissector::forward_request(Bytes payload, Recorder& recorder) {
    constexpr std::size_t kMaxHeaders = 32;  // that become evidence
    FewFields<kMaxHeaders> extras, attributes;
    std::string_view stored_method;

    Reader reader(payload.subspan(1));
    const std::uint8_t method_code = reader.u8();
    const char* method = method_name(method_code);
    reader.text();  // protocol
    const std::string_view uri = reader.text();
    const std::string_view remote_address = reader.text();
    reader.text();  // remote host
    reader.text();  // server name
    reader.u16();   // server port
    reader.u8();    // is_ssl
    const std::uint16_t headers = reader.u16();

    std::uint64_t content_length = 0;
    bool chunked = false;
    bool form = false;
    for (std::uint16_t i = 0; i < headers && reader.ok(); ++i) {
        const std::uint16_t code = reader.u16();
        std::string_view name;
        if (code < static_cast<std::uint16_t>(HeaderCode::accept) ||
            code > static_cast<std::uint16_t>(HeaderCode::last)) {
            name = reader.text_of(code);
        }
        const std::string_view value = reader.text();
        if (code == static_cast<std::uint16_t>(HeaderCode::content_length) ||
            equals_ignoring_case(name, "content-length")) {
            content_length = decimal(value);
        } else if (code == static_cast<std::uint16_t>(HeaderCode::content_type) ||
                   equals_ignoring_case(name, "content-type")) {
            form = starts_ignoring_case(value, "application/x-www-form-urlencoded");
        } else if (code == static_cast<std::uint16_t>(HeaderCode::cookie) ||
                   equals_ignoring_case(name, "cookie")) {
            extras.add({"c", value});
        } else if (starts_ignoring_case(name, "x-") || equals_ignoring_case(name, kTraceParent)) {
            extras.add({name, value});
        } else if (equals_ignoring_case(name, "transfer-encoding")) {
            chunked = true;
        }
    }

    std::string_view query;
    bool has_query = false;
    std::string_view port;
    while (reader.ok()) {
        const auto code = static_cast<Attribute>(reader.u8());
        if (code == Attribute::end || !reader.ok()) break;
        if (code == Attribute::ssl_key_size) {
            reader.u16();
            continue;
        }
        const std::string_view text = reader.text();
        if (code == Attribute::query_string) {
            query = text;
            has_query = true;
        } else if (code == Attribute::stored_method && method_code == kStoredMethod) {
            method = nullptr;
            if (!text.empty()) stored_method = text;
        } else if (code == Attribute::req_attribute) {
            const std::string_view value = reader.text();
            if (text == "AJP_REMOTE_PORT") {
                port = value;
            } else if (!text.starts_with("AJP_") && !text.starts_with("JK_")) {
                attributes.add({text, value});
            }
        } else if (code > Attribute::stored_method || code < Attribute::context) {
            recorder.count("ajp.unknown_attribute");
            break;  // its length is not known
        }
    }
    if (!reader.ok()) {
        recorder.count("ajp.bad_forward_request");
        recorder.add_flags(request_, message_flag::suspicious);
    }

    thread_local std::string target;
    target.assign(uri);
    if (has_query) target.append("?").append(query);
    const std::string_view method_text = method != nullptr       ? std::string_view(method)
                                         : stored_method.empty() ? std::string_view("UNKNOWN")
                                                                 : stored_method;
    request_route(recorder, request_, protocol, method_text, target);
    for (const auto& [name, value] : extras) {
        if (name == "c") {
            cookie_evidence(recorder, request_, value);
        } else {
            header_evidence(recorder, request_, name, value);
        }
    }
    for (const auto& [name, value] : attributes) {
        if (value.empty()) continue;
        recorder.token(request_, slot_of_name(name), TokenKind::text, as_bytes(value));
    }
    if (!remote_address.empty() && !port.empty()) endpoint_evidence(recorder, request_, remote_address, port);

    // With a content length the first body packet comes unasked; a chunked body is fetched piece by piece.
    if (content_length > 0) owed_ = 1;
    form_ = form && (content_length > 0 || chunked);
    form_bytes_ = content_length;
}

void AjpDissector::body(std::size_t length, Bytes payload, Recorder& recorder) {
    if (owed_ > 0) --owed_;
    if (answer_ == kNoMessage && !recorder.has_request()) recorder.count("ajp.late_body");
    if (!form_) return;
    form_ = false;
    if (length <= 2) return;
    const Bytes data = payload.subspan(2);
    form_evidence(recorder, request_, as_text(data), data.size() == form_bytes_);
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
            next_exchange(recorder);
            begin_answer(at, recorder);
            const int status = payload.size() >= 3 ? load_be16(&payload[1]) : -1;
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
            return;
        }
        case Type::get_body_chunk:
            ++owed_;
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
