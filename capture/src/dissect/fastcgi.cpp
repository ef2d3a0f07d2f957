#include "dissect/fastcgi.hpp"

#include <algorithm>
#include <string_view>

#include "bytes.hpp"
#include "dissect/fastcgi_wire.hpp"
#include "evidence.hpp"

namespace tapscope {

using namespace fastcgi;

namespace {

constexpr std::size_t kMaxHead = 4096;  // bytes of a STDOUT record searched for the CGI head

}  // namespace

Probe FastcgiDissector::probe(Bytes bytes, Direction direction) noexcept {
    if (bytes.empty()) return Probe::need_more;
    if (bytes[0] != 1) return Probe::no;
    if (bytes.size() < kHeader) {
        const bool begins = direction == Direction::to_server && (bytes.size() < 2 || bytes[1] == 1);
        return begins ? Probe::need_more : Probe::no;
    }
    const Type first = type_of(bytes);
    if (first == Type::begin_request && bytes.size() < kHeader + kFixedBody)
        return plausible(direction, bytes) ? Probe::need_more : Probe::no;
    return find_chain(direction, bytes, 0, true) == 0 ? Probe::yes : Probe::no;
}

std::size_t FastcgiDissector::wanted(Type type, std::size_t content) const noexcept {
    switch (type) {
        case Type::begin_request:
        case Type::end_request:
            return content;
        case Type::params:
            return body_ == Body::params ? content : 0;
        case Type::stdin_:
            return body_ == Body::form ? std::min(content, kFormBytes - std::min(kFormBytes, text_.size()))
                                       : 0;
        case Type::stdout_:
            return head_open_ || answer_ == kNoMessage ? std::min(content, kMaxHead) : 0;
        default:
            return 0;
    }
}

Parsed FastcgiDissector::parse(Direction direction, Bytes bytes, Recorder& recorder) {
    Side& s = side(direction);
    const std::size_t size = bytes.size();
    std::uint64_t pos = s.skip;
    s.skip = s.partial = 0;
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
        const std::size_t need = wanted(type_of(rest), length_of(rest));
        if (rest.size() < kHeader + need) {
            s.partial = static_cast<std::uint32_t>(size_of(rest));
            break;
        }
        const std::uint64_t next = pos + size_of(rest);
        record(rest.first(kHeader), rest.subspan(kHeader, need), pos, next, recorder);
        pos = next;
    }
    s.left = pos < size ? static_cast<std::uint32_t>(size - pos) : 0;
    return {Step::ok, pos};
}

void FastcgiDissector::record(Bytes header, Bytes content, std::uint64_t at, std::uint64_t next,
                              Recorder& recorder) {
    const std::uint16_t id = id_of(header), length = length_of(header);
    switch (type_of(header)) {
        case Type::begin_request:
            return begin_request(id, content, at, recorder);
        case Type::params:
            if (id != request_id_ || request_ == kNoMessage) break;
            if (length == 0) {
                end_of_params(recorder);
                if (role_ == kAuthorizer) {
                    recorder.end(request_, next);
                    request_ = kNoMessage;
                }
                return;
            }
            if (body_ != Body::params) return;
            if (text_.size() + content.size() > kMaxParams) {
                recorder.count("fastcgi.params_cut");
                body_ = Body::none;
                return;
            }
            text_.append(as_text(content));
            return;
        case Type::stdin_:
        case Type::data:
            if (id != request_id_ || request_ == kNoMessage) break;
            return stdin_record(
                content,
                type_of(header) == (role_ == kFilter ? Type::data : Type::stdin_) ? length : std::size_t{1},
                next, recorder);
        case Type::abort_request:
            recorder.count("fastcgi.abort");
            if (request_ == kNoMessage || id != request_id_)
                return alone(Direction::to_server, "ABORT_REQUEST", at, next, recorder);
            recorder.end(request_, next);
            request_ = kNoMessage;
            return;
        case Type::get_values:
            return alone(Direction::to_server, "GET_VALUES", at, next, recorder);
        case Type::get_values_result:
            return alone(Direction::to_client, "GET_VALUES_RESULT", at, next, recorder);
        case Type::unknown_type:
            return alone(Direction::to_client, "UNKNOWN_TYPE", at, next, recorder);
        case Type::stdout_:
        case Type::stderr_:
            if (!begin_answer(id, at, recorder)) return;
            if (type_of(header) == Type::stderr_) {
                if (length > 0) recorder.count("fastcgi.stderr");
            } else if (head_open_) {
                head(content, recorder);
            }
            return;
        case Type::end_request:
            if (begin_answer(id, at, recorder)) end_request(content, next, recorder);
            return;
    }
    // A record of a request that is not the last one begun.
    recorder.count("fastcgi.record_of_other_request");
    if (request_ == kNoMessage) recorder.remainder(Direction::to_server, "fastcgi.record_of_other_request");
}

void FastcgiDissector::alone(Direction direction, const char* text, std::uint64_t at, std::uint64_t next,
                             Recorder& recorder) {
    const MessageRef open = direction == Direction::to_server ? request_ : answer_;
    if (open != kNoMessage) return;  // inside of a message: a part of it
    const MessageRef ref = recorder.begin(direction, MessageKind::one_way, at);
    recorder.set_class(ref, protocol, text);
    recorder.end(ref, next);
}

