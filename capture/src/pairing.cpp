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
    if (exchange_->doubt != nullptr) [[unlikely]] {
        // The server closes when it has answered all: at least the count of requests does not speak against it. A
        // client that waits for all answers closes when it has read them, unless it gave up.
        const StandingRequests& standing = exchange_->standing;
        const bool read_all = exchange_->asked_all && standing.seen() && standing.count() == 0;
        if ((open.empty() || read_all) && !window_.aborted && !standing.varying())
            settle_doubt(0, exchange_->at(Direction::to_server).loss_behind(),
                         exchange_->at(Direction::to_client).loss_behind(), open.empty());
        else
            abandon_doubt();
    }
    const std::uint64_t lost_begin = exchange_->lost_begin, lost_end = exchange_->lost_end;
    while (!open.empty() && std::max(lost_begin, open.front().peer_ack) < lost_end) drop_answer_lost();
}

// How many packets of usual size the last loss in the stream to the client takes.
std::uint64_t Recorder::packets_lost() const noexcept {
    constexpr std::uint64_t kUsualSegment = 1460;  // bytes
    return (exchange_->lost_end - exchange_->lost_begin + kUsualSegment - 1) / kUsualSegment;
}

void Recorder::open_request(MessageRef row, std::uint64_t offset, std::uint32_t tag, bool after_loss) {
    const std::uint64_t ack = ack_of_byte(offset);
    RequestQueue& open = exchange_->requests;
    if (open.empty() && !after_loss && exchange_->doubt == nullptr && exchange_->unproven == nullptr &&
        !exchange_->unasked) [[likely]] {
        // One request at a time and nothing lost: of all that follows no more than this would be done.
        if (!exchange_->at(Direction::to_client).loss_behind() && all_read(ack))
            exchange_->standing.observe(0);
        exchange_->pipelined = false;
        return open.push(row, offset, ack, tag, false);
    }
    // Made where it is needed: kept in memory it would be copied right after it was written, which the processor waits
    // for.
    const auto request = [&] { return OpenRequest{row, offset, ack, tag, after_loss}; };
    // No answer is missing of those that were sent.
    const bool read_all = !exchange_->at(Direction::to_client).loss_behind() && all_read(ack);
    if (exchange_->doubt != nullptr) [[unlikely]] {
        const bool read = all_read(ack);
        if (read && standing_known(after_loss)) {
            settle_doubt(exchange_->standing.count(), after_loss,
                         exchange_->at(Direction::to_client).loss_behind());
        } else {
            if (read) exchange_->doubt->left_open = true;
            note_request(request());
        }
    } else if (read_all && !after_loss && !exchange_->unasked) {
        exchange_->standing.observe(open.size());
    }
    if (open.empty()) {
        exchange_->pipelined = false;
    } else if (exchange_->doubt == nullptr && ack > open.back().peer_ack &&
               std::max(exchange_->lost_begin, open.front().peer_ack) < std::min(exchange_->lost_end, ack) &&
               (exchange_->standing.seen() && !exchange_->standing.varying()
                    ? exchange_->standing.count() == 0
                    : open.size() <= packets_lost())) {
        // The client went on after bytes that the tap never saw: the answers were among them.
        while (!open.empty()) drop_answer_lost();
    } else {
        exchange_->pipelined = exchange_->pipelines = true;
        counters.add("pairing.pipelined_request", 1, Unit::messages);
        if (open.size() >= RequestQueue::kMaxOpen) {
            counters.add("pairing.queue_overflow", 1, Unit::messages);
            open.pop();
        }
    }
    // Lost bytes before this request or before an older one may have held requests that are still to be answered.
    const bool unanswered_lost =
        after_loss && (exchange_->pipelines || ack <= exchange_->answers_at_request_loss);
    const bool behind_loss = exchange_->pipelined && open.front().after_loss;
    if (exchange_->doubt == nullptr && !exchange_->dissector_pairs) {
        if (unanswered_lost || behind_loss || (exchange_->unproven != nullptr && exchange_->pipelined))
            [[unlikely]] {
            begin_doubt();
            Doubt& doubt = *exchange_->doubt;
            doubt.left_open |= read_all && !open.empty();
            if (open.empty() && ack <= exchange_->answers_at_request_loss) {
                doubt.request_lost = true;
                if (after_loss) doubt.lost_request_bytes = offset - exchange_->request_lost_begin;
            }
            note_request(request());
        } else if (exchange_->unproven != nullptr) [[unlikely]] {
            note_unproven(request());
        } else if ((after_loss || exchange_->unasked) && !exchange_->standing.seen()) [[unlikely]] {
            begin_unproven(request(), after_loss);
        }
    }
    exchange_->unasked = false;
    open.push(row, offset, ack, tag, after_loss);
}

