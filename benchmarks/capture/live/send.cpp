// send IF FILE.pcap RATE SECONDS: sends the packets of the file over and over, RATE per second (0: as fast as it goes),
// and prints packets, bytes and seconds. By sendmmsg on a packet socket, past the queueing discipline.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

int main(int argc, char** argv) {
    if (argc != 5) return std::fprintf(stderr, "send IF FILE.pcap RATE SECONDS\n"), 2;
    std::ifstream file(argv[2], std::ios::binary);
    std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    std::vector<iovec> packets;
    for (std::size_t at = 24; at + 16 <= bytes.size();) {
        std::uint32_t captured;
        std::memcpy(&captured, &bytes[at + 8], 4);
        if (captured > bytes.size() - at - 16) break;
        packets.push_back({&bytes[at + 16], captured});
        at += 16 + captured;
    }
    const int fd = socket(AF_PACKET, SOCK_RAW, 0);
    const int one = 1, buffer = 32 << 20;
    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_protocol = htons(ETH_P_ALL);
    to.sll_ifindex = static_cast<int>(if_nametoindex(argv[1]));
    if (fd < 0 || packets.empty() || bind(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
        return std::perror("send"), 1;

    constexpr std::size_t kBurst = 64;
    const double rate = std::atof(argv[3]), limit = std::atof(argv[4]);
    const auto begin = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    std::uint64_t sent = 0, sent_bytes = 0;
    std::size_t next = 0;
    while (elapsed() < limit) {
        if (rate > 0 && static_cast<double>(sent) > elapsed() * rate) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            continue;
        }
        mmsghdr burst[kBurst]{};
        unsigned n = 0;
        for (std::size_t i = next; n < kBurst && i < packets.size(); ++i, ++n) {
            burst[n].msg_hdr.msg_iov = &packets[i];
            burst[n].msg_hdr.msg_iovlen = 1;
        }
        const int went = sendmmsg(fd, burst, n, 0);
        if (went <= 0) continue;  // no room: again
        for (int i = 0; i < went; ++i) sent_bytes += packets[next + static_cast<std::size_t>(i)].iov_len;
        sent += static_cast<std::uint64_t>(went);
        next = (next + static_cast<std::size_t>(went)) % packets.size();
    }
    std::printf("%llu %llu %.3f\n", static_cast<unsigned long long>(sent),
                static_cast<unsigned long long>(sent_bytes), elapsed());
}
