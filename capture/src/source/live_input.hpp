// What libpcap and DPDK have in common: packets that come as they please, and counters of what was dropped.
#pragma once

#include <span>

#include "source/packet.hpp"

namespace tapscope {

class LiveInput : public Source {
public:
    // Asks for the counters of drops. Call at the end, whenever they are wanted, and every few seconds besides, as they
    // may begin again at 0.
    virtual void update_counters() = 0;
    // Counts packets of the last batch. Who captures so many packets, or into so many files, leaves the rest of a batch:
    // those are not of the capture.
    virtual void taken(std::span<const Packet> packets) {
        for (const Packet& packet : packets) note(packet);
    }
    // To wait on for packets; -1: there is none, `fill` waits itself.
    virtual int descriptor() const noexcept { return -1; }
    virtual std::vector<const SourceReport*> reports() const { return {&report_}; }
    std::uint64_t bytes_done() const noexcept override { return report_.bytes; }
    std::uint64_t bytes_total() const noexcept override { return 0; }
};

}  // namespace tapscope