bool Recorder::acknowledges_answer(std::uint64_t at) const noexcept {
    const std::uint64_t ack = ack_of_byte(window_.base + at);
    const RequestQueue& open = exchange_->requests;
    return ack == exchange_->at(opposite(window_.direction)).delivered &&
           (open.empty() || ack > open.back().peer_ack);
}

// The first response after lost or unreadable bytes, at `offset`: drops the requests whose answers were among them.
void Recorder::close_before(std::uint64_t offset, std::uint64_t ack) {
    RequestQueue& open = exchange_->requests;
    if (open.empty()) return;
    if (exchange_->doubt == nullptr && !exchange_->pipelined) {
        // A client that sends one request at a time has acknowledged all bytes before an answer when it asks for it:
        // so this answers the request that acknowledged most without going beyond `offset`.
        std::size_t answered = 0;
        std::uint64_t most = 0;
        for (std::size_t i = 0; i < open.size() && open.at(i).begin < ack; ++i)
            if (open.at(i).peer_ack <= offset && open.at(i).peer_ack > most) {
                most = open.at(i).peer_ack;
                answered = i;
            }
        for (; answered > 0; --answered) drop_answer_lost();
        return;
    }
    if (exchange_->dissector_pairs) return;
    if (open.front().peer_ack >= offset) return;  // asked when all that was lost had been read
    // With several requests on the way the number of lost packets and bytes tells for now how many answers they held.
    if (exchange_->doubt == nullptr) begin_doubt();
    const std::uint64_t packets = packets_lost(), mean = exchange_->mean_answer;
    exchange_->doubt->lost_packets += packets;
    if (packets == 0) return;
    const std::uint64_t span = offset - std::min(offset, exchange_->lost_begin);
    const std::uint64_t least = exchange_->lost_inside ? 0 : 1;
    const std::uint64_t most = std::max(least, packets - 1 + least);
    std::uint64_t held = least;
    if (mean > 0) held = std::clamp((exchange_->lost_inside ? span : span + mean / 2) / mean, least, most);
    for (std::uint64_t i = std::min<std::uint64_t>(held, open.size() - 1); i > 0; --i) open.pop();
}

// The request that a response or interim at `offset` answers; -1 none.
std::int64_t Recorder::answered(MessageRef row, MessageKind kind, std::uint64_t offset, bool after_loss) {
    RequestQueue& open = exchange_->requests;
    if (!open.empty() && exchange_->lost_end == 0 && exchange_->doubt == nullptr &&
        exchange_->unproven == nullptr && open.front().begin < ack_of_byte(offset)) [[likely]]
        return static_cast<std::int64_t>(open.front().row);  // nothing of the answers was lost
    std::int64_t found = -1;
    if (!open.empty()) {
        const OpenRequest& front = open.front();
        const std::uint64_t ack = ack_of_byte(offset);
        const bool answer_lost =
            exchange_->doubt == nullptr &&
            std::max(exchange_->lost_begin, front.peer_ack) < std::min(exchange_->lost_end, offset);
        const bool later_request_lost =
            exchange_->request_lost_begin > front.begin && exchange_->request_lost_begin < ack;
        if (answer_lost && later_request_lost && !exchange_->pipelined) {
            // Both the answer to `front` and a request behind it are in gaps: this answers the one that was lost.
            while (!open.empty()) drop_answer_lost();
        } else if (front.begin < ack) {
            found = static_cast<std::int64_t>(front.row);
        }
    }
    if (kind != MessageKind::response) return found;
    if (exchange_->doubt != nullptr) [[unlikely]]
        note_response(row, found, after_loss);
    else if (exchange_->unproven != nullptr) [[unlikely]]
        note_unproven(row, found, after_loss);
    if (found < 0) {
        counters.add("pairing.orphan_response", 1, Unit::messages);
        exchange_->unasked = exchange_->at(Direction::to_server).current == kNoMessage;
    }
    return found;
}

}  // namespace tapscope
