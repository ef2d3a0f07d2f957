// A hash map that only grows: 64-bit keys to dense indices.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace tapscope::match {

// Open-addressing map from a 64-bit key to a dense index, insert only. Keys must not be 0.
class KeyMap {
public:
    KeyMap() { clear(64); }
    void clear(std::size_t expected);
    // Index of the key, or kNone.
    std::int32_t find(std::uint64_t key) const noexcept;
    // Index of the key; a new one gets the next free index.
    std::int32_t insert(std::uint64_t key);
    std::int32_t size() const noexcept { return size_; }

private:
    void grow();
    std::vector<std::uint64_t> keys_;
    std::vector<std::int32_t> values_;
    std::int32_t size_ = 0;
};

}  // namespace tapscope::match
