// Link layer, VLAN tags, IP and TCP headers of one packet. What is not TCP is counted by name.
#pragma once

#include "counters.hpp"
#include "decode/segment.hpp"
#include "source/packet.hpp"

namespace tapscope {

class PacketDecoder {
public:
    explicit PacketDecoder(Counters& counters) : counters_(counters) {}

    // True and a filled `segment` for a TCP segment; false when the packet was counted as something else.
    bool decode(const Packet& packet, Segment& segment);

private:
    // The bytes of one packet that are left to decode.
    struct Rest {
        const std::uint8_t* p;
        std::size_t captured;  // bytes at `p`
        std::size_t length;    // bytes on the wire from `p` on
    };
    bool link_layer(const Packet& packet, Rest rest, Segment& segment);
    bool ether_type(std::uint16_t type, Rest rest, Segment& segment);
    bool ipv4(Rest rest, Segment& segment);
    bool ipv6(Rest rest, Segment& segment);
    bool tcp(Rest rest, const Address& source, const Address& target, Segment& segment);
    bool other_protocol(std::uint8_t protocol);
    bool refuse(const char* name) {
        counters_.add(name, 1, Unit::packets);
        return false;
    }

    Counters& counters_;
    std::uint32_t tap_point_ = 0;
};

}  // namespace tapscope
