#include "record.hpp"

#include <algorithm>
#include <utility>

namespace tapscope {

// The segment of a byte that came before the newest one.
const Mark& Recorder::mark_of(std::uint64_t offset) const noexcept {
    return *std::upper_bound(window_.marks.begin(), window_.marks.end(), offset,
                             [](std::uint64_t value, const Mark& mark) { return value < mark.end; });
}

// Makes way at `offset` for what comes next: the current message ends here at the latest.
void Recorder::leave_current(MessageSide& side, std::uint64_t offset) {
    if (!side.ended) close_current(side, offset);
    if (side.due) {  // the end was announced too far ahead: it is here
        if (offset >= side.current_end)
            write(messages.end_ns, MessageColumn::end_ns, side.current, side.last_ns);
        write(messages.wire_bytes, MessageColumn::wire_bytes, side.current,
              side.current_before + offset - side.current_begin);
        side.due = false;
        side.covered = offset;
    }
}

MessageRef Recorder::begin(Direction direction, MessageKind kind, std::uint64_t at, std::uint32_t tag) {
    MessageSide& side = exchange_->at(direction);
    std::uint64_t offset = window_.base + at;
    if (!side.ended || side.due) [[unlikely]]
        leave_current(side, offset);
    offset = std::max(offset, side.covered);
    if (offset > side.covered) {
        outside_bytes(side, offset);
        side.remainder = nullptr;
    }

    const bool first_after_loss = side.after_gap || side.loss_unnoted;
    // Only requests and responses count where it is asked which of them may be missing.
    side.loss_unnoted = first_after_loss && kind != MessageKind::request && kind != MessageKind::response;
    const std::size_t row = append_row(side, direction, kind, offset);
    const MessageRef ref = first_message + row;
    side.before = side.current;
    side.before_begin = side.current_begin;
    side.current = ref;
    side.current_begin = offset;
    side.current_begin_ns = messages.begin_ns[row];
    side.current_before = 0;
    side.current_kind = kind;
    side.current_answers = -1;
    side.current_truncated = false;
    side.ended = false;
    if (kind == MessageKind::request)
        open_request(ref, offset, tag, first_after_loss);
    else if (kind != MessageKind::one_way) {
        if (first_after_loss) close_before(offset, ack_of_byte(offset));
        side.current_answers = messages.request[row] = answered(ref, kind, offset, first_after_loss);
        if (first_after_loss && kind == MessageKind::response)
            exchange_->lost_begin = exchange_->lost_end = 0;
    }
    return ref;
}

void Recorder::end(MessageRef ref, std::uint64_t at) {
    const bool here = exchange_->at(window_.direction).current == ref;
    MessageSide& side = exchange_->at(here ? window_.direction : opposite(window_.direction));
    if (side.current != ref) [[unlikely]] {
        counters.add("recorder.end_of_past_message");
        return;
    }
    const std::uint64_t offset = std::max(here ? window_.base + at : side.delivered, side.current_begin);
    side.due = false;
    if (!here) {
        write(messages.end_ns, MessageColumn::end_ns, ref, side.last_ns);
    } else if (offset > window_.end) {
        side.due = true;
    } else {
        write(messages.end_ns, MessageColumn::end_ns, ref,
              offset <= window_.first ? window_.before_ns : time_of_byte(offset - 1));
    }
    if (offset > side.covered && side.missing_ahead > 0) [[unlikely]] {
        // The end moves on over bytes that were lost behind the message: they are in it after all.
        add_missing(side, side.missing_ahead);
        side.missing_outside -= side.missing_ahead;
        side.missing_ahead = 0;
    }
    side.ended = true;
    side.current_end = offset;
    side.covered = offset;
    const std::uint64_t size = offset - side.current_begin;
    write(messages.wire_bytes, MessageColumn::wire_bytes, ref, size);
    if (side.current_kind != MessageKind::response) return;
    exchange_->mean_answer = exchange_->mean_answer == 0 ? size : (exchange_->mean_answer * 7 + size) / 8;
    take_answered(side);
}

// The current message, a response, was the last one to its request.
void Recorder::take_answered(const MessageSide& side) noexcept {
    RequestQueue& open = exchange_->requests;
    if (!open.empty() && static_cast<std::int64_t>(open.front().row) == side.current_answers) open.pop();
}

void Recorder::end_with_stream(MessageRef ref) {
    end(ref, 0);
    for (const MessageSide& side : exchange_->side)
        if (side.current == ref) write(messages.end_ns, MessageColumn::end_ns, ref, window_.time_ns);
}

void Recorder::close_current(MessageSide& side, std::uint64_t offset) {
    add_flags(side.current, message_flag::unfinished);
    write(messages.wire_bytes, MessageColumn::wire_bytes, side.current, offset - side.current_begin);
    write(messages.end_ns, MessageColumn::end_ns, side.current, side.last_ns);
    side.ended = true;
    side.current_end = side.covered = offset;
    if (side.current_kind == MessageKind::response) take_answered(side);
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

// `bytes` of the current message were never seen.
void Recorder::add_missing(MessageSide& side, std::uint64_t bytes) {
    const std::size_t row = side.current - first_message;
    if (row < messages.size) [[likely]]
        messages.missing_bytes[row] += bytes;
    else
        amend(side.current, MessageColumn::missing_bytes, Change::add, static_cast<std::int64_t>(bytes));
    add_flags(side.current, message_flag::truncated);
    side.current_truncated = true;
}

void Recorder::carried(Direction direction, std::uint64_t at, std::uint64_t inside) {
    MessageSide& side = exchange_->at(direction);
    const std::uint64_t to = std::max(window_.base + at, side.covered);
    outside_bytes(side, std::max(to - inside, side.covered));
    side.covered = to;
}

void Recorder::gap(Direction direction, std::uint64_t begin, std::uint64_t end, bool borders_lost) {
    MessageSide& side = exchange_->at(direction);
    std::uint64_t inside = 0;
    if (side.current != kNoMessage) {
        const std::uint64_t message_end = side.ended ? side.current_end : end;
        const std::uint64_t from = std::max(begin, side.current_begin);
        if (message_end > from) inside = std::min(message_end, end) - std::min(from, end);
    }
    if (inside > 0) add_missing(side, inside);
    side.missing_outside += end - begin - inside;
    side.missing_ahead += end - begin - inside;
    side.delivered = end;
    if (side.due && end >= side.current_end) {
        write(messages.end_ns, MessageColumn::end_ns, side.current, side.last_ns);
        side.due = false;
    }
    if (!borders_lost) return;
    // No message was read since the last loss: the two are one.
    const bool more = std::exchange(side.after_gap, true);
    if (direction == Direction::to_client) {
        // The loss took the end of a message whose start was read, or only whole messages.
        exchange_->lost_inside =
            inside > 0 || (side.current != kNoMessage && side.current_end == begin && side.current_truncated);
        exchange_->lost_begin = begin;
        exchange_->lost_end = end;
    } else {
        if (!more) exchange_->request_lost_begin = begin;
        exchange_->request_lost_end = end;
        exchange_->answers_at_request_loss = exchange_->at(Direction::to_client).delivered;
    }
}

// [begin, end) was there at `time_ns` already. A copy of the last bytes alone may have come before the first ones: all of
// the message was there when the latest of its bytes was.
void Recorder::lower_current(MessageSide& side, std::uint64_t begin, std::uint64_t end,
                             std::int64_t time_ns) {
    if (begin <= side.current_begin && end > side.current_begin) {
        lower(messages.begin_ns, MessageColumn::begin_ns, side.current, time_ns);
        side.current_begin_ns = std::min(side.current_begin_ns, time_ns);
    }
    if (side.ended && !side.due && begin < side.current_end && end >= side.current_end)
        lower(messages.end_ns, MessageColumn::end_ns, side.current, std::max(time_ns, side.current_begin_ns));
}

void Recorder::retransmitted(Direction direction, std::uint64_t begin, std::uint64_t end,
                             std::int64_t time_ns) {
    MessageSide& side = exchange_->at(direction);
    if (side.current == kNoMessage) return;
    // Packets may stand in the file in another order than they were stamped: the earliest copy gives the time.
    lower_current(side, begin, end, time_ns);
    if (end > side.current_begin && (!side.ended || begin < side.current_end))
        add_flags(side.current, message_flag::retransmitted);
    if (begin < side.current_begin && side.before != kNoMessage && end > side.before_begin)
        add_flags(side.before, message_flag::retransmitted);
}

void Recorder::stamped_earlier(Direction direction, std::uint64_t begin, std::uint64_t end,
                               std::uint32_t first_us, std::int64_t time_ns) {
    MessageSide& side = exchange_->at(direction);
    if (side.delivered == end) side.last_ns = std::min(side.last_ns, time_ns);
    if (side.current != kNoMessage) {
        lower_current(side, begin, end, time_ns);
        if (side.current_begin <= begin) return;
    }
    // Messages before the current one, among the latest rows: told by the time that they have of that packet, as the
    // pieces of an interleaved one lie elsewhere.
    constexpr std::size_t kLatest = 4096;
    const auto us = [](std::int64_t ns) { return static_cast<std::uint32_t>(ns / 1000); };
    const auto of_packet = [&](std::int64_t at_ns) { return at_ns >= 0 && us(at_ns) == first_us; };
    // A copy that filled a hole gave its bytes the time of what lies behind them, which may be before its own.
    const auto between = [&](std::int64_t at_ns) {
        return at_ns >= 0 && first_us - us(at_ns) <= first_us - us(time_ns);
    };
    const std::uint32_t first_seq = side.base_seq + static_cast<std::uint32_t>(begin);
    const auto bytes = static_cast<std::uint32_t>(end - begin);
    const std::size_t oldest = messages.size - std::min(messages.size, kLatest);
    const bool decrypted = side.current == kNoMessage;
    for (std::size_t row = messages.size; row-- > oldest;) {
        if (messages.conn[row] != exchange_->conn ||
            messages.direction[row] != static_cast<std::uint8_t>(direction))
            continue;
        const std::uint32_t at = messages.tcp_seq[row] - first_seq;
        if (at < bytes && between(messages.begin_ns[row]))
            messages.begin_ns[row] = std::min(messages.begin_ns[row], time_ns);
        const auto protocol = static_cast<Protocol>(messages.protocol[row]);
        const bool interleaved =
            decrypted || exchange_->interleaved || protocol == Protocol::http2 || protocol == Protocol::grpc;
        const std::uint32_t last = at + static_cast<std::uint32_t>(messages.wire_bytes[row]) - 1;
        if ((last < bytes || interleaved) && of_packet(messages.end_ns[row]))
            messages.end_ns[row] = std::min(messages.end_ns[row], std::max(time_ns, messages.begin_ns[row]));
        if (static_cast<std::int32_t>(at) < 0 && !interleaved) return;
    }
}

void Recorder::stream_ended(Direction direction, std::uint64_t end) {
    MessageSide& side = exchange_->at(direction);
    if (!side.ended) close_current(side, end);
    if (side.due) {  // cut inside a part that was skipped by counting
        add_flags(side.current, message_flag::unfinished);
        write(messages.wire_bytes, MessageColumn::wire_bytes, side.current,
              side.current_before + end - side.current_begin);
        write(messages.end_ns, MessageColumn::end_ns, side.current, side.last_ns);
        side.due = false;
        side.current_end = side.covered = end;
    }
    if (end > side.covered) outside_bytes(side, end);
    if (direction == Direction::to_client)
        close_unanswered();
    else
        exchange_->asked_all = true;
}

// A row that was handed over already: what happens to it is handed over next.
void Recorder::amend(MessageRef ref, MessageColumn column, Change change, std::int64_t value) {
    if (ref >= first_message) {
        counters.add("recorder.unknown_message");
        return;
    }
    const std::size_t row = amendments.append();
    amendments.message[row] = static_cast<std::int64_t>(ref);
    amendments.column[row] = static_cast<std::uint8_t>(column);
    amendments.change[row] = static_cast<std::uint8_t>(change);
    amendments.value[row] = value;
}

void Recorder::contents_of(std::size_t row, bool again) {
    ContentColumns& out = again ? contents_again : contents;
    out.grow_to(row + 1);
    const auto unparsed = [&](Direction d) {
        const MessageSide& side = exchange_->at(d);
        return side.outside - side.missing_outside;
    };
    out.protocol[row] = static_cast<std::uint8_t>(exchange_->protocol);
    out.unparsed_to_server[row] = unparsed(Direction::to_server);
    out.unparsed_to_client[row] = unparsed(Direction::to_client);
}

MessageTables Recorder::hand_over() {
    settle_hashes();
    MessageTables out = std::move(static_cast<MessageTables&>(*this));
    static_cast<MessageTables&>(*this) = MessageTables{};
    first_message = out.first_message + out.messages.size;
    return out;
}

void Recorder::set_class(MessageRef ref, Protocol protocol, std::string_view text) {
    set_class(ref, classes.id(protocol, text));
}

void Recorder::set_class(MessageRef ref, std::int32_t id) {
    write(messages.class_id, MessageColumn::class_id, ref, id);
    if (keep_text_ && example_of_ == ref) [[unlikely]] {
        example_of_ = kNoMessage;
        keep_example(id, example_);
    }
}

void Recorder::keep_example(std::int32_t class_id, std::string_view text) {
    auto& entry = classes.entries()[static_cast<std::size_t>(class_id)];
    if (!entry.example.empty()) return;
    entry.example = text;
    new_examples.push_back(class_id);
}

// The class of the message may come later.
void Recorder::keep_example_of(MessageRef ref, std::string_view text) {
    const std::size_t row = ref - first_message;
    if (row < messages.size && messages.class_id[row] != kNoClass)
        return keep_example(messages.class_id[row], text);
    example_of_ = ref;
    example_ = text;
}

void Recorder::token(MessageRef ref, std::uint32_t slot, TokenKind kind, Bytes value) {
    if (value.size() < kShortestId || kind == TokenKind::statement) [[likely]]
        return token(ref, slot, kind, value, false);
    token_of_any_length(ref, slot, kind, value);
}

// Apart from the short ones, which need no room for what is kept across a call.
void Recorder::token_of_any_length(MessageRef ref, std::uint32_t slot, TokenKind kind, Bytes value) {
    token(ref, slot, kind, value, looks_like_id(as_text(value)));
}

void Recorder::token(MessageRef ref, std::uint32_t slot, TokenKind kind, Bytes value, bool is_id) {
    if (keep_text_ && (kind == TokenKind::uri || kind == TokenKind::statement)) [[unlikely]]
        keep_example_of(ref, as_text(value));
    const std::size_t row = append_evidence(
        ref, slot, static_cast<std::uint8_t>(static_cast<unsigned>(kind) | (is_id ? id_like : 0u)));
    hashes_.add(evidence.hash, row, kind == TokenKind::text ? without_wildcards(value) : value);
}

void Recorder::endpoint_token(MessageRef ref) {
    if (!exchange_->endpoint_known) return;
    known_token(ref, 0, TokenKind::endpoint, exchange_->endpoint_hash);
}

void Recorder::known_token(MessageRef ref, std::uint32_t slot, TokenKind kind, std::uint64_t hash) {
    const std::size_t row = append_evidence(ref, slot, static_cast<std::uint8_t>(kind));
    evidence.hash[row] = hash;
}

}  // namespace tapscope
