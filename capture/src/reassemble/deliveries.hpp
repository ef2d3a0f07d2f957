// What reassembly hands to dissection: the bytes of both sides of every connection in order, what is missing of them, and
// where they end. A list of plain records, so that the one may be a list ahead of the other, in a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "codes.hpp"
#include "dissect/conversation.hpp"

namespace tapscope {

struct Delivery {
    enum class Kind : std::uint8_t {
        bytes,  // `size` bytes at `data`; `offset` is what their packet acknowledges of the other side
        gap,    // `offset` bytes were never seen
        end,    // the side ends at `time_ns`; `flag`: without a FIN
        again,  // `size` bytes from `offset` on came again
        stamped_earlier,  // the same bytes, read from a packet of `first_us`, came in one of `time_ns` before
        contents,         // for row `offset` of the connection table; `flag`: of those again
        keys,             // secrets may be there now; `flag`: if not, they may still come
    };
    Conversation* to;
    const std::uint8_t* data;
    std::uint64_t offset;
    std::int64_t time_ns;
    std::uint32_t size;
    std::uint32_t base_seq;  // raw sequence number of offset 0 of the side
    std::uint32_t first_us;
    Kind kind;
    Direction direction;
    bool flag;
};
static_assert(sizeof(Delivery) == 48);

class Deliveries {
public:
    static constexpr std::size_t kMost = 512;              // records
    static constexpr std::size_t kMostKept = 1024 * 1024;  // bytes in copies of its own

    // There is room for one where the list is not full. The rest of the record is up to the caller.
    Delivery& push(Conversation* to, Delivery::Kind kind, Direction direction,
                   std::uint32_t base_seq) noexcept {
        Delivery& delivery = list_[size_++];
        delivery.to = to;
        delivery.base_seq = base_seq;
        delivery.kind = kind;
        delivery.direction = direction;
        return delivery;
    }
    std::span<const Delivery> list() const noexcept { return {list_.get(), size_}; }
    bool empty() const noexcept { return size_ == 0 && over_.empty(); }
    bool full() const noexcept { return size_ == kMost || kept_bytes_ >= kMostKept || over_.size() >= kMost; }
    // What the last record's `data` points to, where that is in no packet of the batch.
    void keep(std::unique_ptr<std::uint8_t[]> bytes) {
        kept_bytes_ += list_[size_ - 1].size;
        kept_.push_back(std::move(bytes));
    }
    // A conversation that gets nothing behind this list.
    void leave(std::unique_ptr<Conversation> conversation) { over_.push_back(std::move(conversation)); }
    void clear() noexcept {
        size_ = 0;
        kept_.clear();
        kept_bytes_ = 0;
        over_.clear();
    }

    bool far = false;  // so many connections are tracked that they are in no cache

private:
    std::unique_ptr<Delivery[]> list_ = std::make_unique_for_overwrite<Delivery[]>(kMost);
    std::size_t size_ = 0;
    std::vector<std::unique_ptr<std::uint8_t[]>> kept_;
    std::size_t kept_bytes_ = 0;
    std::vector<std::unique_ptr<Conversation>> over_;
};

// Where lists go. take() leaves an empty one behind; what was in it may be dissected by then, or later.
class Outlet {
public:
    virtual void take(Deliveries& deliveries) = 0;
    // Until all that was taken is dissected.
    virtual void wait() = 0;

protected:
    ~Outlet() = default;
};

}  // namespace tapscope
