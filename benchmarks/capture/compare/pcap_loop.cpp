// libpcap's loop over a file, and nothing done with the packets: https://www.tcpdump.org/manpages/pcap_loop.3pcap.html
#include <pcap/pcap.h>

#include <cstdint>
#include <cstdio>

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    char error[PCAP_ERRBUF_SIZE];
    pcap_t* file = pcap_open_offline_with_tstamp_precision(argv[1], PCAP_TSTAMP_PRECISION_NANO, error);
    if (file == nullptr) return std::fprintf(stderr, "%s\n", error), 1;
    struct Seen {
        std::uint64_t packets, bytes;
    } seen{0, 0};
    pcap_loop(
        file, -1,
        [](u_char* user, const pcap_pkthdr* header, const u_char*) {
            auto* counted = reinterpret_cast<Seen*>(user);
            ++counted->packets;
            counted->bytes += header->caplen;
        },
        reinterpret_cast<u_char*>(&seen));
    pcap_close(file);
    std::printf("packets %llu bytes %llu\n", static_cast<unsigned long long>(seen.packets),
                static_cast<unsigned long long>(seen.bytes));
    return seen.packets == 0;
}
