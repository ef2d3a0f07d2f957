// Replies and pushes, of any depth without a stack.
#include "dissect/redis.hpp"
#include "dissect/redis_wire.hpp"
#include "evidence.hpp"

namespace tapscope {

using namespace redis;

Parsed RedisDissector::reply(Bytes bytes, Recorder& recorder) {
    if (!step_.yes && !lost_server_ && (!asked_ || step_.unasked)) {
        // They are nobody's, and can be read: those of a connection of which nothing else is seen, or to lost commands.
        step_.heard_since = recorder.lost_requests_received(0);
    } else if (!step_.yes) {
        const std::string_view text = as_text(bytes);
        const bool push = text.starts_with('>') || text.starts_with("*3\r\n$7\r\nmessage\r\n");
        if (!push || (!subscribed_ && text[0] != '>')) {
            step_.heard_since = recorder.lost_requests_received(0);
            recorder.remainder(Direction::to_client, "redis.answers_not_told_apart");
            while (recorder.front_received(0)) recorder.give_up_request();
            return {Step::ok, bytes.size()};
        }
        step_.yes = recorder.open_requests() == 0;
        if (reply_ != kNoMessage) recorder.end(reply_, 0);
        reply_ = kNoMessage;
    }
    std::string_view line;
    std::size_t size = 0;
    if (!is_type(static_cast<char>(bytes[0]))) return {Step::malformed, 0, "redis.bad_reply"};
    if (!take_line(bytes, line, size))
        return bytes.size() < kMaxLine ? Parsed{Step::ok, 0} : Parsed{Step::malformed, 0, "redis.long_line"};
    if (reply_ == kNoMessage) return reply_head(bytes, line, size, recorder);
    return element(bytes, line, size, recorder);
}

// The first line of a reply, or of a push; a push is told from a reply to SUBSCRIBE by its first element.
Parsed RedisDissector::reply_head(Bytes bytes, std::string_view line, std::size_t line_size,
                                  Recorder& recorder) {
    const char type = line[0];
    bool push = type == '>';
    confirms_ = last_channel_ = false;
    if (line == "+RESET") subscribed_ = false;
    if (push || (subscribed_ && type == '*')) {
        // "message", "pmessage", "subscribe", "invalidate", ...
        std::string_view head;
        std::size_t size = 0;
        const Bytes rest = bytes.subspan(line_size);
        if (rest.empty()) return {Step::ok, 0};
        std::string_view word;
        if (rest[0] == '$') {
            if (!take_line(rest, head, size))
                return rest.size() < kMaxNumberLine ? Parsed{Step::ok, 0}
                                                    : Parsed{Step::malformed, 0, "redis.bad_reply"};
            std::int64_t length = 0;
            if (number_of(head, length) && length > 0 && length <= 16) {
                const auto n = static_cast<std::size_t>(length);
                if (rest.size() < size + n) return {Step::ok, 0};
                word = as_text(rest.subspan(size, n));
            }
        }
        // Replies may begin with these words, too.
        std::int64_t count = 0;
        number_of(line, count);
        const bool told =
            count == 3 ? word == "message" || word == "smessage" : count == 4 && word == "pmessage";
        confirms_ = count == 3 && word.ends_with("subscribe");
        if (confirms_ && recorder.front_tag(0) == kSubscribe)
            push = false;
        else
            push = push || told || confirms_;
    }
    one_way_ = push;
    reply_ = recorder.begin(Direction::to_client, push ? MessageKind::one_way : MessageKind::response, 0);
    if (!asked_) recorder.add_flags(reply_, message_flag::inferred);  // of a client that is not seen
    results_ = 0;
    elements_ = 1;
    if (push) {
        recorder.set_class(reply_, protocol, "PUSH");
    } else {
        const bool failed = type == '-' || type == '!';
        recorder.set_status(reply_, failed ? 1 : 0);
        if (failed) {
            recorder.add_flags(reply_, message_flag::error);
            ask_stream_ = false;
        }
    }
    return element(bytes, line, line_size, recorder);
}

// One element of the open reply. Aggregates add theirs: no stack is needed to know when the reply is over.
Parsed RedisDissector::element(Bytes bytes, std::string_view line, std::size_t line_size,
                               Recorder& recorder) {
    std::uint64_t next = line_size, more = 0;
    std::int64_t number = 0;
    switch (line[0]) {
        case '$':
        case '!':
        case '=': {
            if (!number_of(line, number) || number < -1 || number > static_cast<std::int64_t>(kMaxBulk))
                return {Step::malformed, 0, "redis.bad_reply"};
            if (number < 0) break;  // null
            const auto length = static_cast<std::uint64_t>(number);
            next += length + 2;
            if (line[0] != '$' || one_way_ || length == 0 || length > kMaxTokenText || results_ >= kMaxTokens)
                break;
            if (bytes.size() < next) return {Step::ok, 0};
            recorder.token(reply_, results_, TokenKind::result, bytes.subspan(line_size, length));
            ++results_;
            break;
        }
        case '*':
        case '~':
        case '>':
        case '%':
        case '|':
            if (!number_of(line, number) || number < -1 || number > static_cast<std::int64_t>(kMaxElements))
                return {Step::malformed, 0, "redis.bad_reply"};
            if (number > 0) more = static_cast<std::uint64_t>(number);
            if (line[0] == '%' || line[0] == '|') more *= 2;
            if (line[0] == '|') ++more;  // an attribute stands in front of the element that it belongs to
            break;
        case ':':
            last_channel_ = confirms_ && number_of(line, number) && number == 0;
            break;
        default:
            break;
    }
    if (elements_ > kMaxElements * 4) return {Step::malformed, 0, "redis.bad_reply"};
    elements_ += more;
    if (--elements_ == 0) end_reply(next, recorder);
    return {Step::ok, next};
}

void RedisDissector::end_reply(std::uint64_t next, Recorder& recorder) {
    recorder.end(reply_, next);
    reply_ = kNoMessage;
    if (last_channel_ && !recorder.has_request()) subscribed_ = false;  // arrays are replies again
    if (!ask_stream_ || recorder.has_request()) return;
    // MONITOR, SYNC and PSYNC are granted: what follows is a stream of commands, or of a snapshot.
    ask_stream_ = false;
    stream_ = true;
    recorder.count("redis.stream");
    for (const Direction d : {Direction::to_server, Direction::to_client})
        recorder.remainder(d, "redis.stream");
}

}  // namespace tapscope
