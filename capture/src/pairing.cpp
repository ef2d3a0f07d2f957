// Which request does a response answer? By the connection's order of messages, checked against what TCP acknowledged, so
// that a lost packet cannot shift the answers by one.
#include <algorithm>

#include "record.hpp"

namespace tapscope {

void Recorder::open_request(MessageRef row, std::uint64_t offset, std::uint32_t tag) {
    const std::uint64_t ack = ack_of_byte(offset);
    RequestQueue& open = exchange_->requests;
    if (open.empty()) {
        exchange_->pipelined = false;
    } else if (ack > open.back().peer_ack &&
               std::max(exchange_->lost_begin, open.front().peer_ack) < std::min(exchange_->lost_end, ack)) {
        // The client went on after bytes that the tap never saw: the answers were among them.
        counters.add("pairing.answer_lost", open.size(), Unit::messages);
        while (!open.empty()) open.pop();
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
    if (answered > 0) counters.add("pairing.answer_lost", answered, Unit::messages);
    for (; answered > 0; --answered) open.pop();
}

void Recorder::pair(MessageRef row, MessageKind kind, std::uint64_t offset) {
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
            counters.add("pairing.answer_lost", open.size(), Unit::messages);
            while (!open.empty()) open.pop();
        } else if (front.begin < ack) {
            messages.request[row] = static_cast<std::int64_t>(front.row);
            return;
        }
    }
    if (kind == MessageKind::response) counters.add("pairing.orphan_response", 1, Unit::messages);
}

}  // namespace tapscope
