// Packets from a network interface by libpcap (TPACKET_V3 on Linux): https://www.tcpdump.org/manpages/pcap.3pcap.html
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "counters.hpp"
#include "source/live_input.hpp"
#include "source/unwrapped.hpp"

namespace tapscope {

struct LiveSettings {
    std::string interface;
    std::string filter;                 // BPF expression; empty: everything
    int snaplen = 262144;               // bytes
    int ring_bytes = 64 * 1024 * 1024;  // kernel ring
    bool promiscuous = true;
    std::string
        clock;  // libpcap's name of a time stamp type (host, adapter, adapter_unsynced); empty: the kernel's
    int fanout = -1;  // group of processes that share the interface's connections among them; -1: none
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
    int descriptor() const noexcept override;
    LinkType link() const noexcept { return link_; }

private:
    struct Handles;
    void choose_clock(const LiveSettings& settings);
    void join_fanout(int group);
    void compare_clocks(const Packet& packet);
    void take(std::uint32_t captured, std::uint32_t length, std::int64_t time_ns, const std::uint8_t* data);

    std::unique_ptr<Handles> handles_;
    Counters& counters_;
    LinkType link_ = LinkType::ethernet;
    std::int64_t fraction_ns_ = 1;
    Unwrapped received_, dropped_by_kernel_, dropped_by_interface_;
    std::uint32_t clocks_compared_ = 0;  // packets whose stamp was held against the system's clock
    std::vector<std::uint8_t> arena_;    // copies: libpcap's bytes die when its callback returns
    std::size_t used_ = 0;
    std::vector<Packet>* batch_ = nullptr;
};

}  // namespace tapscope
