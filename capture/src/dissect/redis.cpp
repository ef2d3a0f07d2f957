#include "dissect/redis.hpp"

#include <algorithm>

#include "dissect/redis_wire.hpp"

namespace tapscope {

using namespace redis;

Probe redis::starts_command(Bytes bytes) noexcept {
    std::string_view line;
    std::size_t size = 0;
    if (bytes[0] != '*') return Probe::no;
    if (!take_line(bytes.first(std::min(bytes.size(), kMaxNumberLine)), line, size))
        return bytes.size() < kMaxNumberLine &&
                       std::all_of(
                           bytes.begin() + 1, bytes.end(),
                           [](std::uint8_t c) { return is_digit(static_cast<char>(c)) || c == '\r'; })
                   ? Probe::need_more
                   : Probe::no;
    std::int64_t count = 0;
    if (!number_of(line, count) || count < 1 || count > (1 << 20)) return Probe::no;
    const Bytes rest = bytes.subspan(size);
    if (rest.empty()) return Probe::need_more;
    if (rest[0] != '$') return Probe::no;
    if (!take_line(rest.first(std::min(rest.size(), kMaxNumberLine)), line, size))
        return rest.size() < kMaxNumberLine ? Probe::need_more : Probe::no;
    if (!number_of(line, count) || count < 1 || count > static_cast<std::int64_t>(kMaxName)) return Probe::no;
    const Bytes name = rest.subspan(size);
    for (std::size_t i = 0; i < name.size() && i < static_cast<std::size_t>(count); ++i)
        if (!is_name_character(static_cast<char>(name[i]))) return Probe::no;
    return name.size() < static_cast<std::size_t>(count) ? Probe::need_more : Probe::yes;
}

namespace {

// Is this a reply that little else looks like? Lines such as "+OK" are other protocols', too.
bool starts_reply(Bytes bytes) noexcept {
    std::string_view line;
    std::size_t size = 0;
    const char type = static_cast<char>(bytes[0]);
    if (type != '$' && type != '*' && type != '%' && type != '>' && type != '+') return false;
    if (!take_line(bytes.first(std::min(bytes.size(), kMaxNumberLine)), line, size)) return false;
    if (line == "+PONG" || line == "+QUEUED") return true;
    std::int64_t number = 0;
    if (type == '+' || !number_of(line, number) || number < 0) return false;
    const Bytes rest = bytes.subspan(size);
    if (type == '$') {
        const auto end = static_cast<std::uint64_t>(number);
        if (rest.size() < 2 || end > kMaxBulk) return false;
        return rest.size() >= end + 2 ? rest[end] == '\r' && rest[end + 1] == '\n' : end > rest.size();
    }
    return number > 0 && !rest.empty() && is_type(static_cast<char>(rest[0]));
}

}  // namespace

Probe RedisDissector::probe(Bytes bytes, Direction direction) noexcept {
    if (bytes.empty()) return Probe::need_more;
    if (direction == Direction::to_client) return starts_reply(bytes) ? Probe::yes : Probe::no;
    if (as_text(bytes).starts_with("PING\r\n")) return Probe::yes;
    return starts_command(bytes);
}

Parsed RedisDissector::parse(Direction direction, Bytes bytes, Recorder& recorder) {
    if (stream_) return {Step::ok, bytes.size()};
    if (fresh_) {
        fresh_ = false;
        recorder.dissector_pairs();
        step_.yes = !recorder.after_gap(Direction::to_server);  // lost before the protocol was known
    }
    return direction == Direction::to_server ? request(bytes, recorder) : reply(bytes, recorder);
}

// ---- losses ---------------------------------------------------------------------------------------------------------

void RedisDissector::lose(Recorder& recorder) {
    step_.yes = false;
    if (reply_ == kNoMessage || (!asked_ && !lost_server_)) return;
    recorder.add_flags(reply_, message_flag::truncated);
}

void RedisDissector::on_gap(Direction direction, std::uint64_t, Recorder& recorder) {
    if (stream_) return recorder.borders_kept();
    if (direction == Direction::to_client) {
        step_.heard_since = lost_server_ = true;
        step_.unasked = false;
        // Unreadable bytes (no gap): whatever had been asked by then is answered by them, or will not be.
        while (recorder.front_received(0)) recorder.give_up_request();
        return lose(recorder);
    }
    if (request_ != kNoMessage) {
        recorder.add_flags(request_, message_flag::truncated);
        recorder.end(request_, 0);
        request_ = kNoMessage;
    }
    if (!lost_client_) {
        step_.requests_lost(asked_ && reply_ == kNoMessage, recorder);
        lose(recorder);
    }
    lost_client_ = true;
}

void RedisDissector::on_end(Direction direction, Recorder& recorder) {
    if (direction == Direction::to_client) {
        if (reply_ != kNoMessage && !step_.yes) recorder.end(reply_, 0);
        reply_ = kNoMessage;
        return;
    }
    if (request_ != kNoMessage) recorder.count("redis.request_cut");
}

}  // namespace tapscope
