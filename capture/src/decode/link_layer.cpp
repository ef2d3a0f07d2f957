// Frames and tags around IP.
//
// Link types: https://www.tcpdump.org/linktypes.html. Ethernet II, IEEE 802.1Q/802.1ad, 802.1ah; PPP RFC 1661 and 1662;
// PPPoE RFC 2516; MPLS RFC 3032, pseudo-wires RFC 4385 and 4448; PPI https://www.tcpdump.org/linktypes/LINKTYPE_PPI.html.
#include "bytes.hpp"
#include "decode/decode.hpp"

namespace tapscope {
namespace {

constexpr std::size_t kEthernet = 14;

bool plausible_ipv4(const std::uint8_t* p, std::size_t captured, std::size_t length) noexcept {
    if (captured < 20 || p[0] >> 4 != 4 || (p[0] & 15) < 5) return false;
    const std::size_t total = load_be16(p + 2);
    return total >= 20 && total <= length + 4;
}

bool plausible_ipv6(const std::uint8_t* p, std::size_t captured, std::size_t length) noexcept {
    return captured >= 40 && p[0] >> 4 == 6 && std::size_t{load_be16(p + 4)} + 40 <= length + 4;
}

bool plausible_ethernet(const std::uint8_t* p, std::size_t captured) noexcept {
    if (captured < kEthernet) return false;
    switch (load_be16(p + 12)) {
        case ether::ipv4:
        case ether::ipv6:
        case ether::vlan:
        case ether::qinq:
        case ether::mpls:
        case ether::pppoe_session:
        case 0x0806:
            return true;
        default:
            return false;
    }
}

}  // namespace

bool PacketDecoder::link_layer(LinkType link, Rest rest, Segment& segment) {
    switch (link) {
        case LinkType::ethernet:
            return ethernet(rest, segment);
        case LinkType::null:
        case LinkType::loop: {
            if (rest.captured < 4) return unreadable("decode.short_loopback");
            // The address family in the byte order of the host that captured (LOOP: network order). 24, 28 and 30
            // are the numbers of IPv6 in the BSDs.
            std::uint32_t family = load_le32(rest.p);
            if (family > 0xffff) family = load_be32(rest.p);
            if (family == 2) return ipv4(rest.skip(4), segment);
            if (family == 24 || family == 28 || family == 30 || family == 10)
                return ipv6(rest.skip(4), segment);
            return unreadable("decode.unknown_address_family");
        }
        case LinkType::raw:
        case LinkType::raw_bsd:
        case LinkType::raw_openbsd:
        case LinkType::ipv4:
        case LinkType::ipv6:
            return ip(rest, segment);
        case LinkType::linux_cooked:
            if (rest.captured < 16) return unreadable("decode.short_linux_cooked");
            return ether_type(load_be16(rest.p + 14), rest.skip(16), segment);
        case LinkType::linux_cooked2:
            if (rest.captured < 20) return unreadable("decode.short_linux_cooked");
            return ether_type(load_be16(rest.p), rest.skip(20), segment);
        case LinkType::ppp:
        case LinkType::ppp_serial:
        case LinkType::cisco_hdlc:
            return ppp_frame(rest, segment);
        case LinkType::pppoe:
            return pppoe(rest, segment);
        case LinkType::ppi:
            return ppi(rest, segment);
    }
    return unreadable("decode.unknown_link_type");
}

bool PacketDecoder::ethernet(Rest rest, Segment& segment) {
    if (rest.captured < kEthernet) return unreadable("decode.short_ethernet");
    return ether_type(load_be16(rest.p + 12), rest.skip(kEthernet), segment);
}

bool PacketDecoder::ether_type(std::uint16_t type, Rest rest, Segment& segment) {
    std::uint32_t vlans = 0;
    for (int tags = 0;
         type == ether::vlan || type == ether::qinq || type == ether::old_qinq || type == ether::older_qinq;
         ++tags) {
        if (rest.captured < 4) return unreadable("decode.short_vlan");
        if (tags == 8) return unreadable("decode.too_many_vlan_tags");
        if (tags < 2) vlans |= (load_be16(rest.p) & 0xfffu) << (12 * tags);
        type = load_be16(rest.p + 2);
        rest = rest.skip(4);
    }
    if (vlans != 0) note_tap(TapKind::vlan, vlans);
    switch (type) {
        case ether::ipv4:
            return ipv4(rest, segment);
        case ether::ipv6:
            return ipv6(rest, segment);
        case ether::mpls:
        case ether::mpls_multicast:
            return mpls(rest, segment);
        case ether::pppoe_session:
            return pppoe(rest, segment);
        case ether::bridged:
            return ethernet(rest, segment);
        case 0x88e7:  // 802.1ah: a service tag, then the customer's frame
            if (rest.captured < 4) return unreadable("decode.short_vlan");
            return ethernet(rest.skip(4), segment);
        case 0x8926:  // Cisco VN-Tag
            if (rest.captured < 6) return unreadable("decode.short_vlan");
            return ether_type(load_be16(rest.p + 4), rest.skip(6), segment);
        case 0x8909:  // Cisco MetaData: version, length, option, group
            if (rest.captured < 8) return unreadable("decode.short_vlan");
            return ether_type(load_be16(rest.p + 6), rest.skip(8), segment);
        case 0x0806:
            return refuse("decode.arp");
        case 0x8035:
            return refuse("decode.rarp");
        case 0x8863:
            return refuse("decode.pppoe_discovery");
        case 0x88cc:
            return refuse("decode.lldp");
        case 0x8808:
            return refuse("decode.pause_frame");
        case 0x8809:
            return refuse("decode.slow_protocol");
        case 0x888e:
            return refuse("decode.eapol");
        case 0x9000:
            return refuse("decode.loopback_test");
        case 0x88f7:
            return refuse("decode.ptp");
        case 0x88e5:
            return refuse("decode.macsec");
        default:
            return type < 0x600 ? llc(rest, segment) : unreadable("decode.unknown_ethertype");
    }
}

// IEEE 802.2: service access points, and SNAP (RFC 1042) with an ether type.
bool PacketDecoder::llc(Rest rest, Segment& segment) {
    const std::uint8_t* p = rest.p;
    if (rest.captured >= 8 && p[0] == 0xaa && p[1] == 0xaa && p[2] == 3 && p[3] == 0 && p[4] == 0 &&
        p[5] == 0 && load_be16(p + 6) >= 0x600)
        return ether_type(load_be16(p + 6), rest.skip(8), segment);
    return refuse("decode.llc");
}

// PPP, with or without the HDLC-like address and control bytes; Cisco's HDLC, told by its address byte.
bool PacketDecoder::ppp_frame(Rest rest, Segment& segment) {
    if (rest.captured < 4) return unreadable("decode.short_ppp");
    if (rest.p[0] == 0xff && rest.p[1] == 0x03) return ppp(rest.skip(2), segment);
    if ((rest.p[0] == 0x0f || rest.p[0] == 0x8f) && rest.p[1] == 0)
        return ether_type(load_be16(rest.p + 2), rest.skip(4), segment);
    return ppp(rest, segment);
}

bool PacketDecoder::ppp(Rest rest, Segment& segment) {
    if (rest.captured < 2) return unreadable("decode.short_ppp");
    // Protocol field compression: an odd first byte is the whole number.
    const bool one_byte = (rest.p[0] & 1) != 0;
    const std::uint16_t protocol = one_byte ? rest.p[0] : load_be16(rest.p);
    const Rest inner = rest.skip(one_byte ? 1 : 2);
    switch (protocol) {
        case 0x0021:
            return ipv4(inner, segment);
        case 0x0057:
            return ipv6(inner, segment);
        case 0x0281:
        case 0x0283:
            return mpls(inner, segment);
        case 0x003d:
            return unreadable("decode.ppp_multilink");
        case 0x0053:
        case 0x00fd:
            return unreadable("decode.ppp_encrypted_or_compressed");
        default:
            return protocol >= 0x8000 ? refuse("decode.ppp_control")
                                      : unreadable("decode.unknown_ppp_protocol");
    }
}

//  version 1, type 1 | code | session u16 | length u16 | PPP protocol ...
bool PacketDecoder::pppoe(Rest rest, Segment& segment) {
    if (!enter(Tunnel::pppoe)) return refuse("decode.too_deep");
    if (rest.captured < 6) return unreadable("decode.short_pppoe");
    if (rest.p[0] != 0x11) return unreadable("decode.bad_pppoe");
    if (rest.p[1] != 0) return refuse("decode.pppoe_discovery");
    note_tap(TapKind::pppoe, load_be16(rest.p + 2));
    const std::size_t length = load_be16(rest.p + 4);
    rest = rest.skip(6);
    if (length > rest.length) counters_.add("decode.cut_by_mirror", 1, Unit::events);
    // What is behind it is padding of the frame.
    return ppp({rest.p, std::min(rest.captured, length), length}, segment);
}

//  label 20 bits | class 3 | bottom of stack 1 | TTL 8
bool PacketDecoder::mpls(Rest rest, Segment& segment) {
    if (!enter(Tunnel::mpls)) return refuse("decode.too_deep");
    constexpr std::uint32_t kFirstFree = 16;  // smaller labels have meanings of their own, RFC 7274
    std::uint32_t label = 0;
    for (int labels = 0;; ++labels) {
        if (rest.captured < 4) return unreadable("decode.short_mpls");
        if (labels == 16) return unreadable("decode.too_many_mpls_labels");
        const std::uint32_t entry = load_be32(rest.p);
        rest = rest.skip(4);
        if (entry >> 12 >= kFirstFree) label = entry >> 12;
        if (entry & 0x100) break;
    }
    // The innermost label names the service; those around it only the way.
    if (label != 0) note_tap(TapKind::mpls, label);
    // What follows is not said. IP versions tell themselves (RFC 4928); else a pseudo-wire with Ethernet in it, with
    // or without a control word, which begins with a zero nibble.
    if (plausible_ipv4(rest.p, rest.captured, rest.length)) return ipv4(rest, segment);
    if (plausible_ipv6(rest.p, rest.captured, rest.length)) return ipv6(rest, segment);
    if (rest.captured >= 4 && rest.p[0] >> 4 == 0 && plausible_ethernet(rest.p + 4, rest.captured - 4))
        return ethernet(rest.skip(4), segment);
    if (plausible_ethernet(rest.p, rest.captured)) return ethernet(rest, segment);
    if (rest.captured >= 4 && rest.p[0] >> 4 == 1) return refuse("decode.mpls_control");
    return unreadable("decode.mpls");
}

//  version | flags | length u16 | link type u32, little endian | fields | packet
bool PacketDecoder::ppi(Rest rest, Segment& segment) {
    if (rest.captured < 8) return unreadable("decode.short_ppi");
    const std::size_t header = load_le16(rest.p + 2);
    const std::uint32_t link = load_le32(rest.p + 4);
    if (header < 8 || header > rest.length) return unreadable("decode.bad_ppi");
    if (header > rest.captured) return unreadable("decode.short_ppi");
    if (link == 105 || link == 119 || link == 127) return unreadable("decode.wifi");
    if (link > 0xffff || link == static_cast<std::uint32_t>(LinkType::ppi))
        return unreadable("decode.bad_ppi");
    return link_layer(static_cast<LinkType>(link), rest.skip(header), segment);
}

}  // namespace tapscope
