#include "key_map.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace tapscope::match {
namespace {

std::uint64_t scramble(std::uint64_t key) noexcept {
    key ^= key >> 31;
    key *= 0x9E3779B97F4A7C15ull;
    return key ^ (key >> 29);
}

}  // namespace

void KeyMap::clear(std::size_t expected) {
    keys_.assign(std::bit_ceil(std::max<std::size_t>(2 * expected, 64)), 0);
    values_.assign(keys_.size(), kNone);
    size_ = 0;
}

std::int32_t KeyMap::find(std::uint64_t key) const noexcept {
    const std::size_t mask = keys_.size() - 1;
    for (std::size_t at = scramble(key) & mask;; at = (at + 1) & mask) {
        if (keys_[at] == key) return values_[at];
        if (keys_[at] == 0) return kNone;
    }
}

std::int32_t KeyMap::insert(std::uint64_t key) {
    if (2 * static_cast<std::size_t>(size_) >= keys_.size()) grow();
    const std::size_t mask = keys_.size() - 1;
    for (std::size_t at = scramble(key) & mask;; at = (at + 1) & mask) {
        if (keys_[at] == key) return values_[at];
        if (keys_[at] == 0) {
            keys_[at] = key;
            return values_[at] = size_++;
        }
    }
}

void KeyMap::grow() {
    auto keys = std::move(keys_);
    auto values = std::move(values_);
    keys_.assign(keys.size() * 2, 0);
    values_.assign(keys_.size(), kNone);
    const std::size_t mask = keys_.size() - 1;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (keys[i] == 0) continue;
        std::size_t at = scramble(keys[i]) & mask;
        while (keys_[at] != 0) at = (at + 1) & mask;
        keys_[at] = keys[i];
        values_[at] = values[i];
    }
}

}  // namespace tapscope::match