// ---- application to web server --------------------------------------------------------------------------------------

// False when the record is no part of an answer that can be told.
bool FastcgiDissector::begin_answer(std::uint16_t id, std::uint64_t at, Recorder& recorder) {
    if (answer_ != kNoMessage) {
        if (id == answer_id_) return true;
        recorder.count("fastcgi.interleaved_answer");
        return false;
    }
    // Ids are used again only after their END_REQUEST: an answer of another id is not the oldest request's.
    while (recorder.has_request() && recorder.front_tag(id) != id) {
        recorder.count("fastcgi.answer_out_of_order");
        recorder.give_up_request();
    }
    answer_ = recorder.begin(Direction::to_client, MessageKind::response, at);
    answer_id_ = id;
    status_ = -1;
    head_open_ = true;
    return true;
}

// CGI's head: "Status: 404 Not Found", "Location: ...", others; an empty line. Without Status it is 200, or 302.
void FastcgiDissector::head(Bytes content, Recorder& recorder) {
    std::string_view text = as_text(content);
    while (!text.empty()) {
        const std::size_t newline = text.find('\n');
        std::string_view line = text.substr(0, newline);
        text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty() && newline != std::string_view::npos) {
            head_open_ = false;
            break;
        }
        if (starts_folded(line, "status:")) {
            line.remove_prefix(7);
            while (line.starts_with(' ')) line.remove_prefix(1);
            if (line.size() >= 3 && all_digits(line.substr(0, 3)))
                status_ =
                    static_cast<std::int16_t>((line[0] - '0') * 100 + (line[1] - '0') * 10 + (line[2] - '0'));
        } else if (status_ < 0 && starts_folded(line, "location:")) {
            status_ = 302;
        }
    }
    if (head_open_ && content.size() < kMaxHead) return;
    head_open_ = false;
    if (status_ < 0) status_ = 200;
    recorder.set_status(answer_, status_);
    if (status_ >= 500) recorder.add_flags(answer_, message_flag::error);
}

// application status u32, protocol status u8 (0 complete, 1 cannot multiplex, 2 overloaded, 3 unknown role), 3 bytes.
void FastcgiDissector::end_request(Bytes content, std::uint64_t next, Recorder& recorder) {
    if (head_open_ && status_ >= 0) recorder.set_status(answer_, status_);
    if (content[4] != 0) recorder.count("fastcgi.request_refused");
    if (load_be32(content.data()) != 0) recorder.count("fastcgi.application_status");
    if (content[4] != 0 || load_be32(content.data()) != 0) recorder.add_flags(answer_, message_flag::error);
    recorder.end(answer_, next);
    answer_ = kNoMessage;
    head_open_ = false;
}

// ---- losses ---------------------------------------------------------------------------------------------------------

void FastcgiDissector::on_gap(Direction direction, std::uint64_t missing, Recorder& recorder) {
    Side& s = side(direction);
    if (s.lost) return;
    if (s.partial > 0 && s.left + missing <= s.partial) {
        // A record whose length is known; what it was to tell is not.
        const bool to_server = direction == Direction::to_server;
        if (to_server ? request_ != kNoMessage && body_ != Body::none : answer_ != kNoMessage) {
            if (to_server) {
                recorder.count("fastcgi.request_text_lost");
                body_ = Body::none;
            }
            head_open_ = to_server && head_open_;
            s.skip = static_cast<std::uint32_t>(s.partial - s.left - missing);
            s.left = s.partial = 0;
            return recorder.borders_kept();
        }
    }
    s = {};
    s.lost = true;
    recorder.remainder(direction, "fastcgi.resynchronisation");
    if (direction == Direction::to_client) {
        began_since_loss_ = false;
        return;
    }
    body_ = Body::none;
}

// Record borders are unknown. Finds the next one at or behind `pos` and the state to go on with.
bool FastcgiDissector::find_border(Direction direction, Bytes bytes, std::uint64_t& pos, Recorder& recorder) {
    recorder.remainder(direction, "fastcgi.resynchronisation");
    const std::size_t found = find_chain(direction, bytes, pos, false);
    if (found == bytes.size()) return false;
    Side& s = side(direction);
    s.lost = false;
    pos = found;
    if (direction == Direction::to_client && answer_ != kNoMessage &&
        (began_since_loss_ || id_of(bytes.subspan(found)) != answer_id_)) {
        recorder.end(answer_, 0);  // the web server went on: that answer was over
        answer_ = kNoMessage;
    }
    return true;
}

void FastcgiDissector::on_end(Direction direction, Recorder& recorder) {
    if (direction == Direction::to_server) {
        if (request_ != kNoMessage && body_ == Body::params) recorder.count("fastcgi.request_cut");
        return;
    }
    if (answer_ == kNoMessage) return;
    if (head_open_ && status_ >= 0) recorder.set_status(answer_, status_);
    recorder.add_flags(answer_, message_flag::unfinished);  // END_REQUEST is missing
    recorder.end_with_stream(answer_);
    answer_ = kNoMessage;
}

}  // namespace tapscope
