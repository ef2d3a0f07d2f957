// One engine on two cores: a thread decodes packets and follows connections, another dissects what that delivers, and
// whichever of the two has nothing to do reads ahead. Both do what one thread would, in the same order, so that the tables
// are the same, row by row.
//
// Batches of packets lie in a ring before the first of these steps, lists of deliveries in one between the two. Memory:
// kBatches blocks of each source (ByteStream::kBlock) and kLists lists, however long the input.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dissect/dissection.hpp"
#include "engine.hpp"
#include "source/merge.hpp"

namespace tapscope {

class Pipeline final : private Outlet {
public:
    // Secrets may not be waited for (Limits::tls_key_wait_ns): the answer to that has to come at once.
    explicit Pipeline(const Settings& settings);

    // Reads the sources, regular files, to their end. `interrupted` is called by this thread several times a second, with
    // bytes done and in total; true ends the reading, and what was read is kept. Throws what it throws, and what a
    // source throws.
    using Interrupted = std::function<bool(std::uint64_t done, std::uint64_t total)>;
    bool read(MergedSources& sources, const Interrupted& interrupted);  // false: interrupted

    Engine& engine() noexcept { return engine_; }
    // What the sources are opened with: whichever thread reads counts here, and read() adds it to the engine's.
    Counters& source_counters() noexcept { return source_counters_; }

private:
    static constexpr std::size_t kBatches = 8, kLists = 8;

    struct Batch {
        std::vector<Packet> packets;
        std::vector<std::shared_ptr<const void>> blocks;  // that the packets lie in
        std::string secrets;                              // TLS key log lines that come before them
        std::uint64_t lists_end = 0;  // followed: the lists before this one are all that speak of it
    };
    struct List {
        Deliveries deliveries;
        std::string secrets;
    };
    using Lock = std::unique_lock<std::mutex>;

    void follow(const Interrupted& interrupted);
    void dissect();
    void take(Deliveries& deliveries) override;
    void wait() override;
    bool room_to_read() const noexcept;
    void read_batch(Lock& lock);
    void wait_for_other(Lock& lock);

    Engine engine_;
    Dissection dissection_;
    Counters source_counters_;
    PagesAhead pages_;
    MergedSources* sources_ = nullptr;
    std::array<Batch, kBatches> batches_;
    std::array<List, kLists> lists_;
    std::string secrets_;  // of the batch that is followed, until a list takes them

    std::mutex mutex_;  // guards what follows; a batch or list belongs to the thread that works on it
    std::condition_variable changed_;
    std::uint64_t read_ = 0, followed_ = 0;     // batches
    std::uint64_t handed_ = 0, dissected_ = 0;  // lists
    std::uint64_t bytes_done_ = 0, bytes_total_ = 0;
    bool reading_ = false;  // one of the two threads is
    bool ended_ = false;    // no more is to be read
    bool over_ = false;     // no more lists come
    std::exception_ptr failed_;
};

}  // namespace tapscope
