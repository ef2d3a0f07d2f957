// What the Recorder knows about one connection: where messages stand on each side, and which requests are open.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dissect/dissector.hpp"

namespace tapscope {

// A message whose bytes come in pieces, between those of other messages; kept by the dissector.
struct Interleaved {
    MessageRef ref = kNoMessage;
    std::uint64_t bytes = 0;  // in its pieces so far
};

struct OpenRequest {
    MessageRef row;
    std::uint64_t begin;     // stream offset of its first byte
    std::uint64_t peer_ack;  // what its first segment acknowledged of the other side
    std::uint32_t tag;       // the dissector's note on how to read the answer
    bool after_loss;         // lost bytes before it may have held more requests
};

// FIFO of requests without a final response. Most connections have one at a time: it stands in place, further ones in
// a vector that is made when it is first needed.
class RequestQueue {
public:
    static constexpr std::size_t kMaxOpen = 4096;
    bool empty() const noexcept { return size_ == 0; }
    std::size_t size() const noexcept { return size_; }
    const OpenRequest& front() const noexcept { return first_; }
    const OpenRequest& back() const noexcept { return size_ == 1 ? first_ : more_->items.back(); }
    OpenRequest& back() noexcept { return size_ == 1 ? first_ : more_->items.back(); }
    const OpenRequest& at(std::size_t i) const noexcept {
        return i == 0 ? first_ : more_->items[more_->head + i - 1];
    }
    void pop() noexcept {
        if (--size_ == 0) return;
        first_ = more_->items[more_->head];
        if (++more_->head == more_->items.size()) more_->clear();
    }
    void clear() noexcept {
        size_ = 0;
        if (more_) more_->clear();
    }
    void push(const OpenRequest& request) {
        push(request.row, request.begin, request.peer_ack, request.tag, request.after_loss);
    }
    // From parts: what was just written into a struct one by one is not read in wider words without waiting for it.
    void push(MessageRef row, std::uint64_t begin, std::uint64_t peer_ack, std::uint32_t tag,
              bool after_loss) {
        if (size_++ == 0) {
            first_.row = row;
            first_.begin = begin;
            first_.peer_ack = peer_ack;
            first_.tag = tag;
            first_.after_loss = after_loss;
            return;
        }
        if (!more_) more_ = std::make_unique<More>();
        auto& [items, head] = *more_;
        if (head > 64 && head * 2 > items.size()) {
            items.erase(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(head));
            head = 0;
        }
        items.push_back({row, begin, peer_ack, tag, after_loss});
    }

private:
    struct More {
        std::vector<OpenRequest> items;
        std::size_t head = 0;
        void clear() noexcept {
            items.clear();
            head = 0;
        }
    };
    OpenRequest first_{};
    std::uint32_t size_ = 0;
    std::unique_ptr<More> more_;
};

// One direction. Invariant: every byte before `covered` is in a message or counted in `outside`; `covered` never
// exceeds what the dissector has spoken of.
struct MessageSide {
    std::uint64_t covered = 0;          // stream offset
    std::uint64_t outside = 0;          // bytes in no message, missing ones included
    std::uint64_t missing_outside = 0;  // the missing ones among them
    std::uint64_t missing_ahead = 0;    // missing bytes behind `covered` that are in no message so far
    std::uint64_t delivered = 0;  // stream offset: everything before it was given to the dissector or skipped
    std::int64_t last_ns = -1;    // packet of the last byte before `delivered`
    MessageRef current = kNoMessage;  // the last message begun
    std::uint64_t current_begin = 0;
    std::int64_t current_begin_ns = -1;
    std::uint64_t current_before = 0;  // interleaved messages: bytes of `current` in earlier pieces
    std::uint64_t current_end = 0;  // valid when ended; may lie beyond `delivered` (then the end time is due)
    std::int64_t current_answers = -1;  // a response: the message that it answers
    MessageKind current_kind = MessageKind::request;
    bool current_truncated = false;
    bool ended = true;
    bool due = false;
    bool after_gap = false;      // the next message is the first one after lost bytes
    bool loss_unnoted = false;   // ... and so is the next request or response, behind messages of other kinds
    std::uint32_t base_seq = 0;  // raw sequence number of stream offset 0
    MessageRef before = kNoMessage;  // the message before `current`, for late retransmissions
    std::uint64_t before_begin = 0;
    const char* remainder = nullptr;  // name under which bytes outside messages are counted

