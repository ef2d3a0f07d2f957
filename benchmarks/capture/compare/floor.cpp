// The physical floor: read the file, parse Ethernet, IP and TCP, one look-up of the flow per packet.
#include "packets.hpp"

namespace {

struct Count {
    std::uint64_t packets = 0, bytes = 0;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    compare::Flows<Count> flows;
    std::uint64_t payload = 0;
    const std::uint64_t packets =
        compare::walk(argv[1], [&](const std::uint8_t* bytes, std::uint32_t captured, std::int64_t) {
            compare::Parsed packet;
            if (!compare::parse(bytes, captured, packet)) return;
            Count& count = flows.find(packet);
            ++count.packets;
            count.bytes += packet.size;
            payload += packet.size;
        });
    std::printf("packets %llu flows %zu payload %llu\n", static_cast<unsigned long long>(packets),
                flows.size(), static_cast<unsigned long long>(payload));
    return packets == 0;
}
