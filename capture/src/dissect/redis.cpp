#include "dissect/redis.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string>

#include "dissect/key_space.hpp"
#include "dissect/redis_commands.hpp"
#include "evidence.hpp"

namespace tapscope {
namespace {

using namespace redis;

constexpr std::size_t kMaxLine = 64 * 1024;     // PROTO_INLINE_MAX_SIZE of the server
constexpr std::size_t kMaxNumberLine = 32;      // a type, a number, CRLF
constexpr std::uint64_t kMaxBulk = 1ull << 32;  // proto-max-bulk-len is 512 MB unless raised
constexpr std::uint64_t kMaxElements = 1ull << 31;
constexpr std::size_t kMaxName = 32;       // of a command
constexpr std::size_t kMaxTokenText = 64;  // longer values give no token; a key may have kMaxKey
constexpr std::uint32_t kMaxTokens = 16;   // of a command or a reply
constexpr std::uint32_t kSubscribe = 1;    // tag: answered by a push

bool equals_folded(std::string_view text, std::string_view lower) noexcept {
    return text.size() == lower.size() && std::equal(text.begin(), text.end(), lower.begin(),
                                                     [](char a, char b) { return (a | 0x20) == b; });
}

bool is_name_character(char c) noexcept {
    return is_alpha(c) || is_digit(c) || c == '.' || c == '_' || c == '-';
}

// A command name in capitals, or nothing when it cannot be one.
std::string_view command_name(std::string_view text, std::array<char, kMaxName>& buffer) noexcept {
    if (text.empty() || text.size() > kMaxName || !is_alpha(text[0])) return {};
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (!is_name_character(text[i])) return {};
        buffer[i] = text[i] >= 'a' && text[i] <= 'z' ? static_cast<char>(text[i] - 32) : text[i];
    }
    return {buffer.data(), text.size()};
}

// The line at the start of `bytes`, without its CRLF; `size` counts it. False when its end is not there.
bool take_line(Bytes bytes, std::string_view& line, std::size_t& size) noexcept {
    const void* found = std::memchr(bytes.data(), '\n', std::min(bytes.size(), kMaxLine));
    if (found == nullptr) return false;
    size = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - bytes.data()) + 1;
    line = as_text(bytes.first(size - 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return true;
}

// The number behind the type byte of a line; false when there is none.
bool number_of(std::string_view line, std::int64_t& number) noexcept {
    if (line.size() < 2) return false;
    const auto [end, error] = std::from_chars(line.data() + 1, line.data() + line.size(), number);
    return error == std::errc{} && end == line.data() + line.size();
}

bool is_type(char c) noexcept { return c != 0 && std::strchr("+-:_#,($!=*~%>|", c) != nullptr; }

// Does a command in the array form start here?
Probe starts_command(Bytes bytes) noexcept {
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
        in_step_ = !recorder.after_gap(Direction::to_server);  // lost before the protocol was known
    }
    return direction == Direction::to_server ? request(bytes, recorder) : reply(bytes, recorder);
}

// ---- commands -------------------------------------------------------------------------------------------------------

Parsed RedisDissector::request(Bytes bytes, Recorder& recorder) {
    if (lost_client_) {
        if (starts_command(bytes) != Probe::yes) {
            recorder.remainder(Direction::to_server, "redis.resynchronisation");
            return {Step::ok, bytes.size()};
        }
        lost_client_ = false;
    }
    if (request_ != kNoMessage) return argument(bytes, recorder);
    if (bytes[0] == '*') return array_head(bytes, recorder);
    return inline_command(bytes, recorder);
}

// The count and the name, which decide what the message is.
Parsed RedisDissector::array_head(Bytes bytes, Recorder& recorder) {
    std::string_view line;
    std::size_t head = 0, size = 0;
    std::int64_t count = 0, length = 0;
    const auto wait = [&](Bytes rest, std::size_t most) {
        return rest.size() < most ? Parsed{Step::ok, 0} : Parsed{Step::malformed, 0, "redis.bad_command"};
    };
    if (!take_line(bytes, line, head)) return wait(bytes, kMaxNumberLine);
    if (!number_of(line, count) || count > static_cast<std::int64_t>(kMaxElements))
        return {Step::malformed, 0, "redis.bad_command"};
    if (count <= 0) {  // an empty command: the server ignores it
        recorder.remainder(Direction::to_server, "redis.empty_command");
        return {Step::ok, head};
    }
    const Bytes rest = bytes.subspan(head);
    if (rest.empty()) return {Step::ok, 0};
    if (rest[0] != '$') return {Step::malformed, 0, "redis.bad_command"};
    if (!take_line(rest, line, size)) return wait(rest, kMaxNumberLine);
    if (!number_of(line, length) || length < 1 || length > static_cast<std::int64_t>(kMaxName))
        return {Step::malformed, 0, "redis.bad_command"};
    const auto name_size = static_cast<std::size_t>(length);
    if (rest.size() < size + name_size + 2) return {Step::ok, 0};
    std::array<char, kMaxName> buffer;
    const std::string_view name = command_name(as_text(rest.subspan(size, name_size)), buffer);
    if (name.empty()) return {Step::malformed, 0, "redis.bad_command"};
    // The class needs the first argument, too.
    std::string_view subject;
    const std::uint64_t next = head + size + name_size + 2;
    if (count > 1) {
        const Bytes first = bytes.subspan(next);
        if (first.empty()) return {Step::ok, 0};
        if (first[0] != '$') return {Step::malformed, 0, "redis.bad_argument"};
        if (!take_line(first, line, size)) return wait(first, kMaxNumberLine);
        if (!number_of(line, length) || length < 0) return {Step::malformed, 0, "redis.bad_argument"};
        const auto wanted = static_cast<std::uint64_t>(length);
        if (wanted <= kMaxKey) {
            if (first.size() < size + wanted) return {Step::ok, 0};
            subject = as_text(first.subspan(size, wanted));
        }
    }
    if (name == "CLIENT" && count == 3 && equals_folded(subject, "reply")) {
        // ON, OFF or SKIP: the last two are not answered themselves.
        const Bytes last =
            bytes.subspan(std::min<std::size_t>(bytes.size(), next + size + subject.size() + 2));
        constexpr std::size_t kMost = 4 + 4 + 2;
        std::string_view word;
        if (last.empty() || !take_line(last, line, size) || last.size() < size + 2) return wait(last, kMost);
        word = as_text(last.subspan(size, 2));
        const bool on = equals_folded(word, "on");
        if (on && silent_ == 0 && recorder.has_request()) {
            // The command that switched replies off was lost: the requests since then get none.
            lose(recorder);
            heard_since_ = false;
        }
        silent_ = on ? 0 : equals_folded(word, "of") ? 2 : equals_folded(word, "sk") ? 3 : 0;
        if (silent_ == 2) recorder.count("redis.replies_switched_off");
    }
    begin_command(name, 0, recorder);
    class_of_command(name, subject, recorder);
    arguments_ = static_cast<std::uint32_t>(count - 1);
    if (arguments_ == 0) return end_request(next, recorder);
    return {Step::ok, next};
}

void RedisDissector::begin_command(std::string_view name, std::uint64_t at, Recorder& recorder) {
    const auto found = std::lower_bound(kCommands.begin() + 1, kCommands.end(), name,
                                        [](const Command& a, std::string_view b) { return a.name < b; });
    command_ = found != kCommands.end() && found->name == name
                   ? static_cast<std::uint16_t>(found - kCommands.begin())
                   : std::uint16_t{0};
    const std::uint8_t traits = kCommands[command_].traits;
    const bool silent = silent_ != 0;
    if (silent_ == 1) silent_ = 0;
    if (silent_ == 3) silent_ = 1;  // this is CLIENT REPLY SKIP; the next one is not answered, either
    const std::uint32_t tag = (traits & subscribes) != 0 ? kSubscribe : 0;
    request_ =
        recorder.begin(Direction::to_server, silent ? MessageKind::one_way : MessageKind::request, at, tag);
    if ((traits & streams) != 0) ask_stream_ = true;
    if ((traits & subscribes) != 0) subscribed_ = true;
    index_ = 1;
    if (in_step_ || silent || !heard_since_ || recorder.open_requests() != 1) return;
    if (!recorder.front_asked_behind_loss()) return;  // its answer may be among what was lost
    in_step_ = true;
    if (reply_ != kNoMessage) recorder.end(reply_, 0);  // what was lost took its end
    reply_ = kNoMessage;
    recorder.answers_in_step();
}

// The class: command, subcommand, and what stands in front of the first ':' of the key.
void RedisDissector::class_of_command(std::string_view name, std::string_view subject, Recorder& recorder) {
    thread_local std::string text;
    const Command& command = kCommands[command_];
    text.assign(name);
    if ((command.traits & container) != 0) {
        std::array<char, kMaxName> buffer;
        const std::string_view sub = command_name(subject, buffer);
        if (!sub.empty()) text.append(" ").append(sub);
    } else if ((command.traits & keyed) != 0) {
        const std::string_view prefix = key_space(subject);
        if (!prefix.empty()) text.append(" ").append(prefix).append(":*");
    }
    recorder.set_class(request_, protocol, text);
}

// $LENGTH CRLF bytes CRLF
Parsed RedisDissector::argument(Bytes bytes, Recorder& recorder) {
    std::string_view line;
    std::size_t size = 0;
    std::int64_t number = 0;
    if (bytes[0] != '$') return {Step::malformed, 0, "redis.bad_argument"};
    if (!take_line(bytes, line, size))
        return bytes.size() < kMaxNumberLine ? Parsed{Step::ok, 0}
                                             : Parsed{Step::malformed, 0, "redis.bad_argument"};
    if (!number_of(line, number) || number < 0 || static_cast<std::uint64_t>(number) > kMaxBulk)
        return {Step::malformed, 0, "redis.bad_argument"};
    const auto length = static_cast<std::uint64_t>(number);
    const std::uint64_t next = size + length + 2;
    const std::size_t most = index_ == 1 ? kMaxKey : kMaxTokenText;
    if (length <= most && index_ <= kMaxTokens) {
        if (bytes.size() < next) return {Step::ok, 0};
        take_argument(as_text(bytes.subspan(size, length)), recorder);
    }
    ++index_;
    if (--arguments_ == 0) return end_request(next, recorder);
    return {Step::ok, next};
}

void RedisDissector::take_argument(std::string_view text, Recorder& recorder) {
    const std::uint8_t traits = kCommands[command_].traits;
    if (text.empty() || (traits & secret) != 0 || ((traits & (container | script)) != 0 && index_ == 1))
        return;
    if (text.size() > kMaxTokenText && (index_ > 1 || (traits & keyed) == 0)) return;
    if (index_ == 1 && (traits & keyed) != 0) return key_evidence(recorder, request_, 0, text);
    recorder.token(request_, index_ - 1, all_digits(text) ? TokenKind::number : TokenKind::text,
                   as_bytes(text));
}

Parsed RedisDissector::end_request(std::uint64_t next, Recorder& recorder) {
    recorder.end(request_, next);
    request_ = kNoMessage;
    return {Step::ok, next};
}

Parsed RedisDissector::inline_command(Bytes bytes, Recorder& recorder) {
    std::string_view line;
    std::size_t size = 0;
    if (!take_line(bytes, line, size))
        return bytes.size() < kMaxLine ? Parsed{Step::ok, 0} : Parsed{Step::malformed, 0, "redis.long_line"};
    std::array<char, kMaxName> buffer;
    const auto word = [&line] {
        while (line.starts_with(' ')) line.remove_prefix(1);
        const std::string_view found = line.substr(0, line.find(' '));
        line.remove_prefix(found.size());
        return found;
    };
    const std::string_view first = word();
    if (first.empty()) {
        recorder.remainder(Direction::to_server, "redis.empty_command");
        return {Step::ok, size};
    }
    const std::string_view name = command_name(first, buffer);
    if (name.empty()) return {Step::malformed, 0, "redis.bad_inline_command"};
    begin_command(name, 0, recorder);
    std::string_view text = word();
    class_of_command(name, text.substr(0, kMaxKey), recorder);
    for (; !text.empty() && index_ <= kMaxTokens; text = word()) {
        take_argument(text.substr(0, kMaxKey), recorder);
        ++index_;
    }
    return end_request(size, recorder);
}

// ---- replies --------------------------------------------------------------------------------------------------------

Parsed RedisDissector::reply(Bytes bytes, Recorder& recorder) {
    if (!in_step_) {
        const std::string_view text = as_text(bytes);
        const bool push = text.starts_with('>') || text.starts_with("*3\r\n$7\r\nmessage\r\n");
        if (!push || (!subscribed_ && text[0] != '>')) {
            heard_since_ = recorder.lost_requests_received(0);
            recorder.remainder(Direction::to_client, "redis.answers_not_told_apart");
            while (recorder.front_received(0)) recorder.give_up_request();
            return {Step::ok, bytes.size()};
        }
        in_step_ = recorder.open_requests() == 0;
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
        const bool told = word == "message" || word == "pmessage" || word == "smessage";
        const bool confirms = word.ends_with("subscribe");
        if (confirms && recorder.front_tag(0) == kSubscribe)
            push = false;
        else
            push = push || told || confirms;
    }
    one_way_ = push;
    reply_ = recorder.begin(Direction::to_client, push ? MessageKind::one_way : MessageKind::response, 0);
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
    if (!ask_stream_ || recorder.has_request()) return;
    // MONITOR, SYNC and PSYNC are granted: what follows is a stream of commands, or of a snapshot.
    ask_stream_ = false;
    stream_ = true;
    recorder.count("redis.stream");
    for (const Direction d : {Direction::to_server, Direction::to_client})
        recorder.remainder(d, "redis.stream");
}

// ---- losses ---------------------------------------------------------------------------------------------------------

void RedisDissector::lose(Recorder& recorder) {
    in_step_ = false;
    if (reply_ == kNoMessage) return;
    recorder.add_flags(reply_, message_flag::truncated);
}

void RedisDissector::on_gap(Direction direction, std::uint64_t, Recorder& recorder) {
    if (stream_) return recorder.borders_kept();
    if (direction == Direction::to_client) {
        heard_since_ = true;
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
        heard_since_ = false;
        lose(recorder);
    }
    lost_client_ = true;
}

void RedisDissector::on_end(Direction direction, Recorder& recorder) {
    if (direction == Direction::to_client) {
        if (reply_ != kNoMessage && !in_step_) recorder.end(reply_, 0);
        reply_ = kNoMessage;
        return;
    }
    if (request_ != kNoMessage) recorder.count("redis.request_cut");
}

}  // namespace tapscope
