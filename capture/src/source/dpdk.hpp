// Packets from a port by DPDK (https://doc.dpdk.org/guides-22.11/): bursts from all receive queues of one port. Several
// queues are emptied by threads of their own, up to the cores that there are besides the engine's.
//
// Times: where the driver stamps packets and its unit can be told, those; else the system clock once per burst, and the
// report says how far apart polls were, which bounds the error.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "counters.hpp"
#include "source/dpdk_receivers.hpp"
#include "source/live_input.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace tapscope {

struct DpdkSettings {
    std::vector<std::string>
        eal;             // arguments of the environment abstraction layer, without the program's name
    std::string device;  // how the report calls it
    std::string
        interface;  // kernel interface behind a virtual device, to cross-check what arrives; may be empty
    std::uint16_t queues = 1;  // receive queues, filled by a symmetric RSS hash where the driver has one
    bool promiscuous = true;
};

// One at a time in a process: the layer can be set up once.
class DpdkSource final : public LiveInput {
public:
    // Throws SourceError.
    DpdkSource(const DpdkSettings& settings, Counters& counters);
    ~DpdkSource() override;
    DpdkSource(const DpdkSource&) = delete;
    DpdkSource& operator=(const DpdkSource&) = delete;

    // One round over the queues, by time; waits at most 100 ms when nothing comes.
    void fill(std::vector<Packet>& batch) override;
    void update_counters() override;

private:
    enum class Stamp : std::uint8_t { unknown, software, driver_ns, driver_us };

    void set_up_port(const DpdkSettings& settings);
    void give_back();
    void poll(std::vector<Packet>& batch);
    void take_received(std::vector<Packet>& batch);
    void take(rte_mbuf* packet, std::int64_t burst_ns, std::vector<Packet>& batch);
    std::int64_t time_of(const rte_mbuf* packet, std::int64_t burst_ns);

    Counters& counters_;
    std::string interface_;
    rte_mempool* pool_ = nullptr;
    std::uint16_t port_ = 0, queues_ = 1;
    bool started_ = false;
    std::unique_ptr<DpdkReceivers> receivers_;       // null: fill() polls the queues itself
    std::vector<rte_mbuf*> held_;                    // of the batch that was given out last
    std::vector<std::vector<std::uint8_t>> joined_;  // packets that came in several pieces
    Stamp stamp_ = Stamp::unknown;
    int timestamp_offset_ = -1;
    std::uint64_t timestamp_flag_ = 0;
    std::int64_t last_poll_ns_ = 0, longest_wait_ns_ = 0;
    std::uint64_t arrived_ = 0;  // packets, taken on or not
    std::uint64_t interface_packets_before_ = 0;
};

}  // namespace tapscope
