// Which request does a response answer? By the connection's order of messages, checked against what TCP acknowledged, so
// that a lost packet cannot shift the answers by one.
#include <algorithm>

#include "record.hpp"

namespace tapscope {

// The oldest open request was answered by bytes that the tap did not see.
void Recorder::drop_answer_lost() {
    RequestQueue& open = exchange_->requests;
    const MessageRef row = open.front().row;
    const MessageSide& answers = exchange_->at(Direction::to_client);
    open.pop();
    if (answers.current != kNoMessage && answers.current_answers == static_cast<std::int64_t>(row))
        return;  // a part of it was seen
    add_flags(row, message_flag::answer_lost);
    counters.add("pairing.answer_lost", 1, Unit::messages);
}

// The stream to the client is over: requests whose answer may have been among its lost bytes.
void Recorder::close_unanswered() {
    RequestQueue& open = exchange_->requests;
    const std::uint64_t lost_begin = exchange_->lost_begin, lost_end = exchange_->lost_end;
    while (!open.empty() && std::max(lost_begin, open.front().peer_ack) < lost_end) drop_answer_lost();
}

void Recorder::open_request(MessageRef row, std::uint64_t offset, std::uint32_t tag) {
    const std::uint64_t ack = ack_of_byte(offset);
    RequestQueue& open = exchange_->requests;
    if (open.empty()) {
        exchange_->pipelined = false;
    } else if (ack > open.back().peer_ack &&
               std::max(exchange_->lost_begin, open.front().peer_ack) < std::min(exchange_->lost_end, ack)) {
        // The client went on after bytes that the tap never saw: the answers were among them.
        while (!open.empty()) drop_answer_lost();
    } else {
        exchange_->pipelined = true;
        counters.add("pairing.pipelined_request", 1, Unit::messages);
        if (open.size() >= RequestQueue::kMaxOpen) {
            counters.add("pairing.queue_overflow", 1, Unit::messages);
            open.pop();
        }
    }
    open.push({row, offset, ack, tag});
}

// The first response after lost or unreadable bytes, at `offset`: drops the requests whose answers were among them.
void Recorder::close_answered(std::uint64_t offset, std::uint64_t ack) {
    RequestQueue& open = exchange_->requests;
    std::size_t answered = 0;
    if (!exchange_->pipelined) {
        // A client that sends one request at a time has acknowledged all bytes before an answer when it asks for it:
        // so this answers the request that acknowledged most without going beyond `offset`.
        std::uint64_t most = 0;
        for (std::size_t i = 0; i < open.size() && open.at(i).begin < ack; ++i)
            if (open.at(i).peer_ack <= offset && open.at(i).peer_ack > most) {
                most = open.at(i).peer_ack;
                answered = i;
            }
    } else if (exchange_->lost_end > exchange_->lost_begin && exchange_->mean_answer > 0) {
        // With several requests on the way only the number of bytes tells how many answers they held.
        const std::uint64_t span = offset - std::min(offset, exchange_->lost_begin);
        const std::uint64_t mean = exchange_->mean_answer;
        answered =
            exchange_->lost_inside ? span / mean : std::max<std::uint64_t>(1, (span + mean / 2) / mean);
        answered = std::min(answered, open.empty() ? 0 : open.size() - 1);
    }
    for (; answered > 0; --answered) drop_answer_lost();
}

// The request that a response or interim at `offset` answers; -1 none.
std::int64_t Recorder::answered(MessageKind kind, std::uint64_t offset) {
    RequestQueue& open = exchange_->requests;
    if (!open.empty()) {
        const OpenRequest& front = open.front();
        const std::uint64_t ack = ack_of_byte(offset);
        const bool answer_lost =
            std::max(exchange_->lost_begin, front.peer_ack) < std::min(exchange_->lost_end, offset);
        const bool later_request_lost =
            exchange_->request_lost_begin > front.begin && exchange_->request_lost_begin < ack;
        if (answer_lost && later_request_lost && !exchange_->pipelined) {
            // Both the answer to `front` and a request behind it are in gaps: this answers the one that was lost.
            while (!open.empty()) drop_answer_lost();
        } else if (front.begin < ack) {
            return static_cast<std::int64_t>(front.row);
        }
    }
    if (kind == MessageKind::response) counters.add("pairing.orphan_response", 1, Unit::messages);
    return -1;
}

}  // namespace tapscope
