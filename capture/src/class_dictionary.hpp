// The classes seen: (protocol, text) to a small id. Bounded: what comes after `kMaxClasses` texts is "(other)".
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "codes.hpp"
#include "hash.hpp"

namespace tapscope {

class ClassDictionary {
public:
    static constexpr std::size_t kMaxClasses = 65536;
    struct Entry {
        Protocol protocol;
        std::string text;
        std::string example;  // one raw text, only when text is to be kept
    };

    // -1 when the text has no class.
    std::int32_t find(Protocol protocol, std::string_view text) const noexcept {
        const std::uint64_t hash = text_hash(text, static_cast<std::uint64_t>(protocol) + 1);
        for (std::size_t i = hash & (slots_.size() - 1); slots_[i].id >= 0;
             i = (i + 1) & (slots_.size() - 1)) {
            if (slots_[i].hash != hash) continue;
            const Entry& entry = entries_[static_cast<std::size_t>(slots_[i].id)];
            if (entry.protocol == protocol && entry.text == text) return slots_[i].id;
        }
        return -1;
    }

    std::int32_t id(Protocol protocol, std::string_view text) {
        const std::uint64_t hash = text_hash(text, static_cast<std::uint64_t>(protocol) + 1);
        std::size_t i = hash & (slots_.size() - 1);
        for (; slots_[i].id >= 0; i = (i + 1) & (slots_.size() - 1)) {
            if (slots_[i].hash != hash) continue;
            const Entry& entry = entries_[static_cast<std::size_t>(slots_[i].id)];
            if (entry.protocol == protocol && entry.text == text) return slots_[i].id;
        }
        if (entries_.size() >= kMaxClasses && text != kOther) {
            ++refused_;
            return id(protocol, kOther);
        }
        const auto fresh = static_cast<std::int32_t>(entries_.size());
        entries_.push_back({protocol, std::string(text), {}});
        ++size_;
        slots_[i] = {hash, fresh};
        if (entries_.size() * 2 > slots_.size()) rehash();
        return fresh;
    }

    std::deque<Entry>& entries() noexcept { return entries_; }
    std::size_t size() const noexcept { return size_; }
    std::uint64_t refused() const noexcept { return refused_; }

private:
    static constexpr std::string_view kOther = "(other)";
    struct Slot {
        std::uint64_t hash = 0;
        std::int32_t id = -1;
    };

    void rehash() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (slot.id < 0) continue;
            std::size_t i = slot.hash & (slots_.size() - 1);
            while (slots_[i].id >= 0) i = (i + 1) & (slots_.size() - 1);
            slots_[i] = slot;
        }
    }

    std::vector<Slot> slots_ = std::vector<Slot>(1024);
    std::deque<Entry> entries_;
    std::uint64_t refused_ = 0;
    std::size_t size_ = 0;
};

}  // namespace tapscope
