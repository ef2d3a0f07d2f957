// Packets inside packets.
//
// GRE RFC 2784 and 2890, PPTP's RFC 2637, NVGRE RFC 7637; EtherIP RFC 3378; VXLAN RFC 7348 and its generic extension
// draft-ietf-nvo3-vxlan-gpe; GENEVE RFC 8926; GRE and MPLS in UDP RFC 8086 and 7510; TZSP
// https://en.wikipedia.org/wiki/TZSP.
#include "bytes.hpp"
#include "decode/decode.hpp"

namespace tapscope {

//  C . K S flags, version 3 bits | protocol u16 | checksum u16, offset u16 | key u32 | sequence u32
bool PacketDecoder::gre(Rest rest, Segment& segment) {
    if (!enter(Tunnel::gre)) return refuse("decode.too_deep");
    constexpr unsigned kChecksum = 0x8000, kRouting = 0x4000, kKey = 0x2000, kSequence = 0x1000,
                       kAcknowledgement = 0x0080, kVersion = 7;
    if (rest.captured < 4) return unreadable("decode.short_gre");
    const std::uint16_t flags = load_be16(rest.p), protocol = load_be16(rest.p + 2);
    if ((flags & kVersion) == 1) {  // PPTP: the key is a length and a call
        tunnel_ = Tunnel::pptp;
        const std::size_t header = 8u + ((flags & kSequence) ? 4 : 0) + ((flags & kAcknowledgement) ? 4 : 0);
        if (rest.captured < header) return unreadable("decode.short_gre");
        if (rest.length == header) return refuse("decode.gre_acknowledgement");
        note_tap(TapKind::gre, 0);
        return protocol == ether::ppp ? ppp_frame(rest.skip(header), segment)
                                      : unreadable("decode.unknown_ethertype");
    }
    if ((flags & kVersion) != 0) return unreadable("decode.bad_gre");
    if (flags & kRouting) return unreadable("decode.gre_routing");  // RFC 1701, given up by RFC 2784
    std::size_t header = 4 + ((flags & kChecksum) ? 4 : 0);
    const std::size_t key_at = header;
    if (flags & kKey) header += 4;
    if (flags & kSequence) header += 4;
    if (rest.captured < header) return unreadable("decode.short_gre");
    const std::uint32_t key = (flags & kKey) ? load_be32(rest.p + key_at) : 0;
    const Rest inner = rest.skip(header);
    // Type I of ERSPAN has neither a header of its own nor sequence numbers.
    if (protocol == ether::erspan2 || protocol == ether::erspan3) {
        tunnel_ = Tunnel::erspan;
        if (protocol == ether::erspan3) return erspan3(inner, segment);
        if (flags & kSequence) return erspan2(inner, segment);
        note_tap(TapKind::erspan, 0);
        return ethernet(inner, segment);
    }
    // NVGRE has a key and nothing else; its networks are numbered from 0x1000 on, above a byte of flow label.
    if (protocol == ether::bridged && (flags & (kChecksum | kKey | kSequence)) == kKey && key >> 20 != 0) {
        tunnel_ = Tunnel::nvgre;
        note_tap(TapKind::nvgre, key >> 8);
    } else if (flags & kKey) {
        note_tap(TapKind::gre_key, key);
    } else {
        note_tap(TapKind::gre, 0);
    }
    switch (protocol) {
        case ether::ppp:
            return ppp_frame(inner, segment);
        case 0x883e:  // WCCP: version 2 has a word before the packet
            if (inner.captured >= 4 && inner.p[0] >> 4 != 4) return ipv4(inner.skip(4), segment);
            return ipv4(inner, segment);
        case 0:
            return inner.length == 0 ? refuse("decode.gre_keep_alive")
                                     : unreadable("decode.unknown_ethertype");
        default:
            return ether_type(protocol, inner, segment);
    }
}

bool PacketDecoder::udp(Rest rest, Segment& segment) {
    constexpr std::size_t kHeader = 8;
    if (rest.captured < kHeader) return unreadable("decode.short_udp");
    const std::uint16_t port = load_be16(rest.p + 2);
    for (const auto& [known, tunnel] : ports_) {
        if (known != port) continue;
        const Rest inner = rest.skip(kHeader);
        switch (tunnel) {
            case UdpTunnel::vxlan:
            case UdpTunnel::vxlan_gpe:
                // The flag that the network's number is valid, and reserved bytes that are zero.
                if (inner.captured >= 8 && (inner.p[0] & 0x08) && inner.p[7] == 0)
                    return vxlan(inner, tunnel == UdpTunnel::vxlan_gpe, segment);
                break;
            case UdpTunnel::geneve:
                if (inner.captured >= 8 && inner.p[0] >> 6 == 0 && inner.p[7] == 0)
                    return geneve(inner, segment);
                break;
            case UdpTunnel::tzsp:
                if (inner.captured >= 4 && inner.p[0] == 1) return tzsp(inner, segment);
                break;
            case UdpTunnel::gre:
                return gre(inner, segment);
            case UdpTunnel::mpls:
                return mpls(inner, segment);
            case UdpTunnel::gtp:
                if (inner.captured >= 8 && inner.p[0] >> 5 == 1) return refuse("decode.gtp");
                break;
            case UdpTunnel::l2tp:
                return refuse("decode.l2tp");
        }
        break;
    }
    return refuse("decode.udp");
}

//  flags | reserved 3 | network 3 | reserved 1        generic extension: the fourth byte says what follows
bool PacketDecoder::vxlan(Rest rest, bool extended, Segment& segment) {
    if (!enter(Tunnel::vxlan)) return refuse("decode.too_deep");
    const std::uint8_t* p = rest.p;
    note_tap(TapKind::vxlan, load_be32(p + 4) >> 8);
    const Rest inner = rest.skip(8);
    if (!extended && !(p[0] & 0x04)) return ethernet(inner, segment);
    if (p[0] & 0x01) return refuse("decode.tunnel_control");
    switch (p[3]) {
        case 1:
            return ipv4(inner, segment);
        case 2:
            return ipv6(inner, segment);
        case 0:
        case 3:
            return ethernet(inner, segment);
        case 5:
            return mpls(inner, segment);
        default:
            return unreadable("decode.unknown_ethertype");
    }
}

//  version 2 bits, options' length 6 bits in words | O C reserved | protocol u16 | network 3 | reserved 1 | options
bool PacketDecoder::geneve(Rest rest, Segment& segment) {
    if (!enter(Tunnel::geneve)) return refuse("decode.too_deep");
    const std::uint8_t* p = rest.p;
    note_tap(TapKind::geneve, load_be32(p + 4) >> 8);
    const std::size_t header = 8 + std::size_t{p[0] & 0x3fu} * 4;
    if (header > rest.captured) return unreadable("decode.short_geneve");
    if (p[1] & 0x80) return refuse("decode.tunnel_control");
    return ether_type(load_be16(p + 2), rest.skip(header), segment);
}

//  version | type | protocol u16 | tags: number, and unless it is 0 (padding) or 1 (end) a length and that many bytes
bool PacketDecoder::tzsp(Rest rest, Segment& segment) {
    if (!enter(Tunnel::tzsp)) return refuse("decode.too_deep");
    constexpr std::uint8_t kPadding = 0, kEnd = 1;
    constexpr std::uint16_t kEthernet = 1;
    const std::uint8_t type = rest.p[1];
    const std::uint16_t protocol = load_be16(rest.p + 2);
    if (type > 1) return refuse("decode.tunnel_control");  // configuration, keep-alive, port opener
    note_tap(TapKind::tzsp, 0);
    std::size_t at = 4;
    while (true) {
        if (at >= rest.captured) return unreadable("decode.short_tzsp");
        const std::uint8_t tag = rest.p[at++];
        if (tag == kEnd) break;
        if (tag == kPadding) continue;
        if (at >= rest.captured) return unreadable("decode.short_tzsp");
        at += 1 + std::size_t{rest.p[at]};
    }
    if (protocol != kEthernet) return unreadable("decode.wifi");
    return ethernet(rest.skip(at), segment);
}

//  version 3, 12 bits reserved | frame
bool PacketDecoder::ether_ip(Rest rest, Segment& segment) {
    if (!enter(Tunnel::ether_ip)) return refuse("decode.too_deep");
    if (rest.captured < 2) return unreadable("decode.short_ether_ip");
    if (load_be16(rest.p) != 0x3000) return unreadable("decode.bad_ether_ip");
    note_tap(TapKind::ip_in_ip, 0);
    return ethernet(rest.skip(2), segment);
}

}  // namespace tapscope
