// Open-addressing table from flow key to connection index. Eight bytes a slot; the key itself is compared in the
// connection, which is needed anyway. Linear probing, deletion by shifting back, so that no tombstones pile up.
#pragma once

#include <cstdint>
#include <vector>

#include "prefetch.hpp"

namespace tapscope {

class FlowTable {
public:
    static constexpr std::uint32_t kNone = 0xffffffff;

    void prefetch(std::uint64_t hash) const noexcept { prefetch_line(&slots_[home(fold(hash))]); }

    // First index with this hash for which `same` holds, else kNone.
    template <class Same>
    std::uint32_t find(std::uint64_t hash, Same same) const noexcept {
        const std::uint32_t tag = fold(hash);
        for (std::size_t i = home(tag); slots_[i].index != kNone; i = (i + 1) & mask_)
            if (slots_[i].tag == tag && same(slots_[i].index)) return slots_[i].index;
        return kNone;
    }

    // An index that `find` probably gives: its hash agrees in 32 bits, nothing else was compared.
    std::uint32_t guess(std::uint64_t hash) const noexcept {
        const std::uint32_t tag = fold(hash);
        std::size_t i = home(tag);
        while (slots_[i].index != kNone && slots_[i].tag != tag) i = (i + 1) & mask_;
        return slots_[i].index;
    }

    void insert(std::uint64_t hash, std::uint32_t index) {
        if ((++size_) * 2 > slots_.size()) grow();
        place(fold(hash), index);
    }

    void erase(std::uint64_t hash, std::uint32_t index) noexcept {
        const std::uint32_t tag = fold(hash);
        std::size_t i = home(tag);
        while (slots_[i].index != index) {
            if (slots_[i].index == kNone) return;
            i = (i + 1) & mask_;
        }
        --size_;
        for (std::size_t next = (i + 1) & mask_; slots_[next].index != kNone; next = (next + 1) & mask_) {
            // Move an entry back unless its home lies behind the hole.
            if (((next - home(slots_[next].tag)) & mask_) < ((next - i) & mask_)) continue;
            slots_[i] = slots_[next];
            i = next;
        }
        slots_[i].index = kNone;
    }

    std::size_t size() const noexcept { return size_; }

private:
    struct Slot {
        std::uint32_t tag = 0;
        std::uint32_t index = kNone;
    };
    static std::uint32_t fold(std::uint64_t hash) noexcept {
        return static_cast<std::uint32_t>(hash >> 32 ^ hash);
    }
    std::size_t home(std::uint32_t tag) const noexcept { return tag & mask_; }
    void place(std::uint32_t tag, std::uint32_t index) noexcept {
        std::size_t i = home(tag);
        while (slots_[i].index != kNone) i = (i + 1) & mask_;
        slots_[i] = {tag, index};
    }
    void grow() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        mask_ = slots_.size() - 1;
        for (const Slot& slot : old)
            if (slot.index != kNone) place(slot.tag, slot.index);
    }

    std::vector<Slot> slots_ = std::vector<Slot>(4096);
    std::size_t mask_ = 4095, size_ = 0;
};

}  // namespace tapscope
