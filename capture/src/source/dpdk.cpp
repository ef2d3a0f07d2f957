#include "source/dpdk.hpp"

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

namespace tapscope {
namespace {

constexpr std::uint16_t kDescriptors = 4096;
constexpr unsigned kMbufCache = 256;
constexpr std::uint16_t kMbufData = 2048 + RTE_PKTMBUF_HEADROOM;
constexpr auto kWait = std::chrono::milliseconds(100);
// Polls without a packet before the thread sleeps, and for how long: a wire that is silent need not cost a core.
constexpr int kIdlePolls = 2000;
constexpr auto kNap = std::chrono::microseconds(50);

// A Toeplitz key that repeats 16 bits gives both directions of a connection the same hash (Woo and Park, "Scalable TCP
// Session Monitoring with Symmetric Receive-side Scaling", KAIST 2012).
constexpr std::array<std::uint8_t, 40> kSymmetricKey = [] {
    std::array<std::uint8_t, 40> key{};
    for (std::size_t i = 0; i < key.size(); i += 2) {
        key[i] = 0x6d;
        key[i + 1] = 0x5a;
    }
    return key;
}();

// Packets that a kernel interface received so far; 0 when it has no such counter.
std::uint64_t received_by(const std::string& interface) {
    std::ifstream file("/sys/class/net/" + interface + "/statistics/rx_packets");
    std::uint64_t packets = 0;
    file >> packets;
    return packets;
}

// Setting DPDK up binds the thread that does it to one core, and with it all threads that it starts later.
class CoresKept {
public:
    CoresKept() noexcept { known_ = sched_getaffinity(0, sizeof cores_, &cores_) == 0; }
    CoresKept(const CoresKept&) = delete;
    CoresKept& operator=(const CoresKept&) = delete;
    ~CoresKept() {
        if (known_) sched_setaffinity(0, sizeof cores_, &cores_);
    }

private:
    cpu_set_t cores_;
    bool known_;
};

[[noreturn]] void fail(const std::string& what, const std::string& device, int error,
                       const std::string& remedy) {
    const std::string reason = error == 0 ? "" : std::string(": ") + rte_strerror(std::abs(error));
    throw SourceError(what + reason, device, -1, remedy);
}

}  // namespace

DpdkSource::DpdkSource(const DpdkSettings& settings, Counters& counters)
    : counters_(counters),
      interface_(settings.interface),
      queues_(std::max<std::uint16_t>(settings.queues, 1)) {
    report_.path = settings.device;
    report_.format = "dpdk";
    report_.link_types.push_back(static_cast<std::uint16_t>(LinkType::ethernet));
    std::vector<std::string> words = {"tapscope"};
    words.insert(words.end(), settings.eal.begin(), settings.eal.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    const CoresKept cores;
    if (rte_eal_init(static_cast<int>(arguments.size()), arguments.data()) < 0)
        fail("DPDK cannot be set up", settings.device, rte_errno,
             "Its own message stands above. Without hugepages or a PCI device: --no-huge -m 512 --no-pci.");
    try {
        set_up_port(settings);
    } catch (...) {
        rte_eal_cleanup();
        throw;
    }
    if (!interface_.empty()) interface_packets_before_ = received_by(interface_);
}

void DpdkSource::set_up_port(const DpdkSettings& settings) {
    if (rte_eth_dev_count_avail() == 0)
        fail("DPDK found no port", settings.device, 0,
             "Bind a device to a DPDK driver (dpdk-devbind.py --status), or name a virtual one.");
    port_ = rte_eth_find_next(0);
    rte_eth_dev_info info{};
    if (const int error = rte_eth_dev_info_get(port_, &info); error != 0)
        fail("the port tells nothing of itself", settings.device, error, "");
    if (queues_ > info.max_rx_queues)
        fail("the port has " + std::to_string(info.max_rx_queues) + " receive queues, not " +
                 std::to_string(queues_),
             settings.device, 0, "Ask for fewer queues.");

    rte_eth_conf configuration{};
    const std::uint64_t hashes = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP;
    std::array<std::uint8_t, 40> key = kSymmetricKey;
    if (queues_ > 1 && (info.flow_type_rss_offloads & hashes) != 0) {
        configuration.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        configuration.rx_adv_conf.rss_conf = {key.data(), static_cast<std::uint8_t>(key.size()),
                                              info.flow_type_rss_offloads & hashes};
    }
    // Drivers may stamp packets only when asked to, and some do so without saying that they can.
    configuration.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP;
    if (const int error =
            rte_eth_dev_configure(port_, queues_, info.max_tx_queues > 0 ? 1 : 0, &configuration);
        error != 0)
        fail("the port cannot be configured", settings.device, error, "Ask for one queue.");
    if (rte_mbuf_dyn_rx_timestamp_register(&timestamp_offset_, &timestamp_flag_) != 0) timestamp_offset_ = -1;

    std::uint16_t descriptors = kDescriptors, sent = 512;
    rte_eth_dev_adjust_nb_rx_tx_desc(port_, &descriptors, &sent);
    const unsigned threads = DpdkReceivers::threads_for(queues_);
    // As many as can wait in all places at once.
    const std::size_t packets = std::size_t{descriptors} * queues_ + DpdkReceivers::kRing * threads +
                                2 * kBatch + std::size_t{kMbufCache} * 2 * (threads + 1);
    pool_ = rte_pktmbuf_pool_create("tapscope", static_cast<unsigned>(packets), kMbufCache, 0, kMbufData,
                                    SOCKET_ID_ANY);
    if (pool_ == nullptr)
        fail("there is not enough memory for packets", settings.device, rte_errno,
             "Give DPDK more: -m 512, or more hugepages.");
    const int socket = rte_eth_dev_socket_id(port_);
    for (std::uint16_t queue = 0; queue < queues_; ++queue)
        if (const int error = rte_eth_rx_queue_setup(port_, queue, descriptors, static_cast<unsigned>(socket),
                                                     nullptr, pool_);
            error != 0)
            fail("receive queue " + std::to_string(queue) + " cannot be set up", settings.device, error,
                 "Ask for one queue.");
    // Some drivers do not start without a way to send, which nothing uses.
    if (info.max_tx_queues > 0)
        rte_eth_tx_queue_setup(port_, 0, sent, static_cast<unsigned>(socket), nullptr);
    if (const int error = rte_eth_dev_start(port_); error != 0)
        fail("the port cannot be started", settings.device, error, "See DPDK's own message above.");
    started_ = true;
    if (settings.promiscuous) rte_eth_promiscuous_enable(port_);
    rte_eth_stats_reset(port_);
    last_poll_ns_ = system_now_ns();
    if (threads > 0) receivers_ = std::make_unique<DpdkReceivers>(port_, queues_, threads);
}

DpdkSource::~DpdkSource() {
    receivers_.reset();
    give_back();
    if (started_) {
        rte_eth_dev_stop(port_);
        rte_eth_dev_close(port_);
    }
    rte_eal_cleanup();
}

void DpdkSource::give_back() {
    if (!held_.empty()) rte_pktmbuf_free_bulk(held_.data(), static_cast<unsigned>(held_.size()));
    held_.clear();
    joined_.clear();
}

void DpdkSource::fill(std::vector<Packet>& batch) {
    batch.clear();
    give_back();
    const auto until = std::chrono::steady_clock::now() + kWait;
    for (int idle = 0;;) {
        if (receivers_)
            take_received(batch);
        else
            poll(batch);
        if (!batch.empty() || std::chrono::steady_clock::now() >= until) return;
        if (receivers_ || ++idle > kIdlePolls) std::this_thread::sleep_for(kNap);
    }
}

void DpdkSource::poll(std::vector<Packet>& batch) {
    constexpr std::uint16_t kBurst = DpdkReceivers::kBurst;
    const std::int64_t poll_ns = system_now_ns();
    for (std::uint16_t queue = 0; queue < queues_; ++queue) {
        rte_mbuf* burst[kBurst];
        // A queue with more than a burst waiting is emptied up to its share of the batch.
        while (batch.size() + kBurst <= kBatch * (queue + 1u) / queues_ + kBurst) {
            const std::uint16_t got = rte_eth_rx_burst(port_, queue, burst, kBurst);
            for (std::uint16_t i = 0; i < got; ++i) take(burst[i], poll_ns, batch);
            if (got < kBurst) break;
        }
    }
    if (!batch.empty() && stamp_ == Stamp::software)
        longest_wait_ns_ = std::max(longest_wait_ns_, poll_ns - last_poll_ns_);
    last_poll_ns_ = poll_ns;
}

void DpdkSource::take_received(std::vector<Packet>& batch) {
    std::array<DpdkReceivers::Received, kBatch> received;
    const std::size_t share = kBatch / receivers_->threads();
    for (std::size_t thread = 0; thread < receivers_->threads(); ++thread) {
        const std::size_t got = receivers_->take(thread, std::span(received).first(share));
        for (const auto& one : std::span(received).first(got)) take(one.packet, one.poll_ns, batch);
    }
    std::stable_sort(batch.begin(), batch.end(),
                     [](const Packet& a, const Packet& b) { return a.time_ns < b.time_ns; });
    if (stamp_ == Stamp::software) longest_wait_ns_ = receivers_->longest_wait_ns();
}

void DpdkSource::take(rte_mbuf* packet, std::int64_t burst_ns, std::vector<Packet>& batch) {
    held_.push_back(packet);
    const std::uint8_t* data = rte_pktmbuf_mtod(packet, const std::uint8_t*);
    const std::uint32_t length = rte_pktmbuf_pkt_len(packet);
    if (packet->nb_segs > 1) {
        std::vector<std::uint8_t>& whole = joined_.emplace_back(length);
        data = static_cast<const std::uint8_t*>(rte_pktmbuf_read(packet, 0, length, whole.data()));
    }
    batch.push_back({data, length, length, time_of(packet, burst_ns), LinkType::ethernet, 0});
    ++arrived_;
}

// Drivers count in units of their own. Two can be told from the value: ns and us since 1970; anything else is a device's
// clock, which says nothing without its frequency and start.
std::int64_t DpdkSource::time_of(const rte_mbuf* packet, std::int64_t burst_ns) {
    const bool stamped = timestamp_offset_ >= 0 && (packet->ol_flags & timestamp_flag_) != 0;
    const auto value = stamped ? static_cast<std::int64_t>(*RTE_MBUF_DYNFIELD(packet, timestamp_offset_,
                                                                              const rte_mbuf_timestamp_t*))
                               : 0;
    if (stamp_ == Stamp::unknown) {
        constexpr std::int64_t first_second = 500'000'000, last_second = 8'000'000'000;  // 1985 to 2223
        const auto in = [value](std::int64_t per_second) {
            return value / per_second >= first_second && value / per_second <= last_second;
        };
        stamp_ = in(1'000'000'000) ? Stamp::driver_ns : in(1'000'000) ? Stamp::driver_us : Stamp::software;
    }
    switch (stamp_) {
        case Stamp::driver_ns:
            return stamped ? value : burst_ns;
        case Stamp::driver_us:
            return stamped ? value * 1000 : burst_ns;
        default:
            return burst_ns;
    }
}

void DpdkSource::update_counters() {
    rte_eth_stats stats{};
    if (rte_eth_stats_get(port_, &stats) == 0) {
        report_.drops_known = true;
        report_.dropped_by_interface = stats.imissed;
        report_.dropped_by_kernel = stats.rx_nombuf + stats.ierrors;
    }
    report_.received = arrived_;
    if (!interface_.empty()) {
        // A driver may lose packets with all of its counters at zero (net_af_packet with its default ring does): what
        // the interface received and did not arrive here was lost in between.
        const std::uint64_t offered = received_by(interface_) - interface_packets_before_;
        const std::uint64_t here = arrived_ + report_.dropped_by_interface + report_.dropped_by_kernel;
        if (offered > here) report_.dropped_by_kernel += offered - here;
        report_.received = std::max(offered, arrived_);
    }
    report_.resolution =
        stamp_ == Stamp::driver_ns ? "1 ns, by the driver"
        : stamp_ == Stamp::driver_us
            ? "1 us, by the driver"
            : "stamped per burst, up to " + std::to_string(longest_wait_ns_ / 1000) + " us late";
}

}  // namespace tapscope
