#include "sharded.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "dissect/tls_keys.hpp"
#include "merge_tables.hpp"

namespace tapscope {
ShardedEngine::ShardedEngine(const Settings& settings, unsigned engines, std::vector<std::uint16_t> together)
    : together_(std::move(together)), worked_on_(engines) {
    Settings part = settings;
    const auto divided = [&](std::size_t whole) { return std::max<std::size_t>(1, whole / engines); };
    part.limits.held_bytes = divided(settings.limits.held_bytes);
    part.limits.connections = divided(settings.limits.connections);
    part.limits.remember_closed = divided(settings.limits.remember_closed);
    share_ = {0, static_cast<std::uint8_t>(engines), together_};
    for (unsigned i = 0; i < engines; ++i) {
        Share share = share_;
        share.mine = static_cast<std::uint8_t>(i);
        // A log of its own, so that secrets inside the capture come to each at their place among the packets.
        if (settings.tls_keys) {
            keys_.push_back(std::make_shared<TlsKeyLog>(settings.tls_keys->path()));
            keys_.back()->refresh();
            part.tls_keys = keys_.back();
        }
        engines_.push_back(std::make_unique<Engine>(part, share));
    }
}

bool ShardedEngine::read(MergedSources& sources, const Interrupted& interrupted) {
    total_ = sources.bytes_total();
    std::vector<std::thread> helpers;
    for (unsigned i = 1; i < engines_.size(); ++i)
        helpers.emplace_back([this, i, &sources] { work(i, sources, nullptr); });
    work(0, sources, &interrupted);
    for (std::thread& helper : helpers) helper.join();
    for (Batch& batch : ring_) batch.blocks.clear();
    if (failed_) std::rethrow_exception(failed_);
    merge_tables(engines_);
    first().recorder().counters.add_all(source_counters_);
    return !interrupted_;
}

void ShardedEngine::work(unsigned engine, MergedSources& sources, const Interrupted* interrupted) {
    try {
        for (std::uint64_t number = 0; wait_for_batch(number, sources, interrupted); ++number) {
            const Batch& batch = ring_[number % kBatches];
            if (!batch.secrets.empty() && !keys_.empty()) keys_[engine]->add(batch.secrets);
            engines_[engine]->shared_packets(batch.packets, batch.turns[engine], batch.latest_ns);
            const std::lock_guard lock(mutex_);
            worked_on_[engine] = number + 1;
            changed_.notify_all();
        }
        engines_[engine]->finish();
    } catch (...) {
        fail(std::current_exception());
    }
}

void ShardedEngine::fail(std::exception_ptr why) noexcept {
    const std::lock_guard lock(mutex_);
    if (!failed_) failed_ = std::move(why);
    ended_ = true;
    changed_.notify_all();
}

bool ShardedEngine::room() const noexcept {
    return read_ - *std::min_element(worked_on_.begin(), worked_on_.end()) < kBatches;
}

// Until batch `number` is there; false when there is none. Reads it if nobody else does.
bool ShardedEngine::wait_for_batch(std::uint64_t number, MergedSources& sources,
                                   const Interrupted* interrupted) {
    std::unique_lock lock(mutex_);
    while (true) {
        if (interrupted != nullptr && !ended_) {
            const std::uint64_t done = done_, total = total_;
            lock.unlock();
            const bool stop = (*interrupted)(done, total);
            lock.lock();
            if (stop) interrupted_ = ended_ = true;
        }
        if (failed_) return false;
        if (number < read_) return true;
        if (ended_) return false;
        if (!reading_ && room())
            read_ahead(lock, sources);
        else
            changed_.wait_for(lock, std::chrono::milliseconds(50));
    }
}

void ShardedEngine::read_ahead(std::unique_lock<std::mutex>& lock, MergedSources& sources) {
    reading_ = true;
    while (!ended_ && room()) {
        Batch& batch = ring_[read_ % kBatches];
        lock.unlock();
        try {
            batch.blocks.clear();
            sources.fill(batch.packets);
            batch.secrets.clear();
            for (const auto& source : sources.sources()) {
                batch.blocks.push_back(source->hold());
                batch.secrets += source->take_secrets();
            }
            give_turns(batch);
        } catch (...) {
            lock.lock();
            reading_ = false;
            throw;
        }
        const std::uint64_t done = sources.bytes_done(), total = sources.bytes_total();
        lock.lock();
        done_ = done;
        total_ = total;
        if (batch.packets.empty())
            ended_ = true;
        else
            ++read_;
        changed_.notify_all();
    }
    reading_ = false;
    changed_.notify_all();
}

void ShardedEngine::give_turns(Batch& batch) const {
    batch.turns.resize(engines_.size());
    for (auto& turns : batch.turns) turns.clear();
    std::int64_t latest_ns = INT64_MIN;
    for (std::uint32_t i = 0; i < batch.packets.size(); ++i) {
        const Packet& packet = batch.packets[i];
        const std::uint8_t owner = share_.owner(packet);
        if (owner == kEverybody) {
            for (auto& turns : batch.turns) turns.push_back({i, false, latest_ns});
        } else {
            batch.turns[owner].push_back({i, true, latest_ns});
            latest_ns = std::max(latest_ns, packet.time_ns);
        }
    }
    batch.latest_ns = latest_ns;
}

std::vector<std::uint16_t> ShardedEngine::foreign_statements() const {
    const ConnectionColumns& rows = engines_[0]->recorder().connections;
    std::set<std::uint16_t> ports;
    for (std::size_t i = 0; i < rows.size; ++i)
        if (rows.protocol[i] == static_cast<std::uint8_t>(Protocol::avatica) &&
            std::find(together_.begin(), together_.end(), rows.server_port[i]) == together_.end())
            ports.insert(rows.server_port[i]);
    return {ports.begin(), ports.end()};
}

}  // namespace tapscope
