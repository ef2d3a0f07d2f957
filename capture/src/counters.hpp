// Named counters: every oddity of every stage by name, so that nothing is lost silently.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tapscope {

enum class Unit : std::uint8_t { events, packets, bytes, messages, connections };

inline const char* unit_name(Unit unit) noexcept {
    constexpr const char* names[] = {"events", "packets", "bytes", "messages", "connections"};
    return names[static_cast<unsigned>(unit)];
}

// Keyed by the address of a string literal: a count costs one probe and no string comparison. Names that the
// compiler did not merge are merged by text in `rows()`.
class Counters {
public:
    struct Row {
        std::string name;
        std::uint64_t value;
        Unit unit;
    };

    void add(const char* name, std::uint64_t n = 1, Unit unit = Unit::events) {
        std::size_t i =
            (reinterpret_cast<std::uintptr_t>(name) * 0x9E3779B97F4A7C15u >> 40) & (slots_.size() - 1);
        while (slots_[i].name != name) {
            if (slots_[i].name == nullptr) {
                if (++used_ * 2 > slots_.size()) {
                    grow();
                    return add(name, n, unit);
                }
                slots_[i] = {name, 0, unit};
                break;
            }
            i = (i + 1) & (slots_.size() - 1);
        }
        slots_[i].value += n;
    }

    void add_all(const Counters& others) {
        for (const Slot& slot : others.slots_)
            if (slot.name != nullptr) add(slot.name, slot.value, slot.unit);
    }

    std::vector<Row> rows() const {
        std::map<std::string, std::pair<std::uint64_t, Unit>> merged;
        for (const Slot& slot : slots_) {
            if (slot.name == nullptr) continue;
            auto [at, added] = merged.try_emplace(slot.name, 0, slot.unit);
            at->second.first += slot.value;
        }
        std::vector<Row> out;
        for (const auto& [name, value] : merged) out.push_back({name, value.first, value.second});
        return out;
    }

private:
    struct Slot {
        const char* name = nullptr;
        std::uint64_t value = 0;
        Unit unit = Unit::events;
    };

    void grow() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        used_ = 0;
        for (const Slot& slot : old)
            if (slot.name != nullptr) add(slot.name, slot.value, slot.unit);
    }

    std::vector<Slot> slots_ = std::vector<Slot>(256);
    std::size_t used_ = 0;
};

}  // namespace tapscope
