// IPv4 RFC 791; IPv6 RFC 8200, jumbograms RFC 2675; TCP RFC 9293.
#include "decode/decode.hpp"

#include <algorithm>
#include <cstring>

#include "bytes.hpp"
#include "hash.hpp"

namespace tapscope {
namespace {

constexpr std::uint8_t kTcp = 6;
constexpr int kMaxExtensions = 16;

}  // namespace

bool PacketDecoder::decode(const Packet& packet, Segment& segment) {
    // Ethernet, IPv4 without fragments, TCP: checked as the long way checks it.
    constexpr std::size_t kHeaders = 14 + 20;
    const std::uint8_t* p = packet.data;
    if (packet.link == LinkType::ethernet && packet.captured >= kHeaders && load_be16(p + 12) == ether::ipv4)
        [[likely]] {
        const std::size_t captured = packet.captured - 14;
        const std::size_t length = std::max(packet.length, packet.captured) - std::size_t{14};
        p += 14;
        const std::size_t header = std::size_t{p[0]} % 16 * 4, total = load_be16(p + 2);
        if (p[0] >> 4 == 4 && header >= 20 && header <= captured && header <= total && total <= length &&
            !(load_be16(p + 6) & 0x3fff) && p[9] == kTcp) [[likely]] {
            segment.time_ns = packet.time_ns;
            segment.tap = 0;
            return tcp({p + header, std::min(captured, total) - header, total - header},
                       ipv4_address(load_be32(p + 12)), ipv4_address(load_be32(p + 16)), load_be16(p + 4),
                       segment);
        }
    }
    return anything(packet, segment);
}

bool PacketDecoder::anything(const Packet& packet, Segment& segment) {
    ++packets_;
    time_ns_ = packet.time_ns;
    tap_code_ = 0;
    tap_rank_ = 0;
    depth_ = 0;
    tunnel_ = Tunnel::none;
    const Rest rest{packet.data, packet.captured, std::max(packet.length, packet.captured)};
    const bool found = link_layer(packet.link, rest, segment);
    segment.time_ns = time_ns_;
    segment.tap = 0;
    if (tap_code_ != 0) {
        segment.tap = tap_points_.row(tap_code_);
        if (segment.tap == 0) counters_.add("decode.tap_points_beyond_bound", 1, Unit::events);
        TapPoints::Row& row = tap_points_.at(segment.tap);
        ++row.packets;
        row.bytes += packet.captured;
    }
    return found;
}

bool PacketDecoder::unreadable(const char* name) {
    constexpr const char* kWithoutPacket[] = {
        "",
        "decode.tunnel_without_packet.mpls",
        "decode.tunnel_without_packet.pppoe",
        "decode.tunnel_without_packet.gre",
        "decode.tunnel_without_packet.erspan",
        "decode.tunnel_without_packet.nvgre",
        "decode.tunnel_without_packet.vxlan",
        "decode.tunnel_without_packet.geneve",
        "decode.tunnel_without_packet.tzsp",
        "decode.tunnel_without_packet.ip_in_ip",
        "decode.tunnel_without_packet.ether_ip",
        "decode.tunnel_without_packet.pptp",
    };
    if (tunnel_ != Tunnel::none)
        counters_.add(kWithoutPacket[static_cast<unsigned>(tunnel_)], 1, Unit::events);
    return refuse(name);
}

bool PacketDecoder::other_protocol(std::uint8_t protocol) {
    switch (protocol) {
        case 1:
        case 58:
            return refuse("decode.icmp");
        case 2:
            return refuse("decode.igmp");
        case 50:
        case 51:
            return refuse("decode.ipsec");
        case 59:
            return refuse("decode.ipv6_no_next_header");
        case 88:
            return refuse("decode.eigrp");
        case 89:
            return refuse("decode.ospf");
        case 103:
            return refuse("decode.pim");
        case 112:
            return refuse("decode.vrrp");
        case 115:
            return refuse("decode.l2tp");
        case 132:
            return refuse("decode.sctp");
        default:
            return unreadable("decode.unknown_ip_protocol");
    }
}

bool PacketDecoder::ip(Rest rest, Segment& segment) {
    if (rest.captured < 1) return unreadable("decode.short_ip");
    return rest.p[0] >> 4 == 6 ? ipv6(rest, segment) : ipv4(rest, segment);
}

bool PacketDecoder::ipv4(Rest rest, Segment& segment) {
    const std::uint8_t* p = rest.p;
    if (rest.captured < 20) return unreadable("decode.short_ipv4");
    const std::size_t header = std::size_t{p[0]} % 16 * 4;
    if (p[0] >> 4 != 4 || header < 20) return unreadable("decode.bad_ipv4_header");
    std::size_t total = load_be16(p + 2);
    if (total == 0) {
        // Segmentation offload: the length did not fit or is filled in later. Only packets longer than a segment are
        // handed over like this. What lies behind the TCP header of a shortest frame is not known to be data, and an
        // acknowledgement with its padding is what looks like that.
        constexpr std::size_t kShortest = 46;  // payload of an Ethernet frame
        total = rest.length;
        if (total <= kShortest && p[9] == kTcp && rest.captured > header + 12)
            total = std::min(total, header + std::size_t{p[header + 12]} / 16 * 4);
    }
    if (total < header) return unreadable("decode.bad_ipv4_length");
    if (total > rest.length) {
        // A mirror may cut what it sends; outside of tunnels the frame's length is the truth, and in PPPoE its own.
        if (depth_ > 0 && tunnel_ != Tunnel::pppoe) {
            counters_.add("decode.cut_by_mirror", 1, Unit::events);
        } else {
            counters_.add("decode.ipv4_longer_than_frame", 1, Unit::packets);
            total = rest.length;
        }
    }
    if (rest.captured < header) return unreadable("decode.short_ipv4");
    const Network network{ipv4_address(load_be32(p + 12)), ipv4_address(load_be32(p + 16)), load_be16(p + 4)};
    const Rest inner{p + header, std::min(rest.captured, total) - header, total - header};
    const std::uint16_t place = load_be16(p + 6);
    if (place & 0x3fff)  // more fragments, or an offset
        return fragment({network.source, network.target, network.ip_id, tap_code_, p[9]},
                        {inner.p, inner.captured, inner.length, std::size_t{place & 0x1fffu} * 8,
                         (place & 0x2000) != 0, p[9]},
                        network, segment);
    return ip_payload(p[9], inner, network, segment);
}

bool PacketDecoder::ipv6(Rest rest, Segment& segment) {
    const std::uint8_t* p = rest.p;
    if (rest.captured < 40) return unreadable("decode.short_ipv6");
    if (p[0] >> 4 != 6) return unreadable("decode.bad_ipv6_header");
    std::size_t total = 40 + std::size_t{load_be16(p + 4)};
    if (total == 40 && rest.length > 40) total = rest.length;  // jumbogram or segmentation offload
    if (total > rest.length) {
        if (depth_ > 0 && tunnel_ != Tunnel::pppoe) {
            counters_.add("decode.cut_by_mirror", 1, Unit::events);
        } else {
            counters_.add("decode.ipv6_longer_than_frame", 1, Unit::packets);
            total = rest.length;
        }
    }
    const Network network{{load_be64(p + 8), load_be64(p + 16)}, {load_be64(p + 24), load_be64(p + 32)}, 0};
    return ipv6_payload(p[6], {p + 40, std::min(rest.captured, total) - 40, total - 40}, network, segment);
}

bool PacketDecoder::ipv6_payload(std::uint8_t next, Rest rest, const Network& network, Segment& segment) {
    constexpr std::uint8_t kHopByHop = 0, kRouting = 43, kFragment = 44, kAuthentication = 51,
                           kDestination = 60;
    for (int passed = 0;; ++passed) {
        const std::uint8_t* p = rest.p;
        if (next != kHopByHop && next != kRouting && next != kFragment && next != kDestination &&
            next != kAuthentication)
            return ip_payload(next, rest, network, segment);
        if (passed == kMaxExtensions) return unreadable("decode.too_many_ipv6_extensions");
        if (rest.captured < 8) return unreadable("decode.short_ipv6_extension");
        if (next == kFragment) {
            const std::uint16_t place = load_be16(p + 2);
            if (place & 0xfff9) {  // offset 0 without more fragments is a whole packet
                const Rest inner = rest.skip(8);
                return fragment({network.source, network.target, load_be32(p + 4), tap_code_, 0},
                                {inner.p, inner.captured, inner.length, std::size_t{place & 0xfff8u},
                                 (place & 1) != 0, p[0]},
                                network, segment);
            }
        }
        const std::size_t size = next == kFragment         ? 8
                                 : next == kAuthentication ? (std::size_t{p[1]} + 2) * 4
                                                           : (std::size_t{p[1]} + 1) * 8;
        next = p[0];
        if (rest.captured < size) return unreadable("decode.short_ipv6_extension");
        rest = rest.skip(size);
    }
}

bool PacketDecoder::fragment(const FragmentKey& key, const Fragment& part, const Network& network,
                             Segment& segment) {
    std::optional<Fragments::Whole> whole = fragments_.add(key, part, time_ns_);
    if (!whole) return false;
    // One buffer a packet: of datagrams in datagrams only the last one is still needed.
    std::vector<std::uint8_t>& kept = kept_[packets_ % kPayloadsKept];
    kept = std::move(whole->bytes);
    const Rest rest{kept.data(), kept.size(), whole->length};
    if (++depth_ > kMaxTunnels) return refuse("decode.too_deep");
    const bool found = key.source.is_ipv4() ? ip_payload(whole->protocol, rest, network, segment)
                                            : ipv6_payload(whole->protocol, rest, network, segment);
    if (found) segment.flags |= tcp_flag::fleeting;
    return found;
}

bool PacketDecoder::ip_payload(std::uint8_t protocol, Rest rest, const Network& network, Segment& segment) {
    switch (protocol) {
        case kTcp:
            return tcp(rest, network.source, network.target, network.ip_id, segment);
        case 17:
            return udp(rest, segment);
        case 4:   // IPv4 in IP, RFC 2003
        case 41:  // IPv6 in IP, RFC 4213 and RFC 2473
            if (!enter(Tunnel::ip_in_ip)) return refuse("decode.too_deep");
            note_tap(TapKind::ip_in_ip, 0);
            return protocol == 4 ? ipv4(rest, segment) : ipv6(rest, segment);
        case 47:
            return gre(rest, segment);
        case 97:
            return ether_ip(rest, segment);
        case 137:  // RFC 4023
            return mpls(rest, segment);
        default:
            return other_protocol(protocol);
    }
}

bool PacketDecoder::tcp(Rest rest, const Address& source, const Address& target, std::uint16_t ip_id,
                        Segment& segment) {
    const std::uint8_t* p = rest.p;
    if (rest.captured < 20) return unreadable("decode.short_tcp");
    const std::size_t header = std::size_t{p[12]} / 16 * 4;
    if (header < 20 || header > rest.length) return unreadable("decode.bad_tcp_header");
    // A snap length of 64 leaves addresses, ports and numbers, but not all options: the segment is known, its bytes are
    // missing.
    const bool whole = header <= rest.captured;
    if (!whole) [[unlikely]]
        counters_.add("decode.tcp_options_cut", 1, Unit::events);
    const std::uint16_t source_port = load_be16(p), target_port = load_be16(p + 2);
    segment.ip_id = ip_id;
    segment.seq = load_be32(p + 4);
    segment.ack = load_be32(p + 8);
    const bool closed_window = load_be16(p + 14) == 0;
    segment.flags = static_cast<std::uint8_t>((p[13] & ~(tcp_flag::closed_window | tcp_flag::fleeting)) |
                                              (closed_window ? tcp_flag::closed_window : 0));
    const std::size_t seen = whole ? header : rest.captured;
    segment.payload = p + seen;
    segment.captured = static_cast<std::uint32_t>(rest.captured - seen);
    segment.missing = static_cast<std::uint32_t>(rest.length - (whole ? rest.captured : header));
    const std::uint64_t last =
        header >= 28 && whole ? load_host<std::uint64_t>(p + header - 8) : 0;  // usually the timestamps
    segment.header_mix = static_cast<std::uint32_t>(mix64(load_host<std::uint64_t>(p + 8), last));

    segment.hash = flow_hash(source, source_port, target, target_port);
    const bool first = source != target ? source < target : source_port <= target_port;
    segment.side = first ? 0 : 1;
    segment.key = first ? FlowKey{source, target, source_port, target_port, 0}
                        : FlowKey{target, source, target_port, source_port, 0};
    return true;
}

}  // namespace tapscope
