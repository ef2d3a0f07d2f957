// Packets from a network interface by libpcap (TPACKET_V3 on Linux): https://www.tcpdump.org/manpages/pcap.3pcap.html
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "counters.hpp"
#include "source/live_input.hpp"

namespace tapscope {

struct LiveSettings {
    std::string interface;
    std::string filter;                 // BPF expression; empty: everything
    std::string write_path;             // pcap file that gets every packet; empty: none
    int snaplen = 262144;               // bytes
    int ring_bytes = 64 * 1024 * 1024;  // kernel ring
    bool promiscuous = true;
};

class LiveSource final : public LiveInput {
public:
    // Throws SourceError. After the constructor no privilege is needed any more (privileges.hpp).
    LiveSource(const LiveSettings& settings, Counters& counters);
    ~LiveSource() override;
    LiveSource(const LiveSource&) = delete;
    LiveSource& operator=(const LiveSource&) = delete;

    // Waits at most 100 ms; an empty batch means that no packet came.
    void fill(std::vector<Packet>& batch) override;
    void update_counters() override;

private:
    struct Handles;
    void take(std::uint32_t captured, std::uint32_t length, std::int64_t time_ns, const std::uint8_t* data);

    std::unique_ptr<Handles> handles_;
    Counters& counters_;
    LinkType link_ = LinkType::ethernet;
    std::int64_t fraction_ns_ = 1;
    std::vector<std::uint8_t> arena_;  // copies: libpcap's bytes die when its callback returns
    std::size_t used_ = 0;
    std::vector<Packet>* batch_ = nullptr;
};

}  // namespace tapscope
