// Pipelined requests after a loss. Clients send a batch and wait for all its answers, or keep a number of requests open:
// so there come moments at which it is known how many requests are not answered yet. Then answers before the loss count
// from the front, those behind it from the back, and what is left over in between was lost. Where no such moment comes
// the pairs behind the loss stay an estimate and are flagged as inferred.
#include <algorithm>

#include "record.hpp"

namespace tapscope {

// `request` is the first one that is seen: others were lost before it, or it follows an answer to another one. If the
// client keeps several open, every answer from here on is to an earlier one than it seems.
void Recorder::begin_unproven(const OpenRequest& request, bool after_loss) {
    exchange_->unproven = std::make_unique<Doubt>();
    Doubt& unproven = *exchange_->unproven;
    if (after_loss) unproven.lost_request_bytes = request.begin - exchange_->request_lost_begin;
    unproven.request_lost = unproven.left_open = true;
    unproven.requests.push_back(request);
    unproven.requests.back().after_loss = true;
}

void Recorder::note_unproven(const OpenRequest& request) {
    if (exchange_->unproven->requests.size() >= Doubt::kMaxUnproven) return exchange_->unproven.reset();
    exchange_->unproven->requests.push_back(request);
}

// Signs of several open requests: an answer that nobody asked for, or so many bytes lost before the first request that
// there was room for two of its size.
void Recorder::note_unproven(MessageRef row, std::int64_t request, bool after_loss) {
    Doubt& unproven = *exchange_->unproven;
    if (unproven.responses.size() >= Doubt::kMaxUnproven) return exchange_->unproven.reset();
    const bool first = unproven.responses.empty();
    unproven.responses.push_back({row, request, after_loss});
    const MessageSide& asked = exchange_->at(Direction::to_server);
    const bool room =
        first && asked.ended && unproven.lost_request_bytes >= 2 * (asked.current_end - asked.current_begin);
    const bool unasked = request < 0 && !after_loss && !asked.loss_behind();
    if (unasked || room) begin_doubt();
}

void Recorder::begin_doubt() {
    if (exchange_->unproven != nullptr) {
        // What was seen of this client so far was seen with pairs that may be shifted.
        exchange_->doubt = std::move(exchange_->unproven);
        exchange_->standing = {};
        counters.add("pairing.pipeline_after_loss");
        return;
    }
    exchange_->doubt = std::make_unique<Doubt>();
    Doubt& doubt = *exchange_->doubt;
    const RequestQueue& open = exchange_->requests;
    for (std::size_t i = 0; i < open.size(); ++i) doubt.requests.push_back(open.at(i));
    // An answer that has begun is that of the oldest of them.
    const MessageSide& answers = exchange_->at(Direction::to_client);
    if (!open.empty() && answers.current != kNoMessage && !answers.ended &&
        answers.current_answers == static_cast<std::int64_t>(open.front().row))
        doubt.responses.push_back({answers.current, answers.current_answers, false});
    counters.add("pairing.pipeline_after_loss");
}

void Recorder::note_request(const OpenRequest& request) {
    Doubt& doubt = *exchange_->doubt;
    if (doubt.requests.size() >= Doubt::kMaxNoted) return abandon_doubt();
    doubt.requests.push_back(request);
}

void Recorder::note_response(MessageRef row, std::int64_t request, bool after_loss) {
    Doubt& doubt = *exchange_->doubt;
    if (doubt.responses.size() >= Doubt::kMaxNoted) return abandon_doubt();
    doubt.responses.push_back({row, request, after_loss});
}

// A request that acknowledges `ack`, and more than the one before it: has the client read all answers that were sent?
bool Recorder::all_read(std::uint64_t ack) const noexcept {
    const MessageSide& answers = exchange_->at(Direction::to_client);
    if (ack != answers.delivered || answers.current == kNoMessage || answers.due) return false;
    if (!answers.ended && !answers.after_gap) return false;
    if (exchange_->doubt != nullptr)
        return !exchange_->doubt->requests.empty() && ack > exchange_->doubt->requests.back().peer_ack;
    return exchange_->requests.empty() || ack > exchange_->requests.back().peer_ack;
}

// Are the bytes that were lost before the first request noted twice those of a usual one?
bool Recorder::room_for_two_requests() const noexcept {
    const Doubt& doubt = *exchange_->doubt;
    const std::uint64_t noted =
        exchange_->at(Direction::to_server).current_begin - doubt.requests.front().begin;
    return doubt.lost_request_bytes * doubt.requests.size() >= 2 * noted;
}

// At a moment when all is read: is it known which requests are open? Of a client not known yet that waits for all
// answers no more can be left over than what the lost packets may have answered.
bool Recorder::standing_known(bool after_loss) const noexcept {
    const StandingRequests& standing = exchange_->standing;
    if (standing.varying()) return false;
    const auto& asked = exchange_->doubt->requests;
    if (!standing.seen()) {
        if (exchange_->doubt->left_open || (after_loss && exchange_->pipelines)) return false;
        const auto& answers = exchange_->doubt->responses;
        const auto behind_loss = [](const auto& noted) { return noted.after_loss; };
        const auto answers_behind_loss = std::count_if(answers.begin(), answers.end(), behind_loss);
        if (exchange_->requests.empty()) {
            if (!exchange_->doubt->request_lost || answers.size() > asked.size()) return true;
            // One that was lost may have been answered by what was lost; of several there may be some open.
            return !room_for_two_requests() &&
                   (answers_behind_loss > 0 || exchange_->at(Direction::to_client).loss_behind());
        }
        return exchange_->requests.size() <= exchange_->doubt->lost_packets &&
               std::none_of(asked.begin(), asked.end(), behind_loss) && answers_behind_loss <= 1;
    }
    if (standing.count() == 0) return true;
    if (after_loss || asked.size() < standing.count()) return false;
    for (std::size_t i = asked.size() - standing.count(); i < asked.size(); ++i)
        if (asked[i].after_loss) return false;  // one of the open ones may not have been seen
    return true;
}

// The settled request of a response; -1 none.
void Recorder::answered_by(MessageRef response, std::int64_t request) {
    write(messages.request, MessageColumn::request, response, request);
    for (MessageSide& side : exchange_->side)
        if (side.current == response) side.current_answers = request;
}

// All requests noted are answered but the last `standing` ones. The flags say whether more of either kind may have been
// lost behind the last one. Not `sure`: what is counted from the back is flagged as inferred.
void Recorder::settle_doubt(std::size_t standing, bool request_lost_behind, bool response_lost_behind,
                            bool sure) {
    const std::unique_ptr<Doubt> doubt = std::move(exchange_->doubt);
    auto& asked = doubt->requests;
    const auto& answers = doubt->responses;
    exchange_->requests.clear();
    const std::size_t open_from = asked.size() - std::min(asked.size(), standing);
    for (std::size_t i = open_from; i < asked.size(); ++i) exchange_->requests.push(asked[i]);
    asked.resize(open_from);
    bool responses_lost = response_lost_behind;
    for (const auto& noted : answers) responses_lost |= noted.after_loss;

    std::size_t first = 0, asked_end = asked.size(), answers_end = answers.size();
    while (first < asked_end && first < answers_end && !asked[first].after_loss &&
           !answers[first].after_loss) {
        answered_by(answers[first].row, static_cast<std::int64_t>(asked[first].row));
        ++first;
    }
    bool counts = !request_lost_behind && !response_lost_behind;
    // Rows are in stream order: an answer that was read before a request was sent is not to it.
    while (counts && asked_end > first && answers_end > first &&
           answers[answers_end - 1].row > asked[asked_end - 1].row) {
        --asked_end;
        --answers_end;
        answered_by(answers[answers_end].row, static_cast<std::int64_t>(asked[asked_end].row));
        if (!sure) add_flags(answers[answers_end].row, message_flag::inferred);
        counts = !asked[asked_end].after_loss && !answers[answers_end].after_loss;
    }
    // What is left over in the middle. On one side only: it was lost on the other.
    const bool both = asked_end > first && answers_end > first;
    std::size_t next = first;
    const auto pass_over = [&](std::size_t to) {
        for (; next < to; ++next) {
            if (!responses_lost) continue;
            add_flags(asked[next].row, message_flag::answer_lost);
            counters.add("pairing.answer_lost", 1, Unit::messages);
        }
    };
    for (std::size_t i = first; i < answers_end; ++i) {
        std::size_t at = next;
        while (at < asked_end && static_cast<std::int64_t>(asked[at].row) != answers[i].request) ++at;
        if (at == asked_end) {
            answered_by(answers[i].row, -1);
            continue;
        }
        add_flags(answers[i].row, message_flag::inferred);
        pass_over(at);
        next = at + 1;
    }
    pass_over(asked_end);
    const std::size_t inferred = (both ? answers_end - first : 0) + (sure ? 0 : answers.size() - answers_end);
    if (inferred > 0) counters.add("pairing.inferred", inferred, Unit::messages);
}

// No moment came at which it was known what is open: what stands behind a loss stays an estimate.
void Recorder::abandon_doubt() {
    const std::unique_ptr<Doubt> doubt = std::move(exchange_->doubt);
    bool behind_loss = false;
    std::size_t inferred = 0, next = 0;
    const auto& asked = doubt->requests;
    for (const auto& response : doubt->responses) {
        behind_loss |= response.after_loss;
        if (response.request < 0) continue;
        // Requests that the estimate passes over.
        for (; next < asked.size() && static_cast<std::int64_t>(asked[next].row) < response.request; ++next) {
            behind_loss |= asked[next].after_loss;
            add_flags(asked[next].row, message_flag::answer_lost);
            counters.add("pairing.answer_lost", 1, Unit::messages);
        }
        if (next < asked.size()) behind_loss |= asked[next++].after_loss;
        if (!behind_loss) continue;
        add_flags(response.row, message_flag::inferred);
        ++inferred;
    }
    if (inferred > 0) counters.add("pairing.inferred", inferred, Unit::messages);
}

}  // namespace tapscope
