// What is known about one TCP connection while it is tracked.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "codes.hpp"
#include "decode/segment.hpp"
#include "dissect/conversation.hpp"
#include "prefetch.hpp"
#include "reassemble/stream.hpp"

namespace tapscope {

inline constexpr std::uint8_t kUnknownSide = 2;
inline constexpr std::int64_t kInWindow = 1 << 24;  // numbers further away are not of the same connection
inline constexpr std::int64_t kInUse_ns = 10'000'000'000;  // one that was silent for longer may be over

// In the order of use: what every segment needs stands in the first cache line, then the streams.
struct alignas(64) Connection {
    FlowKey key;
    std::int64_t id = -1;  // number of the connection since the start; -1: this slot of the pool is free
    std::unique_ptr<Conversation> conversation;  // from the first payload on
    std::uint8_t client_side = kUnknownSide;
    bool plain = false;  // nothing held, both sides anchored and open: the fast path applies
    bool syn_seen = false, syn_ack_seen = false;
    bool reset = false, closing = false, finished = false;
    bool queued = false;         // a look at it is due
    bool awaiting_keys = false;  // the same for secrets
    bool window_closed[2] = {};  // a side announced that its receive buffer is full, and nothing else since
    std::uint32_t events = 0;    // rows of tcp_events
    Stream stream[2];            // by side of the key
    std::int64_t last_ns = -1;
    std::uint64_t hash = 0;
    std::uint32_t generation = 0;  // of this slot of the pool: tells old queue entries
    std::uint16_t tap = 0;         // row in TapPoints: where its first packet was copied
    std::uint16_t also_tap = 0;    // another one that was seen to agree with it
    CloseHow close_how = CloseHow::open;
    std::uint8_t copies_of_one = 0;  // at most so far; more of an acknowledgement are duplicate ones
    std::uint32_t syn_retransmits = 0, duplicates = 0;
    std::uint64_t first_packet = 0;    // number of its first packet
    std::uint64_t closing_packet = 0;  // number of the packet that ended it
    std::int64_t first_ns = -1, syn_ns = -1, established_ns = -1, closed_ns = -1;

    void prefetch() const noexcept {
        prefetch_line(this);
        prefetch_line(&stream[0]);
        prefetch_line(&stream[1]);
        prefetch_line(&last_ns);
    }
    Direction direction(unsigned side) const noexcept {
        return side == client_side ? Direction::to_server : Direction::to_client;
    }
    // The client, or the side that is shown as it: of a connection without payload the lower port is the server's.
    unsigned shown_client() const noexcept {
        return client_side != kUnknownSide ? client_side : key.port_a <= key.port_b ? 1 : 0;
    }
    const Address& address(unsigned side) const noexcept { return side == 0 ? key.a : key.b; }
    std::uint16_t port(unsigned side) const noexcept { return side == 0 ? key.port_a : key.port_b; }
    // Whose FIN came first ends first: who closes tells what it had read.
    std::array<unsigned, 2> ending_order() const noexcept {
        const bool second = stream[0].fin_seen && stream[1].fin_seen && stream[1].fin_ns < stream[0].fin_ns;
        return {second ? 1u : 0u, second ? 0u : 1u};
    }
    bool has_held() const noexcept { return stream[0].has_held() || stream[1].has_held(); }
};

}  // namespace tapscope
