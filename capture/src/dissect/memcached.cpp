#include "dissect/memcached.hpp"

#include <algorithm>

#include "dissect/memcached_wire.hpp"

namespace tapscope {

using namespace memcached;

Probe MemcachedDissector::probe(Bytes bytes, Direction direction) noexcept {
    if (bytes.empty()) return Probe::need_more;
    const std::uint8_t magic = direction == Direction::to_server ? kRequestMagic : kResponseMagic;
    if (bytes[0] == magic) {
        if (bytes.size() < kHeader) return Probe::need_more;
        return find_header(bytes, 0, magic) == 0 ? Probe::yes : Probe::no;
    }
    std::string_view line;
    std::size_t size = 0;
    const bool whole = take_line(bytes, line, size);
    if (direction == Direction::to_client) {
        if (!whole) return Probe::no;
        if (line == "STORED" || line == "NOT_STORED") return Probe::yes;
        std::uint64_t number = 0;
        if (take_word(line) != "VALUE" || !is_key(take_word(line))) return Probe::no;
        return number_of(take_word(line), number) && number_of(take_word(line), number) ? Probe::yes
                                                                                        : Probe::no;
    }
    if (whole) return is_command_line(line) ? Probe::yes : Probe::no;
    if (bytes.size() > kMaxLine) return Probe::no;
    const std::string_view text = as_text(bytes);
    const std::string_view word = text.substr(0, text.find(' '));
    const bool begins = std::any_of(kCommands.begin(), kCommands.end(), [&](const Command& c) {
        return word.size() < text.size() ? c.name == word : c.name.starts_with(word);
    });
    return begins ? Probe::need_more : Probe::no;
}

Parsed MemcachedDissector::parse(Direction direction, Bytes bytes, Recorder& recorder) {
    if (stream_) return {Step::ok, bytes.size()};
    const bool to_server = direction == Direction::to_server;
    if (form_ == Form::unknown) {
        form_ = bytes[0] == kRequestMagic || bytes[0] == kResponseMagic ? Form::binary : Form::text;
        recorder.dissector_pairs();
        step_.yes = !recorder.after_gap(Direction::to_server);  // lost before the protocol was known
    }
    bool& lost = to_server ? lost_client_ : lost_server_;
    if (form_ == Form::binary) {
        const std::uint8_t magic = to_server ? kRequestMagic : kResponseMagic;
        if (lost) {
            recorder.remainder(direction, "memcached.resynchronisation");
            const std::size_t found = find_header(bytes, 0, magic);
            if (found == bytes.size()) return {Step::ok, found};
            lost = false;
            if (found > 0) return {Step::ok, found};
        }
        if (bytes[0] != magic) return {Step::malformed, 0, "memcached.bad_packet"};
        if (bytes.size() < kHeader) return {Step::ok, 0};
        if (!is_header(bytes, magic)) return {Step::malformed, 0, "memcached.bad_packet"};
        return to_server ? binary_request(bytes, recorder) : binary_answer(bytes, recorder);
    }
    if (!to_server && out_of_step(recorder)) return {Step::ok, bytes.size()};
    std::string_view line;
    std::size_t size = 0;
    if (!take_line(bytes, line, size)) {
        if (bytes.size() < kMaxLine && !lost) return {Step::ok, 0};
        return {Step::malformed, 0, "memcached.long_line"};
    }
    if (!to_server) return text_answer(line, size, recorder);
    if (lost) {
        if (!is_command_line(line)) {  // perhaps the rest of a block
            recorder.remainder(direction, "memcached.resynchronisation");
            return {Step::ok, bytes.size()};
        }
        lost = false;
    }
    return text_request(line, size, recorder);
}

void MemcachedDissector::begin(MessageKind kind, std::uint32_t tag, Recorder& recorder) {
    request_ = recorder.begin(Direction::to_server, kind, 0, tag);
    if (kind == MessageKind::request && step_.asked(answer_, recorder)) lost_server_ = false;
}

void MemcachedDissector::end_answer(std::uint64_t next, Recorder& recorder) {
    recorder.end(answer_, next);
    answer_ = kNoMessage;
}

// ---- losses ---------------------------------------------------------------------------------------------------------

// After a loss text answers are passed over until it is known again whose they are.
bool MemcachedDissector::out_of_step(Recorder& recorder) {
    if (step_.yes) return false;
    step_.heard_since = recorder.lost_requests_received(0);
    // They are nobody's, and can be read: those of a connection of which nothing else is seen, or to lost commands.
    if (!lost_server_ && (request_ == kNoMessage || step_.unasked)) return false;
    recorder.remainder(Direction::to_client, "memcached.answers_not_told_apart");
    while (recorder.front_received(0)) recorder.give_up_request();
    return true;
}

void MemcachedDissector::on_gap(Direction direction, std::uint64_t, Recorder& recorder) {
    if (stream_) return recorder.borders_kept();
    if (form_ == Form::binary) {
        (direction == Direction::to_server ? lost_client_ : lost_server_) = true;
        if (direction == Direction::to_client && answer_ != kNoMessage) {
            recorder.add_flags(answer_, message_flag::truncated);
            end_answer(0, recorder);
        }
        return;
    }
    if (direction == Direction::to_client) {
        step_.heard_since = lost_server_ = true;
        step_.unasked = false;
        // Unreadable bytes (no gap): whatever had been asked by then is answered by them, or will not be.
        while (recorder.front_received(0)) recorder.give_up_request();
    } else {
        if (!lost_client_) step_.requests_lost(request_ != kNoMessage && answer_ == kNoMessage, recorder);
        lost_client_ = true;
    }
    step_.yes = false;
    if (answer_ != kNoMessage) recorder.add_flags(answer_, message_flag::truncated);
}

void MemcachedDissector::on_end(Direction direction, Recorder& recorder) {
    if (direction != Direction::to_client || answer_ == kNoMessage) return;
    recorder.add_flags(answer_, message_flag::unfinished);
    end_answer(0, recorder);
}

}  // namespace tapscope
