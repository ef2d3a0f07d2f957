// One TCP segment of one packet, as the decoder hands it to reassembly.
#pragma once

#include <cstdint>

#include "hash.hpp"

namespace tapscope {

// An address as two host-order words; IPv4 is mapped (::ffff:a.b.c.d), so that one compare serves both.
struct Address {
    std::uint64_t high = 0, low = 0;
    friend bool operator==(const Address&, const Address&) = default;
    friend auto operator<=>(const Address&, const Address&) = default;
    bool is_ipv4() const noexcept { return high == 0 && low >> 32 == 0xffff; }
};

inline Address ipv4_address(std::uint32_t host_order) noexcept { return {0, 0xffff'0000'0000u | host_order}; }

// Both ends of a connection in canonical order, so that both directions have one key. A connection is the same
// wherever it is seen; `space` tells apart connections of the same addresses and ports that were shown to be different
// ones (tenants of an overlay that use the same addresses), and is 0 otherwise.
struct FlowKey {
    Address a, b;  // (a, port_a) <= (b, port_b)
    std::uint16_t port_a = 0, port_b = 0;
    std::uint32_t space = 0;
    // All words together: a packet's key is equal as a rule, so that a step for each would only cost.
    friend bool operator==(const FlowKey& x, const FlowKey& y) noexcept {
        const auto apart = [](const Address& p, const Address& q) {
            return (p.high ^ q.high) | (p.low ^ q.low);
        };
        const auto rest = [](const FlowKey& key) {
            return std::uint64_t{key.space} << 32 | std::uint32_t{key.port_a} << 16 | key.port_b;
        };
        return (apart(x.a, y.a) | apart(x.b, y.b) | (rest(x) ^ rest(y))) == 0;
    }
};

// The same for both directions.
inline std::uint64_t flow_hash(const Address& source, std::uint16_t source_port, const Address& target,
                               std::uint16_t target_port) noexcept {
    const std::uint64_t x =
        source.low * 0x9E3779B97F4A7C15u + source.high * 0xC2B2AE3D27D4EB4Fu + source_port;
    const std::uint64_t y =
        target.low * 0x9E3779B97F4A7C15u + target.high * 0xC2B2AE3D27D4EB4Fu + target_port;
    return mix64(x + y, x ^ y);
}

namespace tcp_flag {
inline constexpr std::uint8_t fin = 1, syn = 2, rst = 4, psh = 8, ack = 16, urg = 32;
// Ours, in the place of CWR, which nothing here asks for: the receive window is closed.
inline constexpr std::uint8_t closed_window = 128;
// Ours, in the place of ECE: the payload is in one of PacketDecoder::kPayloadsKept buffers, and soon is not any more.
inline constexpr std::uint8_t fleeting = 64;
}  // namespace tcp_flag

struct Segment {
    FlowKey key;
    std::uint64_t hash;  // of the key
    std::int64_t time_ns;
    const std::uint8_t*
        payload;  // points into the source's buffer, or one of PacketDecoder::kPayloadsKept of its own
    std::uint32_t captured;  // payload bytes at `payload`
    std::uint32_t missing;   // payload bytes behind them that the snap length cut off
    std::uint32_t seq, ack;
    std::uint32_t header_mix;  // of acknowledgement, window and options: tells a copy from a retransmission
    std::uint16_t ip_id;       // 0 for IPv6
    std::uint8_t flags;
    std::uint8_t side;  // 0: sent by a, 1: sent by b
    std::uint16_t tap;  // row in TapPoints: where it was copied

    std::uint32_t length() const noexcept { return captured + missing; }
};

}  // namespace tapscope
