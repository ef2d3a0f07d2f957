// Ethernet II, IEEE 802.1Q/802.1ad; Linux cooked: https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL.html and
// LINKTYPE_LINUX_SLL2.html; IPv4 RFC 791; IPv6 RFC 8200, jumbograms RFC 2675; TCP RFC 9293.
#include "decode/decode.hpp"

#include <algorithm>
#include <cstring>

#include "bytes.hpp"
#include "hash.hpp"

namespace tapscope {
namespace {

constexpr std::uint16_t kIpv4 = 0x0800, kIpv6 = 0x86dd, kVlan = 0x8100, kQinQ = 0x88a8, kOldQinQ = 0x9100;
constexpr std::uint8_t kTcp = 6;
constexpr int kMaxExtensions = 16;

}  // namespace

bool PacketDecoder::decode(const Packet& packet, Segment& segment) {
    segment.time_ns = packet.time_ns;
    tap_point_ = 0;
    const Rest rest{packet.data, packet.captured, std::max(packet.length, packet.captured)};
    if (packet.link == LinkType::ethernet && rest.captured >= 14) [[likely]] {
        const std::uint16_t type = load_be16(rest.p + 12);
        const Rest inner{rest.p + 14, rest.captured - 14, rest.length - 14};
        return type == kIpv4 ? ipv4(inner, segment) : ether_type(type, inner, segment);
    }
    return link_layer(packet, rest, segment);
}

bool PacketDecoder::link_layer(const Packet& packet, Rest rest, Segment& segment) {
    const auto skip = [&](std::size_t n) { return Rest{rest.p + n, rest.captured - n, rest.length - n}; };
    switch (packet.link) {
        case LinkType::ethernet:
            return refuse("decode.short_ethernet");
        case LinkType::null:
        case LinkType::loop: {
            if (rest.captured < 4) return refuse("decode.short_loopback");
            // The address family in the byte order of the host that captured (LOOP: network order). 24, 28 and 30
            // are the numbers of IPv6 in the BSDs.
            std::uint32_t family = load_le32(rest.p);
            if (family > 0xffff) family = load_be32(rest.p);
            if (family == 2) return ipv4(skip(4), segment);
            if (family == 24 || family == 28 || family == 30 || family == 10) return ipv6(skip(4), segment);
            return refuse("decode.unknown_address_family");
        }
        case LinkType::raw:
        case LinkType::raw_bsd:
        case LinkType::raw_openbsd:
        case LinkType::ipv4:
        case LinkType::ipv6:
            if (rest.captured < 1) return refuse("decode.short_ip");
            return rest.p[0] >> 4 == 6 ? ipv6(rest, segment) : ipv4(rest, segment);
        case LinkType::linux_cooked:
            if (rest.captured < 16) return refuse("decode.short_linux_cooked");
            return ether_type(load_be16(rest.p + 14), skip(16), segment);
        case LinkType::linux_cooked2:
            if (rest.captured < 20) return refuse("decode.short_linux_cooked");
            return ether_type(load_be16(rest.p), skip(20), segment);
    }
    return refuse("decode.unknown_link_type");
}

bool PacketDecoder::ether_type(std::uint16_t type, Rest rest, Segment& segment) {
    for (int tags = 0; type == kVlan || type == kQinQ || type == kOldQinQ; ++tags) {
        if (rest.captured < 4) return refuse("decode.short_vlan");
        if (tags == 0) tap_point_ = load_be16(rest.p) & 0xfff;  // the outer tag names the tap point
        if (tags == 8) return refuse("decode.too_many_vlan_tags");
        type = load_be16(rest.p + 2);
        rest = {rest.p + 4, rest.captured - 4, rest.length - 4};
    }
    switch (type) {
        case kIpv4:
            return ipv4(rest, segment);
        case kIpv6:
            return ipv6(rest, segment);
        case 0x0806:
            return refuse("decode.arp");
        case 0x8035:
            return refuse("decode.rarp");
        case 0x8847:
        case 0x8848:
            return refuse("decode.mpls");
        case 0x8863:
        case 0x8864:
            return refuse("decode.pppoe");
        case 0x88cc:
            return refuse("decode.lldp");
        case 0x8808:
            return refuse("decode.pause_frame");
        case 0x88e5:
            return refuse("decode.macsec");
        default:
            return refuse(type < 0x600 ? "decode.llc" : "decode.unknown_ethertype");
    }
}

bool PacketDecoder::other_protocol(std::uint8_t protocol) {
    switch (protocol) {
        case 1:
        case 58:
            return refuse("decode.icmp");
        case 2:
            return refuse("decode.igmp");
        case 4:
        case 41:
            return refuse("decode.ip_in_ip");
        case 17:
            return refuse("decode.udp");
        case 47:
            return refuse("decode.gre");
        case 50:
        case 51:
            return refuse("decode.ipsec");
        case 59:
            return refuse("decode.ipv6_no_next_header");
        case 89:
            return refuse("decode.ospf");
        case 103:
            return refuse("decode.pim");
        case 112:
            return refuse("decode.vrrp");
        case 132:
            return refuse("decode.sctp");
        default:
            return refuse("decode.unknown_ip_protocol");
    }
}

bool PacketDecoder::ipv4(Rest rest, Segment& segment) {
    const std::uint8_t* p = rest.p;
    if (rest.captured < 20) return refuse("decode.short_ipv4");
    const std::size_t header = std::size_t{p[0]} % 16 * 4;
    if (p[0] >> 4 != 4 || header < 20) return refuse("decode.bad_ipv4_header");
    std::size_t total = load_be16(p + 2);
    if (total == 0)
        total = rest.length;  // segmentation offload: the length did not fit or is filled in later
    if (total < header) return refuse("decode.bad_ipv4_length");
    if (total > rest.length) {
        counters_.add("decode.ipv4_longer_than_frame", 1, Unit::packets);
        total = rest.length;
    }
    if (load_be16(p + 6) & 0x3fff) return refuse("decode.ipv4_fragment");  // more fragments, or an offset
    if (p[9] != kTcp) return other_protocol(p[9]);
    if (rest.captured < header) return refuse("decode.short_ipv4");
    segment.ip_id = load_be16(p + 4);
    return tcp({p + header, std::min(rest.captured, total) - header, total - header},
               ipv4_address(load_be32(p + 12)), ipv4_address(load_be32(p + 16)), segment);
}

bool PacketDecoder::ipv6(Rest rest, Segment& segment) {
    const std::uint8_t* p = rest.p;
    if (rest.captured < 40) return refuse("decode.short_ipv6");
    if (p[0] >> 4 != 6) return refuse("decode.bad_ipv6_header");
    std::size_t total = 40 + std::size_t{load_be16(p + 4)};
    if (total == 40 && rest.length > 40) total = rest.length;  // jumbogram or segmentation offload
    if (total > rest.length) {
        counters_.add("decode.ipv6_longer_than_frame", 1, Unit::packets);
        total = rest.length;
    }
    const Address source{load_be64(p + 8), load_be64(p + 16)}, target{load_be64(p + 24), load_be64(p + 32)};
    const std::size_t captured = std::min(rest.captured, total);
    std::uint8_t next = p[6];
    std::size_t at = 40;
    for (int i = 0; i < kMaxExtensions; ++i) {
        if (next == kTcp) {
            segment.ip_id = 0;
            return tcp({p + at, captured - at, total - at}, source, target, segment);
        }
        if (next != 0 && next != 43 && next != 44 && next != 60 && next != 51) return other_protocol(next);
        if (captured < at + 8) return refuse("decode.short_ipv6_extension");
        if (next == 44) {  // fragment header; offset 0 without more fragments is a whole packet
            if (load_be16(p + at + 2) & 0xfff9) return refuse("decode.ipv6_fragment");
        }
        const std::size_t size = next == 44   ? 8
                                 : next == 51 ? (std::size_t{p[at + 1]} + 2) * 4
                                              : (std::size_t{p[at + 1]} + 1) * 8;
        next = p[at];
        if (captured < at + size) return refuse("decode.short_ipv6_extension");
        at += size;
    }
    return refuse("decode.too_many_ipv6_extensions");
}

bool PacketDecoder::tcp(Rest rest, const Address& source, const Address& target, Segment& segment) {
    const std::uint8_t* p = rest.p;
    if (rest.captured < 20) return refuse("decode.short_tcp");
    const std::size_t header = std::size_t{p[12]} / 16 * 4;
    if (header < 20 || header > rest.length) return refuse("decode.bad_tcp_header");
    if (header > rest.captured) return refuse("decode.short_tcp");
    const std::uint16_t source_port = load_be16(p), target_port = load_be16(p + 2);
    segment.seq = load_be32(p + 4);
    segment.ack = load_be32(p + 8);
    segment.flags = p[13];
    segment.payload = p + header;
    segment.captured = static_cast<std::uint32_t>(rest.captured - header);
    segment.missing = static_cast<std::uint32_t>(rest.length - rest.captured);
    const std::uint64_t last =
        header >= 28 ? load_host<std::uint64_t>(p + header - 8) : 0;  // usually the timestamps
    segment.header_mix = static_cast<std::uint32_t>(mix64(load_host<std::uint64_t>(p + 8), last));

    const std::uint64_t x =
        source.low * 0x9E3779B97F4A7C15u + source.high * 0xC2B2AE3D27D4EB4Fu + source_port;
    const std::uint64_t y =
        target.low * 0x9E3779B97F4A7C15u + target.high * 0xC2B2AE3D27D4EB4Fu + target_port;
    segment.hash = mix64(x + y + tap_point_, x ^ y);  // the same for both directions
    const bool first = source != target ? source < target : source_port <= target_port;
    segment.side = first ? 0 : 1;
    segment.key = first ? FlowKey{source, target, source_port, target_port, tap_point_}
                        : FlowKey{target, source, target_port, source_port, tap_point_};
    return true;
}

}  // namespace tapscope
