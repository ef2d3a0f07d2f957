// What the Recorder knows about one connection: where messages stand on each side, and which requests are open.
#pragma once

#include <cstdint>
#include <vector>

#include "dissect/dissector.hpp"

namespace tapscope {

struct OpenRequest {
    MessageRef row;
    std::uint64_t begin;     // stream offset of its first byte
    std::uint64_t peer_ack;  // what its first segment acknowledged of the other side
    std::uint32_t tag;       // the dissector's note on how to read the answer
};

// FIFO of requests without a final response. One allocation per connection, reused.
class RequestQueue {
public:
    static constexpr std::size_t kMaxOpen = 4096;
    bool empty() const noexcept { return head_ == items_.size(); }
    std::size_t size() const noexcept { return items_.size() - head_; }
    const OpenRequest& front() const noexcept { return items_[head_]; }
    const OpenRequest& back() const noexcept { return items_.back(); }
    OpenRequest& back() noexcept { return items_.back(); }
    const OpenRequest& at(std::size_t i) const noexcept { return items_[head_ + i]; }
    void pop() noexcept {
        if (++head_ == items_.size()) {
            items_.clear();
            head_ = 0;
        }
    }
    void push(const OpenRequest& request) {
        if (head_ > 64 && head_ * 2 > items_.size()) {
            items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
            head_ = 0;
        }
        items_.push_back(request);
    }

private:
    std::vector<OpenRequest> items_;
    std::size_t head_ = 0;
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
    std::uint64_t current_end = 0;  // valid when ended; may lie beyond `delivered` (then the end time is due)
    std::int64_t current_answers = -1;  // a response: the message that it answers
    MessageKind current_kind = MessageKind::request;
    bool current_truncated = false;
    bool ended = true;
    bool due = false;
    bool after_gap = false;          // the next message is the first one after lost bytes
    std::uint32_t base_seq = 0;      // raw sequence number of stream offset 0
    MessageRef before = kNoMessage;  // the message before `current`, for late retransmissions
    std::uint64_t before_begin = 0;
    const char* remainder = nullptr;  // name under which bytes outside messages are counted
};

struct Exchange {
    MessageSide side[2];  // by Direction
    RequestQueue requests;
    std::int32_t conn = -1;
    Protocol protocol = Protocol::unknown;
    bool pipelined = false;        // the client was seen to send a request before the answer to the last
    std::uint64_t lost_begin = 0;  // last loss in the stream to the client that hid message borders
    std::uint64_t lost_end = 0;
    std::uint64_t request_lost_begin = 0;  // last such loss in the stream to the server; 0 none
    bool lost_inside = false;              // it took the end of a message that was begun
    std::uint64_t mean_answer = 0;         // bytes of a response, running mean
    std::uint64_t endpoint_hash = 0;       // of "addr:port" of the client
    bool endpoint_known = false;

    MessageSide& at(Direction d) noexcept { return side[static_cast<unsigned>(d)]; }
    const MessageSide& at(Direction d) const noexcept { return side[static_cast<unsigned>(d)]; }
};

}  // namespace tapscope
