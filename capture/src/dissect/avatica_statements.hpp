// Avatica's statements of all connections: a statement is prepared over one TCP connection and executed or fetched from
// over another, so what its id stands for is kept beside the connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tapscope {

// Bounded: kWays entries share a place, and a new one takes that of the oldest of them. A look-up may miss.
class AvaticaStatements {
public:
    struct Entry {
        std::uint64_t key =
            0;  // hash of connection id (made up at random by the client) and statement id; 0: free
        std::int32_t execute_class = -1;
        std::int32_t batch_class = -1;
        std::int32_t fetch_class = -1;
        std::uint32_t born = 0;
    };

    const Entry* find(std::uint64_t key) const noexcept {
        if (entries_.empty()) return nullptr;
        const Entry* set = &entries_[place(key)];
        for (std::size_t i = 0; i < kWays; ++i)
            if (set[i].key == key) return set + i;
        return nullptr;
    }

    // Was `entry` put before that of `key`, if that is there?
    bool is_older(const Entry& entry, std::uint64_t key) const noexcept {
        const Entry* other = find(key);
        return other != nullptr && static_cast<std::int32_t>(entry.born - other->born) < 0;
    }

    // True when another statement had to make room.
    bool put(const Entry& entry) {
        if (entries_.empty()) entries_.resize(kPlaces * kWays);
        Entry* set = &entries_[place(entry.key)];
        Entry* chosen = set;
        for (std::size_t i = 0; i < kWays; ++i) {
            if (set[i].key == entry.key || set[i].key == 0) {
                chosen = set + i;
                break;
            }
            if (static_cast<std::int32_t>(set[i].born - chosen->born) < 0) chosen = set + i;
        }
        const bool evicts = chosen->key != 0 && chosen->key != entry.key;
        *chosen = entry;
        chosen->born = ++clock_;
        return evicts;
    }

    void erase(std::uint64_t key) noexcept {
        if (entries_.empty()) return;
        Entry* set = &entries_[place(key)];
        // Free places stand last, so that put() finds an old entry of its own key first.
        for (std::size_t i = 0; i < kWays; ++i) {
            if (set[i].key != key) continue;
            std::size_t last = kWays - 1;
            while (last > i && set[last].key == 0) --last;
            set[i] = set[last];
            set[last] = {};
            return;
        }
    }

private:
    static constexpr std::size_t kPlaces = 4096, kWays = 4;  // 512 KB, from the first statement on
    static std::size_t place(std::uint64_t key) noexcept { return (key >> 20) % kPlaces * kWays; }

    std::vector<Entry> entries_;
    std::uint32_t clock_ = 0;
};

}  // namespace tapscope
