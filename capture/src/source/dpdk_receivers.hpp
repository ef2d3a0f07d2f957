// Threads of DPDK that empty the receive queues of a port, so that packets are stamped and taken from the device while
// the engine is busy. Each hands over by a ring of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

struct rte_mbuf;
struct rte_ring;

namespace tapscope {

// System clock, ns since 1970.
std::int64_t system_now_ns() noexcept;

class DpdkReceivers {
public:
    static constexpr std::uint16_t kBurst = 64;
    static constexpr unsigned kRing = 8192;  // packets that wait for the engine, of each thread

    struct Received {
        rte_mbuf* packet;
        std::int64_t poll_ns;  // the system's clock before its burst was asked for
    };

    // How many threads `queues` queues get: one each, up to the cores that the engine leaves; with one queue or one core
    // none, and who asks for packets has to poll.
    static unsigned threads_for(std::uint16_t queues) noexcept;

    // Starts them: thread n empties the queues n, n + threads, ... of a started port. Throws SourceError.
    DpdkReceivers(std::uint16_t port, std::uint16_t queues, unsigned threads);
    // Stops them; packets that nobody took go back to their pool.
    ~DpdkReceivers();
    DpdkReceivers(const DpdkReceivers&) = delete;
    DpdkReceivers& operator=(const DpdkReceivers&) = delete;

    std::size_t threads() const noexcept { return workers_.size(); }
    // Up to so many packets of one thread, in the order of its polls; how many there were.
    std::size_t take(std::size_t thread, std::span<Received> out) noexcept;
    // The longest time between two polls of a queue, the second of which brought packets.
    std::int64_t longest_wait_ns() const noexcept;

private:
    struct Worker {
        DpdkReceivers* receivers;
        rte_ring* ring = nullptr;
        std::uint16_t first_queue = 0;
        unsigned core = 0;
        std::atomic<std::int64_t> longest_wait_ns = 0;
    };
    void stop() noexcept;
    void work(Worker& worker) noexcept;
    bool hand_over(Worker& worker, std::span<const Received> burst) noexcept;

    const std::uint16_t port_, queues_;
    const unsigned threads_;
    std::atomic<bool> stopping_ = false;
    std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace tapscope
