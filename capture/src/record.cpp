#include "record.hpp"

#include <algorithm>

namespace tapscope {

std::int64_t Recorder::time_of_byte(std::uint64_t offset) const noexcept {
    const auto& marks = window_.marks;
    if (marks.empty() || offset >= marks.back().end) return window_.time_ns;
    return std::upper_bound(marks.begin(), marks.end(), offset,
                            [](std::uint64_t value, const Mark& mark) { return value < mark.end; })
        ->time_ns;
}

std::uint64_t Recorder::ack_of_byte(std::uint64_t offset) const noexcept {
    const auto& marks = window_.marks;
    if (marks.empty() || offset >= marks.back().end) return window_.ack;
    return std::upper_bound(marks.begin(), marks.end(), offset,
                            [](std::uint64_t value, const Mark& mark) { return value < mark.end; })
        ->ack;
}

MessageRef Recorder::begin(Direction direction, MessageKind kind, std::uint64_t at, std::uint32_t tag) {
    MessageSide& side = exchange_->at(direction);
    std::uint64_t offset = window_.base + at;
    if (!side.ended) [[unlikely]]
        close_current(side, offset);
    if (side.due) [[unlikely]] {  // the end was announced too far ahead: it is here
        messages.wire_bytes[side.current] = offset - side.current_begin;
        side.due = false;
        side.covered = offset;
    }
    offset = std::max(offset, side.covered);
    if (offset > side.covered) {
        outside_bytes(side, offset);
        side.remainder = nullptr;
    }

    const std::size_t row = messages.append();
    messages.conn[row] = exchange_->conn;
    messages.direction[row] = static_cast<std::uint8_t>(direction);
    messages.protocol[row] = static_cast<std::uint8_t>(exchange_->protocol);
    messages.kind[row] = static_cast<std::uint8_t>(kind);
    messages.begin_ns[row] = time_of_byte(offset);
    messages.end_ns[row] = -1;
    messages.wire_bytes[row] = 0;
    messages.missing_bytes[row] = 0;
    messages.class_id[row] = kNoClass;
    messages.status[row] = -1;
    messages.tcp_seq[row] = side.base_seq + static_cast<std::uint32_t>(offset);
    messages.flags[row] = side.after_gap ? message_flag::resynchronised : 0;
    messages.request[row] = -1;
    const bool first_after_loss = side.after_gap;
    side.after_gap = false;
    side.before = side.current;
    side.before_begin = side.current_begin;
    side.current = row;
    side.current_begin = offset;
    side.ended = false;
    if (kind == MessageKind::request)
        open_request(row, offset, tag);
    else if (kind != MessageKind::one_way) {
        if (first_after_loss) close_answered(offset, ack_of_byte(offset));
        pair(row, kind, offset);
        if (first_after_loss && kind == MessageKind::response)
            exchange_->lost_begin = exchange_->lost_end = 0;
    }
    return row;
}

void Recorder::end(MessageRef ref, std::uint64_t at) {
    const auto direction = static_cast<Direction>(messages.direction[ref]);
    MessageSide& side = exchange_->at(direction);
    if (side.current != ref) [[unlikely]] {
        counters.add("recorder.end_of_past_message");
        return;
    }
    const bool here = direction == window_.direction;
    const std::uint64_t offset = std::max(here ? window_.base + at : side.delivered, side.current_begin);
    side.due = false;
    if (!here) {
        messages.end_ns[ref] = side.last_ns;
    } else if (offset > window_.end) {
        side.due = true;
    } else if (offset <= window_.first) {
        messages.end_ns[ref] = window_.before_ns;
    } else {
        messages.end_ns[ref] = time_of_byte(offset - 1);
    }
    if (offset > side.covered && side.missing_ahead > 0) [[unlikely]] {
        // The end moves on over bytes that were lost behind the message: they are in it after all.
        messages.missing_bytes[ref] += side.missing_ahead;
        messages.flags[ref] |= message_flag::truncated;
        side.missing_outside -= side.missing_ahead;
        side.missing_ahead = 0;
    }
    side.ended = true;
    side.current_end = offset;
    side.covered = offset;
    messages.wire_bytes[ref] = offset - side.current_begin;
    if (messages.kind[ref] != static_cast<std::uint8_t>(MessageKind::response)) return;
    exchange_->mean_answer = exchange_->mean_answer == 0
                                 ? messages.wire_bytes[ref]
                                 : (exchange_->mean_answer * 7 + messages.wire_bytes[ref]) / 8;
    RequestQueue& open = exchange_->requests;
    if (!open.empty() && static_cast<std::int64_t>(open.front().row) == messages.request[ref]) open.pop();
}

void Recorder::end_with_stream(MessageRef ref) {
    end(ref, 0);
    if (exchange_->at(static_cast<Direction>(messages.direction[ref])).current == ref)
        messages.end_ns[ref] = window_.time_ns;
}

void Recorder::close_current(MessageSide& side, std::uint64_t offset) noexcept {
    const MessageRef row = side.current;
    messages.flags[row] |= message_flag::unfinished;
    messages.wire_bytes[row] = offset - side.current_begin;
    messages.end_ns[row] = side.last_ns;
    side.ended = true;
    side.current_end = side.covered = offset;
    RequestQueue& open = exchange_->requests;
    if (messages.kind[row] == static_cast<std::uint8_t>(MessageKind::response) && !open.empty() &&
        static_cast<std::int64_t>(open.front().row) == messages.request[row])
        open.pop();
}

void Recorder::outside_bytes(MessageSide& side, std::uint64_t to) {
    const std::uint64_t bytes = to - side.covered;
    side.outside += bytes;
    const std::uint64_t seen = bytes - std::min(bytes, side.missing_ahead);
    side.missing_ahead = 0;
    side.covered = to;
    if (seen > 0)
        remainders.add(side.remainder != nullptr ? side.remainder : "between_messages", seen, Unit::bytes);
}

void Recorder::gap(Direction direction, std::uint64_t begin, std::uint64_t end, bool borders_lost) {
    MessageSide& side = exchange_->at(direction);
    std::uint64_t inside = 0;
    if (side.current != kNoMessage) {
        const std::uint64_t message_end = side.ended ? side.current_end : end;
        const std::uint64_t from = std::max(begin, side.current_begin);
        if (message_end > from) inside = std::min(message_end, end) - std::min(from, end);
    }
    if (inside > 0) {
        messages.missing_bytes[side.current] += inside;
        messages.flags[side.current] |= message_flag::truncated;
    }
    side.missing_outside += end - begin - inside;
    side.missing_ahead += end - begin - inside;
    side.delivered = end;
    if (side.due && end >= side.current_end) {
        messages.end_ns[side.current] = side.last_ns;
        side.due = false;
    }
    if (!borders_lost) return;
    side.after_gap = true;
    if (direction == Direction::to_client) {
        // The loss took the end of a message whose start was read, or only whole messages.
        exchange_->lost_inside =
            inside > 0 || (side.current != kNoMessage && side.current_end == begin &&
                           (messages.flags[side.current] & message_flag::truncated) != 0);
        exchange_->lost_begin = begin;
        exchange_->lost_end = end;
    } else {
        exchange_->request_lost_begin = begin;
    }
}

void Recorder::retransmitted(Direction direction, std::uint64_t begin, std::uint64_t end,
                             std::int64_t time_ns) noexcept {
    MessageSide& side = exchange_->at(direction);
    if (side.current == kNoMessage) return;
    // Packets may stand in the file in another order than they were stamped: the earliest copy gives the time.
    if (begin <= side.current_begin && end > side.current_begin)
        messages.begin_ns[side.current] = std::min(messages.begin_ns[side.current], time_ns);
    if (side.ended && !side.due && begin < side.current_end && end >= side.current_end)
        messages.end_ns[side.current] = std::min(messages.end_ns[side.current], time_ns);
    if (end > side.current_begin && (!side.ended || begin < side.current_end))
        messages.flags[side.current] |= message_flag::retransmitted;
    if (begin < side.current_begin && side.before != kNoMessage && end > side.before_begin)
        messages.flags[side.before] |= message_flag::retransmitted;
}

void Recorder::stream_ended(Direction direction, std::uint64_t end) {
    MessageSide& side = exchange_->at(direction);
    if (!side.ended) close_current(side, end);
    if (side.due) {  // cut inside a part that was skipped by counting
        messages.flags[side.current] |= message_flag::unfinished;
        messages.wire_bytes[side.current] = end - side.current_begin;
        messages.end_ns[side.current] = side.last_ns;
        side.due = false;
        side.current_end = side.covered = end;
    }
    if (end > side.covered) outside_bytes(side, end);
    if (direction == Direction::to_client) close_unanswered();
}

void Recorder::set_class(MessageRef ref, Protocol protocol, std::string_view text) {
    const std::int32_t id = classes.id(protocol, text);
    messages.class_id[ref] = id;
    if (keep_text_ && example_of_ == ref) {
        example_of_ = kNoMessage;
        keep_example(ref, example_);
    }
}

void Recorder::keep_example(MessageRef ref, std::string_view text) {
    if (messages.class_id[ref] == kNoClass) {
        example_of_ = ref;
        example_ = text;
        return;
    }
    auto& entry = classes.entries()[static_cast<std::size_t>(messages.class_id[ref])];
    if (entry.example.empty()) entry.example = text;
}

void Recorder::append_evidence(MessageRef ref, std::uint32_t slot, std::uint8_t kind, std::uint64_t hash) {
    const std::size_t row = evidence.append();
    evidence.message[row] = static_cast<std::int64_t>(ref);
    evidence.slot[row] = slot;
    evidence.kind[row] = kind;
    evidence.hash[row] = hash;
}

void Recorder::token(MessageRef ref, std::uint32_t slot, TokenKind kind, Bytes value) {
    token(ref, slot, kind, value,
          value.size() >= 16 && kind != TokenKind::statement && looks_like_id(as_text(value)));
}

void Recorder::token(MessageRef ref, std::uint32_t slot, TokenKind kind, Bytes value, bool is_id) {
    append_evidence(ref, slot,
                    static_cast<std::uint8_t>(static_cast<unsigned>(kind) | (is_id ? id_like : 0u)),
                    siphash13(key_, value));
    if (keep_text_ && (kind == TokenKind::uri || kind == TokenKind::statement)) [[unlikely]]
        keep_example(ref, as_text(value));
}

void Recorder::endpoint_token(MessageRef ref) {
    if (exchange_->endpoint_known)
        append_evidence(ref, 0, static_cast<std::uint8_t>(TokenKind::endpoint), exchange_->endpoint_hash);
}

}  // namespace tapscope
