// One direction of a connection: where its bytes stand, and the segments that wait for bytes before them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "decode/segment.hpp"

namespace tapscope {

// A copy of payload that could not be delivered when it came.
struct HeldSegment {
    std::uint64_t offset = 0;    // stream offset of the first byte
    std::uint32_t captured = 0;  // bytes in `data`
    std::uint32_t missing = 0;   // bytes behind them that the snap length cut off
    std::int64_t time_ns = 0;
    std::uint64_t order = 0;  // number of its packet
    std::uint32_t ack = 0;    // raw
    bool has_ack = false;
    bool retransmitted = false;
    std::unique_ptr<std::uint8_t[]> data;
    std::uint64_t end() const noexcept { return offset + captured + missing; }
};

// Invariant: sorted by offset, disjoint. Overlap policy: the bytes seen first stay.
class HeldSegments {
public:
    struct Added {
        std::uint64_t bytes = 0;    // bytes that are new
        std::uint64_t overlap = 0;  // bytes that were already held
    };
    Added add(std::uint64_t offset, const Segment& segment, std::uint64_t order);
    bool empty() const noexcept { return head_ == items_.size(); }
    std::size_t size() const noexcept { return items_.size() - head_; }
    std::uint64_t last_end() const noexcept { return items_.back().end(); }
    HeldSegment& front() noexcept { return items_[head_]; }
    const HeldSegment& front() const noexcept { return items_[head_]; }
    const HeldSegment& back() const noexcept { return items_.back(); }
    HeldSegment take_front();
    // Marks what lies in [begin, end) as sent again at `time_ns`; the earliest copy gives the time.
    void retransmitted(std::uint64_t begin, std::uint64_t end, std::int64_t time_ns) noexcept;
    // What lies in [begin, end) came at `time_ns` already.
    void stamped_earlier(std::uint64_t begin, std::uint64_t end, std::int64_t time_ns) noexcept;
    // Stream offset 0 moves to `origin`: what lies before it is cut off. Returns the bytes that were dropped.
    std::uint64_t rebase(std::uint64_t origin);
    std::uint64_t bytes() const noexcept { return bytes_; }
    auto begin() const noexcept { return items_.begin() + static_cast<std::ptrdiff_t>(head_); }
    auto end() const noexcept { return items_.end(); }

private:
    std::vector<HeldSegment> items_;
    std::size_t head_ = 0;
    std::uint64_t bytes_ = 0;  // captured bytes held
};

// Sequence numbers are compared modulo 2^32 (RFC 9293, section 3.4) by unwrapping them around `next`.
struct Stream {
    static constexpr std::uint64_t kProvisional =
        1u << 24;  // offset given to the first byte seen before the start is known

    std::uint32_t base_seq = 0;  // raw sequence number of offset 0
    // Bits, as a million of these are kept.
    bool based : 1 = false;     // base_seq is set, perhaps provisionally
    bool anchored : 1 = false;  // offset 0 is known to be the start of the stream (or was declared to be)
    bool fin_seen : 1 = false, ended : 1 = false;
    bool fin_inferred : 1 =
        false;                // the peer acknowledges one byte more than there is: a FIN that was not seen
    bool absent : 1 = false;  // no packet of this side was ever seen: do not wait for any
    bool first_ack_known : 1 = false;
    bool duplicate_ack : 1 = false;  // the peer acknowledged again what it had, while there was more
    bool syn_ack : 1 = false;        // its SYN acknowledged one
    bool far_acked : 1 = false;      // the peer has acknowledged far_next
    std::uint8_t far = 0;            // segments in a row that follow one another far from here, saturating
    std::uint32_t far_next = 0;      // one past the last of them, raw
    std::uint32_t first_ack = 0;     // lowest acknowledgement of it seen before it was anchored, raw
    std::uint32_t last_ack = 0;      // highest one before it was based, raw
    std::uint32_t packets = 0;       // saturating
    std::uint32_t retransmits = 0;
    std::uint32_t zero_windows = 0;  // its segments that announce a closed receive window
    std::uint64_t next = 0;          // everything before was delivered or declared missing
    std::uint64_t acked = 0;         // highest offset that the other side acknowledged
    std::uint64_t stuck_ack = 0;     // acknowledged without having been seen, since packet `stuck_packet`
    std::uint64_t stuck_packet = 0;
    std::uint64_t fin_at = 0;  // offset of the FIN
    std::int64_t fin_ns = -1;
    std::uint32_t fin_ack = 0;
    std::uint32_t duplicate_ack_us = 0;
    std::uint64_t seen = 0;     // bytes delivered
    std::uint64_t missing = 0;  // bytes declared missing
    std::unique_ptr<HeldSegments> held;

    // One past the last byte seen.
    std::uint64_t highest() const noexcept { return has_held() ? std::max(next, held->last_end()) : next; }
    // Distance of a raw number from `next`.
    std::int32_t from_next(std::uint32_t seq) const noexcept {
        return static_cast<std::int32_t>(seq - (base_seq + static_cast<std::uint32_t>(next)));
    }
    bool has_held() const noexcept { return held != nullptr && !held->empty(); }
    void base_provisionally(std::uint32_t seq) noexcept {
        base_seq = seq - static_cast<std::uint32_t>(kProvisional);
        next = kProvisional;
        based = true;
    }
    // Offset 0 becomes what is `origin` now. Returns bytes held that lie before it and were dropped.
    std::uint64_t anchor(std::uint64_t origin);
};

}  // namespace tapscope