    // Bytes were lost behind the last request or response.
    bool loss_behind() const noexcept { return after_gap || loss_unnoted; }
};

// Several requests on the way, and bytes that were lost: which answer belongs to which request shows only at a moment
// when it is known how many are open. Until then all that may be shifted is noted here, in stream order.
struct Doubt {
    static constexpr std::size_t kMaxNoted = 4096;    // requests and responses
    static constexpr std::size_t kMaxUnproven = 256;  // the same, as long as there is no sign of several
    struct Response {
        MessageRef row;
        std::int64_t request;  // the estimate
        bool after_loss;       // lost bytes before it may have held more responses
    };
    std::vector<OpenRequest> requests;
    std::vector<Response> responses;
    std::uint64_t lost_packets = 0;        // of the stream to the client, at least
    std::uint64_t lost_request_bytes = 0;  // before `requests`
    bool request_lost = false;  // at least one without an answer stood among lost bytes before `requests`
    bool left_open = false;  // requests stayed open when the client went on: it may not wait for all answers
};

// How many requests are open when the client has read all that was sent and goes on: none for one that waits for the
// answers to a batch, always the same number for one that sends a request for each answer.
class StandingRequests {
public:
    void observe(std::size_t open) noexcept {
        const auto seen = static_cast<std::int32_t>(open < 0xFFFF ? open : 0xFFFF);
        value_ = value_ == kNeverSeen || value_ == seen ? seen : kVarying;
    }
    bool seen() const noexcept { return value_ != kNeverSeen; }
    bool varying() const noexcept { return value_ == kVarying; }
    std::size_t count() const noexcept { return value_ > 0 ? static_cast<std::size_t>(value_) : 0; }

private:
    static constexpr std::int32_t kNeverSeen = -1, kVarying = -2;
    std::int32_t value_ = kNeverSeen;
};

struct Exchange {
    MessageSide side[2];  // by Direction
    RequestQueue requests;
    std::unique_ptr<Doubt> doubt;
    // Behind a start of which requests were lost, or none was seen: nothing says yet that the client had several of them
    // open, and nothing that it had not. Pairs are made as if it had one, and noted.
    std::unique_ptr<Doubt> unproven;
    std::int32_t conn = -1;
    Protocol protocol = Protocol::unknown;
    bool dissector_pairs = false;  // after a loss the dissector knows, or gives up, which request is answered
    bool interleaved = false;      // messages that were begun in one piece go on in pieces
    bool pipelined = false;        // the client was seen to send a request before the answer to the last
    bool pipelines = false;        // the same, ever
    bool endpoint_known = false;
    bool asked_all = false;      // the stream to the server is over
    bool unasked = false;        // a response came before any request that was seen, or may have
    bool lost_inside = false;    // the loss of lost_begin took the end of a message that was begun
    bool keys_may_come = false;  // secrets that are not in the key log may still be written there
    bool keys_awaited =
        false;  // the dissector waits for them: it is to get no more bytes until they are there
    StandingRequests standing;
    std::uint64_t lost_begin = 0;  // last loss in the stream to the client that hid message borders
    std::uint64_t lost_end = 0;
    std::uint64_t request_lost_begin = 0;  // last such loss in the stream to the server; 0 none
    std::uint64_t request_lost_end = 0;
    std::uint64_t answers_at_request_loss =
        0;                            // bytes to the client that the lost ones cannot have asked for
    std::uint64_t mean_answer = 0;    // bytes of a response, running mean
    std::uint64_t endpoint_hash = 0;  // of "addr:port" of the client

    MessageSide& at(Direction d) noexcept { return side[static_cast<unsigned>(d)]; }
    const MessageSide& at(Direction d) const noexcept { return side[static_cast<unsigned>(d)]; }
};

}  // namespace tapscope
