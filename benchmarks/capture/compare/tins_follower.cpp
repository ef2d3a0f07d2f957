// libtins' stream follower: ordered bytes of every TCP connection, counted: http://libtins.github.io/docs/latest/
#include <tins/tcp_ip/stream_follower.h>
#include <tins/tins.h>

#include <cstdint>
#include <cstdio>

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    std::uint64_t packets = 0, bytes = 0;
    Tins::TCPIP::StreamFollower follower;
    follower.new_stream_callback([&](Tins::TCPIP::Stream& stream) {
        stream.client_data_callback([&](Tins::TCPIP::Stream& s) { bytes += s.client_payload().size(); });
        stream.server_data_callback([&](Tins::TCPIP::Stream& s) { bytes += s.server_payload().size(); });
    });
    follower.follow_partial_streams(true);
    Tins::FileSniffer sniffer(argv[1]);
    sniffer.sniff_loop([&](Tins::Packet& packet) {
        ++packets;
        follower.process_packet(packet);
        return true;
    });
    std::printf("packets %llu payload %llu\n", static_cast<unsigned long long>(packets),
                static_cast<unsigned long long>(bytes));
    return packets == 0;
}
