// Link layer, tags, tunnels, IP and TCP headers of one packet. What holds no TCP segment is counted by name.
//
// Plain Ethernet with IPv4 and TCP goes a short way of its own; everything else goes through link_layer.cpp (frames
// and tags), tunnels.cpp (packets inside packets), erspan.cpp and fragments.cpp.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "counters.hpp"
#include "decode/fragments.hpp"
#include "decode/segment.hpp"
#include "decode/tap_point.hpp"
#include "source/packet.hpp"

namespace tapscope {

enum class UdpTunnel : std::uint8_t { vxlan, vxlan_gpe, geneve, tzsp, gre, mpls, gtp, l2tp };

// UDP ports by which a tunnel is known, beside its header. The assigned ones and, for VXLAN, the one that Linux used
// before there was one.
using TunnelPorts = std::vector<std::pair<std::uint16_t, UdpTunnel>>;
inline TunnelPorts assigned_tunnel_ports() {
    return {{4789, UdpTunnel::vxlan},  {8472, UdpTunnel::vxlan}, {4790, UdpTunnel::vxlan_gpe},
            {6081, UdpTunnel::geneve}, {37008, UdpTunnel::tzsp}, {4754, UdpTunnel::gre},
            {6635, UdpTunnel::mpls},   {2152, UdpTunnel::gtp},   {1701, UdpTunnel::l2tp}};
}

class PacketDecoder {
public:
    PacketDecoder(Counters& counters, TapPoints& tap_points, TunnelPorts ports = assigned_tunnel_ports())
        : counters_(counters), tap_points_(tap_points), fragments_(counters), ports_(std::move(ports)) {}

    // True and a filled `segment` for a TCP segment; false when the packet was counted as something else. The payload
    // lies in the packet, or in a buffer of the decoder that stays for kPayloadsKept calls.
    bool decode(const Packet& packet, Segment& segment);
    // The end of the input: counts the fragments that never made a datagram.
    void finish() { fragments_.finish(); }

    static constexpr std::size_t kPayloadsKept = 32;
    static constexpr int kMaxTunnels = 8;  // inside one another

private:
    // The bytes of one packet that are left to decode.
    struct Rest {
        const std::uint8_t* p;
        std::size_t captured;  // bytes at `p`
        std::size_t length;    // bytes on the wire from `p` on
        Rest skip(std::size_t n) const noexcept { return {p + n, captured - n, length - n}; }
    };
    // Fields of the IP header that its payload's decoding needs.
    struct Network {
        Address source, target;
        std::uint16_t ip_id;
    };
    // By these the tunnel is named that had no packet inside; the last one entered counts.
    enum class Tunnel : std::uint8_t {
        none,
        mpls,
        pppoe,
        gre,
        erspan,
        nvgre,
        vxlan,
        geneve,
        tzsp,
        ip_in_ip,
        ether_ip,
        pptp
    };

    // decode.cpp
    bool anything(const Packet& packet, Segment& segment);
    bool ip(Rest rest, Segment& segment);
    bool ipv4(Rest rest, Segment& segment);
    bool ipv6(Rest rest, Segment& segment);
    bool ipv6_payload(std::uint8_t next, Rest rest, const Network& network, Segment& segment);
    bool ip_payload(std::uint8_t protocol, Rest rest, const Network& network, Segment& segment);
    bool fragment(const FragmentKey& key, const Fragment& fragment, const Network& network, Segment& segment);
    // Always in line: its arguments would pass through memory, written in parts and read in wider words, for which the
    // processor waits.
    [[gnu::always_inline]] inline bool tcp(Rest rest, const Address& source, const Address& target,
                                           std::uint16_t ip_id, Segment& segment);
    bool other_protocol(std::uint8_t protocol);

    // link_layer.cpp
    bool link_layer(LinkType link, Rest rest, Segment& segment);
    bool ethernet(Rest rest, Segment& segment);
    bool ether_type(std::uint16_t type, Rest rest, Segment& segment);
    bool llc(Rest rest, Segment& segment);
    bool ppp_frame(Rest rest, Segment& segment);
    bool ppp(Rest rest, Segment& segment);
    bool pppoe(Rest rest, Segment& segment);
    bool mpls(Rest rest, Segment& segment);
    bool ppi(Rest rest, Segment& segment);

    // tunnels.cpp
    bool gre(Rest rest, Segment& segment);
    bool udp(Rest rest, Segment& segment);
    bool vxlan(Rest rest, bool extended, Segment& segment);
    bool geneve(Rest rest, Segment& segment);
    bool tzsp(Rest rest, Segment& segment);
    bool ether_ip(Rest rest, Segment& segment);

    // erspan.cpp
    bool erspan2(Rest rest, Segment& segment);
    bool erspan3(Rest rest, Segment& segment);
    void take_switch_time(unsigned granularity, std::uint32_t stamp, const std::uint8_t* subheader);

    // One level deeper. False when there are too many levels.
    bool enter(Tunnel tunnel) noexcept {
        tunnel_ = tunnel;
        return ++depth_ <= kMaxTunnels;
    }
    void note_tap(TapKind kind, std::uint32_t id) noexcept {
        if (tap_rank(kind) <= tap_rank_) return;
        tap_rank_ = tap_rank(kind);
        tap_code_ = tap_code(kind, id);
    }
    // A packet that was read as far as to know that no TCP segment is in it.
    bool refuse(const char* name) {
        counters_.add(name, 1, Unit::packets);
        return false;
    }
    // A packet that cannot be read; inside a tunnel that is said of the tunnel too.
    bool unreadable(const char* name);

    Counters& counters_;
    TapPoints& tap_points_;
    Fragments fragments_;
    TunnelPorts ports_;
    std::array<std::vector<std::uint8_t>, kPayloadsKept> kept_;  // whole datagrams, in turn
    std::size_t packets_ = 0;                                    // that took the long way
    // Of the packet that is being decoded:
    std::int64_t time_ns_ = 0;
    std::uint32_t tap_code_ = 0;
    unsigned tap_rank_ = 0;
    int depth_ = 0;
    Tunnel tunnel_ = Tunnel::none;
};

// Ether types: https://www.iana.org/assignments/ieee-802-numbers
namespace ether {
inline constexpr std::uint16_t ipv4 = 0x0800, ipv6 = 0x86dd, vlan = 0x8100, qinq = 0x88a8, old_qinq = 0x9100,
                               older_qinq = 0x9200, mpls = 0x8847, mpls_multicast = 0x8848, bridged = 0x6558,
                               pppoe_session = 0x8864, ppp = 0x880b, erspan2 = 0x88be, erspan3 = 0x22eb;
}

}  // namespace tapscope
