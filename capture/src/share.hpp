// Which of several engines looks after a flow: told from addresses and ports alone, the same for both directions and at
// every tap point.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "bytes.hpp"
#include "decode/decode.hpp"
#include "decode/segment.hpp"
#include "source/packet.hpp"

namespace tapscope {

inline constexpr std::uint8_t kEverybody = 0xff;  // an owner that only full decoding tells, if there is one

// A packet of a batch that one engine has to look at.
struct Turn {
    std::uint32_t packet;    // index in the batch
    bool plain;              // its own; otherwise only decoding tells
    std::int64_t latest_ns;  // of the plain segments before it in the batch
};

struct Share {
    std::uint8_t mine = 0;
    std::uint8_t of = 1;
    std::span<const std::uint16_t> together;  // ports whose flows between two hosts have one owner

    std::uint8_t owner(const Address& source, std::uint16_t source_port, const Address& target,
                       std::uint16_t target_port) const noexcept {
        for (const std::uint16_t port : together)
            if (source_port == port || target_port == port) source_port = target_port = port;
        // The upper bits: flow tables use the lower ones.
        const std::uint64_t hash = flow_hash(source, source_port, target, target_port);
        return static_cast<std::uint8_t>((hash >> 40) * of >> 24);
    }
    std::uint8_t owner(const Segment& segment) const noexcept {
        return owner(segment.key.a, segment.key.port_a, segment.key.b, segment.key.port_b);
    }

    // Of a plain segment (Ethernet, IPv4, TCP, whole headers) that is no SYN; kEverybody for all other packets. What
    // this calls plain PacketDecoder::decode takes without counting anything.
    std::uint8_t owner(const Packet& packet) const noexcept {
        constexpr std::size_t kEthernet = 14, kIp = 20, kTcp = 20;
        const std::uint8_t* p = packet.data;
        if (packet.link != LinkType::ethernet || packet.captured < kEthernet + kIp + kTcp) return kEverybody;
        if (load_be16(p + 12) != ether::ipv4) return kEverybody;
        p += kEthernet;
        const std::size_t captured = packet.captured - kEthernet;
        const std::size_t length = std::max(packet.length, packet.captured) - kEthernet;
        const std::size_t header = std::size_t{p[0]} % 16 * 4, total = load_be16(p + 2);
        if (p[0] >> 4 != 4 || header < kIp || total > length || header + kTcp > std::min(captured, total))
            return kEverybody;
        if ((load_be16(p + 6) & 0x3fff) != 0 || p[9] != 6) return kEverybody;
        const std::uint8_t* tcp = p + header;
        const std::size_t tcp_header = std::size_t{tcp[12]} / 16 * 4;
        if (tcp_header < kTcp || header + tcp_header > std::min(captured, total)) return kEverybody;
        if (tcp[13] & tcp_flag::syn) return kEverybody;
        return owner(ipv4_address(load_be32(p + 12)), load_be16(tcp), ipv4_address(load_be32(p + 16)),
                     load_be16(tcp + 2));
    }
};

}  // namespace tapscope
