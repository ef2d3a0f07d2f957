#include "pipeline.hpp"

#include <thread>
#include <utility>

#include "dissect/tls_keys.hpp"

namespace tapscope {

Pipeline::Pipeline(const Settings& settings) : engine_(settings, this) {
    engine_.recorder().messages.ahead = engine_.recorder().evidence.ahead = &pages_;
}

bool Pipeline::read(MergedSources& sources, const Interrupted& interrupted) {
    sources_ = &sources;
    bytes_total_ = sources.bytes_total();
    std::thread dissecting([this] { dissect(); });
    bool stopped = false;
    try {
        follow([&](std::uint64_t done, std::uint64_t total) { return stopped = interrupted(done, total); });
        engine_.finish();
    } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failed_) failed_ = std::current_exception();
    }
    {
        const std::lock_guard lock(mutex_);
        ended_ = over_ = true;
        changed_.notify_all();
    }
    dissecting.join();
    for (Batch& batch : batches_) batch.blocks.clear();
    engine_.counters().add_all(source_counters_);
    if (failed_) std::rethrow_exception(failed_);
    return !stopped;
}

// The calling thread: batches to lists.
void Pipeline::follow(const Interrupted& interrupted) {
    for (std::uint64_t n = 0;; ++n) {
        Lock lock(mutex_);
        while (read_ == n && !ended_ && !failed_)
            if (room_to_read())
                read_batch(lock);
            else
                wait_for_other(lock);
        if (read_ == n || failed_) return;
        const std::uint64_t done = bytes_done_, total = bytes_total_;
        lock.unlock();
        Batch& batch = batches_[n % kBatches];
        secrets_ += std::exchange(batch.secrets, {});
        engine_.packets(batch.packets);
        const bool stop = interrupted(done, total);
        lock.lock();
        batch.lists_end = handed_;
        followed_ = n + 1;
        if (stop) ended_ = true;
        changed_.notify_all();
        if (stop) return;
    }
}

// The other thread: lists to tables.
void Pipeline::dissect() {
    for (std::uint64_t n = 0;; ++n) {
        Lock lock(mutex_);
        while (handed_ == n && !over_)
            if (room_to_read())
                read_batch(lock);
            else
                wait_for_other(lock);
        if (handed_ == n) return;
        const bool failed = failed_ != nullptr;
        lock.unlock();
        List& list = lists_[n % kLists];
        std::exception_ptr why;
        try {
            if (!list.secrets.empty()) engine_.recorder().tls_keys->add(list.secrets);
            if (!failed) dissection_.take(list.deliveries);
        } catch (...) {
            why = std::current_exception();
        }
        list.deliveries.clear();
        lock.lock();
        if (why && !failed_) failed_ = why;
        dissected_ = n + 1;
        // Who waits is woken when there is a good part to do.
        if (handed_ - dissected_ <= kLists / 2) changed_.notify_all();
    }
}

void Pipeline::take(Deliveries& deliveries) {
    Lock lock(mutex_);
    while (handed_ - dissected_ == kLists) wait_for_other(lock);
    List& list = lists_[handed_ % kLists];
    std::swap(list.deliveries, deliveries);
    list.secrets = std::exchange(secrets_, {});
    ++handed_;
    changed_.notify_all();
}

void Pipeline::wait() {
    Lock lock(mutex_);
    while (dissected_ < handed_) wait_for_other(lock);
}

// Until something may have changed; does what is of use meanwhile.
void Pipeline::wait_for_other(Lock& lock) {
    const PagesAhead::Range pages = pages_.take();
    if (pages.bytes == 0) return changed_.wait(lock);
    lock.unlock();
    PagesAhead::get(pages);
    lock.lock();
}

// Nobody reads, and the batch whose place the next one takes is through.
bool Pipeline::room_to_read() const noexcept {
    if (reading_ || ended_ || failed_) return false;
    if (read_ < kBatches) return true;
    return followed_ > read_ - kBatches && dissected_ >= batches_[read_ % kBatches].lists_end;
}

void Pipeline::read_batch(Lock& lock) {
    reading_ = true;
    Batch& batch = batches_[read_ % kBatches];
    lock.unlock();
    std::exception_ptr why;
    try {
        batch.blocks.clear();
        sources_->fill(batch.packets);
        for (const auto& source : sources_->sources()) {
            batch.blocks.push_back(source->hold());
            batch.secrets += source->take_secrets();
        }
    } catch (...) {
        why = std::current_exception();
        batch.packets.clear();
    }
    const std::uint64_t done = sources_->bytes_done();
    lock.lock();
    reading_ = false;
    bytes_done_ = done;
    if (why && !failed_) failed_ = why;
    if (batch.packets.empty())
        ended_ = true;
    else
        ++read_;
    changed_.notify_all();
}

}  // namespace tapscope
