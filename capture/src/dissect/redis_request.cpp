// Commands: their class, keys and other arguments.
#include <algorithm>
#include <array>
#include <string>

#include "dissect/key_space.hpp"
#include "dissect/redis.hpp"
#include "dissect/redis_commands.hpp"
#include "dissect/redis_wire.hpp"
#include "evidence.hpp"

namespace tapscope {

using namespace redis;

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
            step_.heard_since = false;
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
    // Was a stream granted, and is this no command but a sign of life of who reads it?
    if (ask_stream_) recorder.add_flags(request_, message_flag::inferred);
    if ((traits & streams) != 0) ask_stream_ = true;
    if ((traits & subscribes) != 0) subscribed_ = true;
    if ((traits & sets_up) != 0) recorder.add_flags(request_, message_flag::setup);
    index_ = 1;
    asked_ = true;
    if (!silent && step_.asked(reply_, recorder)) lost_server_ = false;
}

// The class: command, subcommand, and what stands in front of the first ':' of the key.
void RedisDissector::class_of_command(std::string_view name, std::string_view subject, Recorder& recorder) {
    std::string& text = recorder.scratch.class_text;
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
    // Further keys (MGET, DEL, RENAME) are told by their name space.
    if ((traits & keyed) != 0 && (index_ == 1 || !key_space(text).empty()))
        return key_evidence(recorder, request_, index_ - 1, text);
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

}  // namespace tapscope
