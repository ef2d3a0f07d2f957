// The prepared statements of one connection: server id -> what is needed to class and decode its executions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tapscope::mysql {

inline constexpr std::size_t kTokenColumns = 32;  // result tokens come from the first columns only

// Types of parameters; a few of them, as most statements have, stand in place.
class ParameterTypes {
public:
    void resize(std::size_t size) {
        size_ = static_cast<std::uint32_t>(size);
        if (size > kFew) more_.resize(size);
    }
    std::size_t size() const noexcept { return size_; }
    std::uint16_t* begin() noexcept { return size_ > kFew ? more_.data() : few_; }
    std::uint16_t* end() noexcept { return begin() + size_; }

private:
    static constexpr std::size_t kFew = 10;
    std::uint32_t size_ = 0;
    std::uint16_t few_[kFew] = {};
    std::vector<std::uint16_t> more_;  // all of them, when they are more
};

// In the order of use: what an execution needs lies in one cache line.
struct alignas(64) Statement {
    std::uint32_t id = 0;
    std::uint32_t generation = 0;  // counts the uses of this slot: a late reference to an older one is void
    std::int32_t execute_class = -1;  // class id of "EXECUTE <fingerprint>"
    std::uint16_t params = 0;         // placeholders; of the text until the server has answered
    bool used = false;
    bool bound = false;  // the server gave it an id
    enum class Text : std::uint8_t {
        seen,
        unseen,  // it was prepared before the capture began (mysql_unseen.cpp)
        told,    // ... and an answer told what it is
    };
    Text text = Text::seen;
    bool params_known = true;
    // Parameters sent by SEND_LONG_DATA since the last execution; made when the first one is.
    std::unique_ptr<std::vector<bool>> long_data;
    bool types_known = false;
    ParameterTypes types;  // from the last execution that sent them; bit 15: unsigned

    std::uint16_t columns = 0;  // of the last result set; types of the first kTokenColumns
    std::uint32_t column_unsigned = 0;
    std::uint8_t column_type[kTokenColumns] = {};

    bool was_long(std::size_t parameter) const noexcept {
        return long_data != nullptr && parameter < long_data->size() && (*long_data)[parameter];
    }
    void note_long(std::size_t parameter) {
        if (long_data == nullptr) long_data = std::make_unique<std::vector<bool>>();
        if (long_data->size() <= parameter) long_data->resize(parameter + 1);
        (*long_data)[parameter] = true;
    }
    void forget_long() noexcept {
        if (long_data != nullptr) long_data->clear();
    }
};

// Bounded at kMaxStatements: beyond it the oldest one makes room. Slots keep their buffers, so that a client which
// prepares, executes and closes for each request costs no allocation.
// Invariant: every used and bound slot is found in the hash table by its id, and nothing else is.
class StatementTable {
public:
    static constexpr std::size_t kMaxStatements = 1024;
    static constexpr std::int32_t kNone = -1;

    // A slot for a statement whose id is not known yet. `evicted` is set when an older one had to go.
    std::int32_t reserve(bool& evicted) {
        evicted = false;
        std::int32_t slot;
        if (!free_.empty()) {
            slot = free_.back();
            free_.pop_back();
        } else if (slots_.size() < kMaxStatements) {
            slot = static_cast<std::int32_t>(slots_.size());
            slots_.emplace_back();
        } else {
            slot = static_cast<std::int32_t>(hand_++ % kMaxStatements);
            evicted = true;
            unbind(slot);
        }
        Statement& statement = at(slot);
        ++statement.generation;
        statement.used = true;
        statement.bound = false;
        statement.text = Statement::Text::seen;
        statement.params_known = true;
        statement.types_known = false;
        statement.forget_long();
        statement.columns = 0;
        return slot;
    }

    void bind(std::int32_t slot, std::uint32_t id) {
        unbind(slot);  // the id that it was given may have been a guess
        const std::int32_t old = find(id);
        if (old != kNone) release(old);
        if ((count_ + 1) * 2 > index_.size()) grow();
        at(slot).id = id;
        at(slot).bound = true;
        insert(id, slot);
        ++count_;
    }

    void release(std::int32_t slot) {
        if (!at(slot).used) return;
        unbind(slot);
        at(slot).used = false;
        free_.push_back(slot);
    }

    std::int32_t find(std::uint32_t id) const noexcept {
        // Servers count statements from 1 on, and so do slots as long as none is closed.
        const std::size_t likely = std::size_t{id} - 1;
        if (likely < slots_.size() && slots_[likely].id == id && slots_[likely].bound)
            return static_cast<std::int32_t>(likely);
        if (index_.empty()) return kNone;
        for (std::size_t i = home(id);; i = next(i)) {
            if (index_[i].slot == kNone) return kNone;
            if (index_[i].id == id) return index_[i].slot;
        }
    }

    void clear() noexcept {
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (slots_[i].used) {
                slots_[i].used = slots_[i].bound = false;
                free_.push_back(static_cast<std::int32_t>(i));
            }
        }
        for (auto& entry : index_) entry = {};
        count_ = 0;
    }

    Statement& at(std::int32_t slot) noexcept { return slots_[static_cast<std::size_t>(slot)]; }
    std::size_t size() const noexcept { return count_; }

private:
    // With the id, so that a look-up touches no statement but the one it finds.
    struct Entry {
        std::uint32_t id = 0;
        std::int32_t slot = kNone;
    };
    std::size_t home(std::uint32_t id) const noexcept {
        return (id * 0x9E3779B1u >> 7) & (index_.size() - 1);
    }
    std::size_t next(std::size_t i) const noexcept { return (i + 1) & (index_.size() - 1); }

    void insert(std::uint32_t id, std::int32_t slot) noexcept {
        std::size_t i = home(id);
        while (index_[i].slot != kNone) i = next(i);
        index_[i] = {id, slot};
    }

    void grow() {
        std::vector<Entry> old(index_.empty() ? 16 : index_.size() * 2);
        old.swap(index_);
        for (const Entry& entry : old) {
            if (entry.slot != kNone) insert(entry.id, entry.slot);
        }
    }

    // Removal without tombstones: entries behind the hole move up when their home allows it.
    void unbind(std::int32_t slot) noexcept {
        Statement& statement = at(slot);
        if (!statement.bound) return;
        statement.bound = false;
        std::size_t hole = home(statement.id);
        while (index_[hole].slot != slot) hole = next(hole);
        for (std::size_t i = next(hole); index_[i].slot != kNone; i = next(i)) {
            const std::size_t wish = home(index_[i].id);
            if (((i - wish) & (index_.size() - 1)) >= ((i - hole) & (index_.size() - 1))) {
                index_[hole] = index_[i];
                hole = i;
            }
        }
        index_[hole] = {};
        --count_;
    }

    std::vector<Statement> slots_;
    std::vector<std::int32_t> free_;
    std::vector<Entry> index_;  // open addressing, a power of two
    std::size_t count_ = 0;
    std::size_t hand_ = 0;
};

}  // namespace tapscope::mysql
