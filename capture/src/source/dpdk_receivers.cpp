#include "source/dpdk_receivers.hpp"

#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring_elem.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "source/packet.hpp"

namespace tapscope {
namespace {

// Polls without a packet before a thread sleeps, and for how long: a wire that is silent need not cost a core.
constexpr int kIdlePolls = 2000;
constexpr auto kNap = std::chrono::microseconds(50);

static_assert(sizeof(DpdkReceivers::Received) % 4 == 0, "elements of a ring have whole words");

}  // namespace

std::int64_t system_now_ns() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

unsigned DpdkReceivers::threads_for(std::uint16_t queues) noexcept {
    return queues > 1 ? std::min<unsigned>(queues, rte_lcore_count() - 1) : 0;
}

DpdkReceivers::DpdkReceivers(std::uint16_t port, std::uint16_t queues, unsigned threads)
    : port_(port), queues_(queues), threads_(threads) {
    unsigned core = rte_get_next_lcore(-1, 1, 0);
    for (unsigned n = 0; n < threads; ++n, core = rte_get_next_lcore(core, 1, 0)) {
        auto& worker = *workers_.emplace_back(std::make_unique<Worker>());
        worker.receivers = this;
        worker.first_queue = static_cast<std::uint16_t>(n);
        worker.core = core;
        worker.ring = rte_ring_create_elem(("tapscope" + std::to_string(n)).c_str(), sizeof(Received), kRing,
                                           SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
        const auto run = [](void* self) {
            auto* mine = static_cast<Worker*>(self);
            mine->receivers->work(*mine);
            return 0;
        };
        if (worker.ring == nullptr || rte_eal_remote_launch(run, &worker, core) != 0) {
            rte_ring_free(worker.ring);
            workers_.pop_back();
            stop();
            throw SourceError("a thread for receive queues cannot be started", "", -1,
                              "Ask for one queue, or give DPDK more memory: -m 512.");
        }
    }
}

DpdkReceivers::~DpdkReceivers() { stop(); }

void DpdkReceivers::stop() noexcept {
    stopping_ = true;
    for (const auto& worker : workers_) rte_eal_wait_lcore(worker->core);
    std::array<Received, kBurst> left;
    for (std::size_t n = 0; n < workers_.size(); ++n) {
        while (const std::size_t got = take(n, left))
            for (const Received& received : std::span(left).first(got)) rte_pktmbuf_free(received.packet);
        rte_ring_free(workers_[n]->ring);
    }
    workers_.clear();
}

void DpdkReceivers::work(Worker& worker) noexcept {
    std::array<rte_mbuf*, kBurst> packets;
    std::array<Received, kBurst> burst;
    std::int64_t last_poll_ns = system_now_ns();
    for (int idle = 0; !stopping_.load(std::memory_order_relaxed);) {
        const std::int64_t poll_ns = system_now_ns();
        bool any = false;
        for (unsigned queue = worker.first_queue; queue < queues_; queue += threads_) {
            const std::uint16_t got =
                rte_eth_rx_burst(port_, static_cast<std::uint16_t>(queue), packets.data(), kBurst);
            for (std::uint16_t i = 0; i < got; ++i) burst[i] = {packets[i], poll_ns};
            if (got == 0) continue;
            any = true;
            if (!hand_over(worker, std::span(burst).first(got))) return;
        }
        if (any && poll_ns - last_poll_ns > worker.longest_wait_ns.load(std::memory_order_relaxed))
            worker.longest_wait_ns.store(poll_ns - last_poll_ns, std::memory_order_relaxed);
        last_poll_ns = poll_ns;
        if (any)
            idle = 0;
        else if (++idle > kIdlePolls)
            std::this_thread::sleep_for(kNap);
    }
}

// With a full ring it waits, and what comes meanwhile waits in the device, which counts what it has to drop. False when
// it is to stop.
bool DpdkReceivers::hand_over(Worker& worker, std::span<const Received> burst) noexcept {
    while (true) {
        const unsigned put = rte_ring_sp_enqueue_burst_elem(worker.ring, burst.data(), sizeof(Received),
                                                            static_cast<unsigned>(burst.size()), nullptr);
        burst = burst.subspan(put);
        if (burst.empty()) return true;
        if (stopping_.load(std::memory_order_relaxed)) break;
        std::this_thread::sleep_for(kNap);
    }
    for (const Received& received : burst) rte_pktmbuf_free(received.packet);
    return false;
}

std::size_t DpdkReceivers::take(std::size_t thread, std::span<Received> out) noexcept {
    return rte_ring_sc_dequeue_burst_elem(workers_[thread]->ring, out.data(), sizeof(Received),
                                          static_cast<unsigned>(out.size()), nullptr);
}

std::int64_t DpdkReceivers::longest_wait_ns() const noexcept {
    std::int64_t longest = 0;
    for (const auto& worker : workers_)
        longest = std::max(longest, worker->longest_wait_ns.load(std::memory_order_relaxed));
    return longest;
}

}  // namespace tapscope
