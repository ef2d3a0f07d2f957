// The hashes of evidence values, several at a time: SipHash is one chain of operations, so eight values of the same number
// of words are hashed side by side, with the widest vectors that the processor has. The result is siphash13's (hash.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "columns.hpp"
#include "hash.hpp"

namespace tapscope {

// Values are copied as they come, into words as SipHash wants them, and wait for others of their kind; longer ones are
// hashed at once. Memory: one fixed block.
class TokenHashes {
public:
    // `widest`: bits of the widest vectors to use where there are such.
    explicit TokenHashes(HashKey key, unsigned widest = 512) noexcept;

    // column[row] becomes the hash of `value`, now or with settle().
    void add(Column<std::uint64_t>& column, std::size_t row, std::span<const std::uint8_t> value) {
        const std::size_t whole = value.size() / 8;
        if (whole >= kKinds) [[unlikely]]
            return add_long(column, row, value);
        Kind& kind = kinds_[whole];
        std::uint64_t* word = kind.words[0].data() + kind.waiting;
        const std::uint8_t* p = value.data();
        for (std::size_t i = 0; i < whole; ++i, p += 8, word += kLanes) *word = load_le64(p);
        const std::size_t rest = value.size() & 7;
        const std::uint64_t tail = whole > 0 ? detail::tail_word_behind(p, rest) : detail::tail_word(p, rest);
        *word = std::uint64_t{value.size()} << 56 | tail;
        kind.row[kind.waiting] = row;
        if (++kind.waiting == kLanes) hash(column, kind, whole + 1);
    }
    // Hashes all that wait. Call before rows are read.
    void settle(Column<std::uint64_t>& column) noexcept;

private:
    static constexpr std::size_t kKinds = 16;  // values below 128 bytes: most statements are such
    static constexpr std::size_t kLanes = 8;
    using Lanes = std::array<std::uint64_t, kLanes>;
    // Values of the same number of words; the last word has the length.
    struct Kind {
        alignas(64) std::array<Lanes, kKinds> words;
        std::array<std::size_t, kLanes> row;
        std::size_t waiting = 0;
    };
    using Hash = void (*)(HashKey key, const std::uint64_t* words, std::size_t count, std::uint64_t* out);
    static Hash choose(unsigned widest) noexcept;
    void add_long(Column<std::uint64_t>& column, std::size_t row,
                  std::span<const std::uint8_t> value) noexcept;
    void hash(Column<std::uint64_t>& column, Kind& kind, std::size_t words) noexcept;

    HashKey key_;
    Hash hash_;
    std::array<Kind, kKinds> kinds_{};
};

}  // namespace tapscope
