// Several engines on several cores, each with the flows that a hash of addresses and ports gives it; the tables are those
// that one engine would have filled, row by row.
//
// Every engine walks all packets, so that "so many packets later" means the same to each, and decodes its own. Batches
// of packets lie in a ring: the engine that has come to the end of what was read reads ahead until the ring is full,
// while the others work on what there is; so there is no thread that only reads, and whoever is ahead does the reading.
// Memory: at most kBatches blocks of each source (ByteStream::kBlock), however long the input.
//
// Statements of Avatica are prepared over one connection and executed over another: flows with a port of
// Share::together go by the addresses alone. foreign_statements() tells when a port should have been among them.
// Regular files only: a helper thread that waits for a pipe could not be called off.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine.hpp"
#include "source/merge.hpp"

namespace tapscope {

class ShardedEngine {
public:
    static constexpr unsigned kMaxEngines = 16;

    // The bounds of `settings` are those of all engines together.
    ShardedEngine(const Settings& settings, unsigned engines, std::vector<std::uint16_t> together);

    // Counters for what the sources find.
    Counters& source_counters() noexcept { return source_counters_; }

    // Reads the sources to their end, and fills the tables of first(). `interrupted` is called by this thread several
    // times a second, with bytes done and in total; true ends the reading, and what was read is kept. Throws what it
    // throws, and what a source throws.
    using Interrupted = std::function<bool(std::uint64_t done, std::uint64_t total)>;
    bool read(MergedSources& sources, const Interrupted& interrupted);  // false: interrupted

    // The engine with all tables, once they are read.
    Engine& first() noexcept { return *engines_[0]; }

    // Server ports on which Avatica was found that are not among `together`.
    std::vector<std::uint16_t> foreign_statements() const;

private:
    struct Batch {
        std::vector<Packet> packets;
        std::vector<std::vector<Turn>> turns;             // by engine
        std::vector<std::shared_ptr<const void>> blocks;  // that the packets lie in
        std::int64_t latest_ns = INT64_MIN;               // of its plain segments
        std::string secrets;                              // TLS key log lines that come before them
    };
    static constexpr std::size_t kBatches = 8;

    void work(unsigned engine, MergedSources& sources, const Interrupted* interrupted);
    bool wait_for_batch(std::uint64_t number, MergedSources& sources, const Interrupted* interrupted);
    void read_ahead(std::unique_lock<std::mutex>& lock, MergedSources& sources);
    void give_turns(Batch& batch) const;
    bool room() const noexcept;
    void fail(std::exception_ptr why) noexcept;

    std::vector<std::uint16_t> together_;
    std::vector<std::unique_ptr<Engine>> engines_;
    Share share_;
    std::vector<std::shared_ptr<TlsKeyLog>> keys_;  // by engine
    Counters source_counters_;
    std::array<Batch, kBatches> ring_;

    std::mutex mutex_;  // guards what follows; a batch is written by whoever reads, then by nobody
    std::condition_variable changed_;
    std::uint64_t read_ = 0;                // batches read so far
    std::vector<std::uint64_t> worked_on_;  // by engine: batches that it is through with
    bool reading_ = false, ended_ = false, interrupted_ = false;
    std::uint64_t done_ = 0, total_ = 0;  // bytes of the input
    std::exception_ptr failed_;
};

}  // namespace tapscope
