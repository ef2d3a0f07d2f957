// What one PostgreSQL connection remembers: prepared statements and portals by name, and the units that wait for answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hash.hpp"

namespace tapscope::postgres {

inline constexpr std::size_t kTokenColumns = 32;    // result tokens come from the first columns only
inline constexpr std::size_t kMaxParameters = 256;  // parameters of a statement whose type is kept

// How the values of a column or parameter are read; the text format needs it only to tell numbers from text.
enum class ValueType : std::uint8_t { skipped, integer, real, numeric, text, uuid, array, unknown };

struct Statement {
    std::uint64_t name = 0;        // hash
    std::uint32_t generation = 0;  // counts the uses of this slot: a late reference to an older one is void
    std::int32_t execute_class = -1;  // class id of "EXECUTE <fingerprint>"; -1: the text was not seen
    bool used = false;
    std::uint16_t bound = 0;  // values of its last Bind
    std::vector<ValueType> parameters;
    std::uint16_t columns = 0;  // of its result; types of the first kTokenColumns
    ValueType column_type[kTokenColumns] = {};
};

// A statement as it was when it was referred to.
struct StatementRef {
    std::int32_t slot = -1;
    std::uint32_t generation = 0;
};

// Bounded at kMaxStatements: beyond it the oldest one makes room. Slot 0 is the unnamed statement.
// Invariant: every used slot but the first is found in `index_` by the hash of its name, and nothing else is.
class StatementTable {
public:
    static constexpr std::size_t kMaxStatements = 1024;

    // A fresh statement under `name`; an older one of that name is replaced. `evicted`: another had to go for it.
    std::int32_t define(std::string_view name, bool& evicted) {
        evicted = false;
        std::int32_t slot = name.empty() ? 0 : find(name);
        if (slot < 0) {
            if (!free_.empty()) {
                slot = free_.back();
                free_.pop_back();
            } else if (slots_.size() < kMaxStatements) {
                slot = static_cast<std::int32_t>(slots_.size());
                slots_.emplace_back();
            } else {
                slot = static_cast<std::int32_t>(1 + hand_++ % (kMaxStatements - 1));
                evicted = true;
                index_.erase(at(slot).name);
            }
            index_[hash(name)] = slot;
        }
        Statement& statement = at(slot);
        statement.name = hash(name);
        statement.used = true;
        ++statement.generation;
        statement.execute_class = -1;
        statement.parameters.clear();
        statement.columns = 0;
        return slot;
    }

    void close(std::string_view name) {
        const std::int32_t slot = find(name);
        if (slot < 0) return;
        at(slot).used = false;
        if (slot == 0) return;
        index_.erase(at(slot).name);
        free_.push_back(slot);
    }

    std::int32_t find(std::string_view name) const noexcept {
        if (name.empty()) return slots_[0].used ? 0 : -1;
        const auto found = index_.find(hash(name));
        return found == index_.end() ? -1 : found->second;
    }

    StatementRef reference(std::int32_t slot) const noexcept {
        return slot < 0 ? StatementRef{}
                        : StatementRef{slot, slots_[static_cast<std::size_t>(slot)].generation};
    }
    // nullptr when the slot holds another statement by now.
    Statement* get(StatementRef ref) noexcept {
        if (ref.slot < 0) return nullptr;
        Statement& statement = at(ref.slot);
        return statement.generation == ref.generation ? &statement : nullptr;
    }
    Statement& at(std::int32_t slot) noexcept { return slots_[static_cast<std::size_t>(slot)]; }

private:
    static std::uint64_t hash(std::string_view name) noexcept { return text_hash(name, 0x70677374); }

    std::vector<Statement> slots_ = std::vector<Statement>(1);
    std::vector<std::int32_t> free_;
    std::unordered_map<std::uint64_t, std::int32_t> index_;
    std::size_t hand_ = 0;
};

// A bound statement.
struct Portal {
    std::uint64_t name = 0;  // hash
    StatementRef statement;
    std::uint32_t binary = 0;  // result formats of the first kTokenColumns columns; bit set: binary
    bool open = false;
    bool executed = false;  // a further Execute fetches more rows
};

// Named portals beyond kMaxPortals push the oldest one out; the unnamed one has its own place.
class PortalTable {
public:
    static constexpr std::size_t kMaxPortals = 64;

    Portal& define(std::string_view name) {
        Portal* portal = name.empty() ? &unnamed_ : find(name);
        if (portal == nullptr) {
            if (named_.size() < kMaxPortals) {
                portal = &named_.emplace_back();
            } else {
                portal = &named_[hand_++ % kMaxPortals];
            }
        }
        *portal = {};
        portal->name = hash(name);
        portal->open = true;
        return *portal;
    }
    Portal* find(std::string_view name) noexcept {
        if (name.empty()) return unnamed_.open ? &unnamed_ : nullptr;
        const std::uint64_t wanted = hash(name);
        for (Portal& portal : named_)
            if (portal.open && portal.name == wanted) return &portal;
        return nullptr;
    }
    void close(std::string_view name) noexcept {
        Portal* portal = find(name);
        if (portal == nullptr) return;
        portal->open = false;
        if (portal != &unnamed_) {
            *portal = named_.back();
            named_.pop_back();
        }
    }

private:
    static std::uint64_t hash(std::string_view name) noexcept { return text_hash(name, 0x7067706f); }

    Portal unnamed_;
    std::vector<Portal> named_;
    std::size_t hand_ = 0;
};

// What a request is, and so how its answer ends.
enum class UnitKind : std::uint8_t {
    unknown,  // request not seen, or not complete yet: answered up to ReadyForQuery
    login,    // up to ReadyForQuery, or an error
    query,    // up to ReadyForQuery
    encrypt,  // one byte
    execute,  // up to CommandComplete, EmptyQueryResponse or PortalSuspended
    synced,   // extended messages without Execute, ended by Sync: up to ReadyForQuery
    flushed,  // the same, ended by Flush: `acknowledgements` of its messages
};

struct RequestUnit {
    std::uint32_t serial = 0;
    std::uint32_t group = 0;  // units up to the same Sync share it
    UnitKind kind = UnitKind::unknown;
    std::uint16_t acknowledgements = 0;  // owed for Parse, Bind, Describe and Close
    std::uint16_t closes_behind = 0;     // Close messages that follow the Execute in the same request
    StatementRef statement;
    std::uint32_t binary = 0;
};

// The last units by serial number, as many as may be open at once.
class UnitRing {
public:
    static constexpr std::size_t kFirst = 16, kMost = 4096;

    void put(const RequestUnit& unit, std::size_t open) {
        if (open >= units_.size() && units_.size() < kMost) {
            std::vector<RequestUnit> more(units_.empty() ? kFirst : units_.size() * 2);
            for (const RequestUnit& old : units_) more[old.serial % more.size()] = old;
            units_.swap(more);
        }
        units_[unit.serial % units_.size()] = unit;
    }
    RequestUnit* find(std::uint32_t serial) noexcept {
        if (units_.empty()) return nullptr;
        RequestUnit& unit = units_[serial % units_.size()];
        return unit.serial == serial && serial != 0 ? &unit : nullptr;
    }

private:
    std::vector<RequestUnit> units_;
};

}  // namespace tapscope::postgres
