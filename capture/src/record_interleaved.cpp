// Messages that share a connection in pieces (HTTP/2, FastCGI): the bytes of one lie between those of others, and a
// response is paired with its request by the dissector, which knows the stream's number.
//
// MessageSide is used as for messages in one piece: `current` is the message of the last piece, and current_begin and
// current_end are that piece's. So bytes are accounted for, late copies noticed and ends resolved in the same way.
#include <algorithm>

#include "record.hpp"

namespace tapscope {

Interleaved Recorder::begin_stream(MessageKind kind, std::uint64_t at, MessageRef request) {
    MessageSide& side = exchange_->at(window_.direction);
    const std::uint64_t offset = std::max(window_.base + at, side.covered);
    const std::size_t row = append_row(side, window_.direction, kind, offset);
    if (request != kNoMessage)
        messages.request[row] = static_cast<std::int64_t>(request);
    else if (kind == MessageKind::response)
        counters.add("pairing.orphan_response", 1, Unit::messages);
    return {first_message + row, 0};
}

void Recorder::piece(Interleaved& message, std::uint64_t at_begin, std::uint64_t at_end) {
    MessageSide& side = exchange_->at(window_.direction);
    if (!side.ended || side.due) leave_current(side, window_.base + at_begin);
    const std::uint64_t begin = std::max(window_.base + at_begin, side.covered);
    const std::uint64_t end = window_.base + at_end;
    if (end <= begin) return;
    if (begin > side.covered) outside_bytes(side, begin);

    if (side.current != message.ref) {
        side.before = side.current;
        side.before_begin = side.current_begin;
        side.current = message.ref;
        side.current_kind =
            MessageKind::one_way;  // whatever it is, it takes nothing off the queue of requests
        side.current_answers = -1;
    }
    side.current_truncated = false;
    side.current_begin = begin;
    side.current_begin_ns = begin < window_.first ? window_.before_ns : time_of_byte(begin);
    side.current_end = side.covered = end;
    side.current_before = message.bytes;
    side.ended = true;
    side.due = end > window_.end;
    message.bytes += end - begin;
    write(messages.wire_bytes, MessageColumn::wire_bytes, message.ref, message.bytes);
    if (!side.due)
        write(messages.end_ns, MessageColumn::end_ns, message.ref,
              end <= window_.first ? window_.before_ns : time_of_byte(end - 1));
}

void Recorder::remainder_from(std::uint64_t at, const char* name) {
    MessageSide& side = exchange_->at(window_.direction);
    if (side.remainder == name) return;
    const std::uint64_t offset = window_.base + at;
    if (!side.ended || side.due) leave_current(side, offset);
    if (offset > side.covered) outside_bytes(side, offset);
    side.remainder = name;
}

MessageRef Recorder::take_request() noexcept {
    RequestQueue& open = exchange_->requests;
    if (open.empty()) return kNoMessage;
    const MessageRef row = open.front().row;
    open.pop();
    return row;
}

void Recorder::leave_order() {
    if (exchange_->doubt != nullptr) abandon_doubt();
    exchange_->unproven.reset();
    exchange_->dissector_pairs = exchange_->interleaved = true;
}

Interleaved Recorder::in_pieces(MessageRef ref, std::uint64_t at) {
    end(ref, at);
    const MessageSide& side = exchange_->at(window_.direction);
    return {ref, side.current_end - side.current_begin};
}

}  // namespace tapscope
