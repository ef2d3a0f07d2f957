// What a field of a C-JDBC message is read from.
#pragma once

#include "bytes.hpp"
#include "dissect/cjdbc.hpp"

namespace tapscope {

// The bytes at hand. `pos` may come to lie beyond them: that much is passed over.
class CjdbcDissector::Input {
public:
    Input(Bytes bytes, std::uint64_t& pos) noexcept : bytes_(bytes), pos_(pos) {}
    bool have(std::size_t n) const noexcept { return pos_ + n <= bytes_.size(); }
    std::size_t left() const noexcept {
        return pos_ < bytes_.size() ? bytes_.size() - static_cast<std::size_t>(pos_) : 0;
    }
    const std::uint8_t* here() const noexcept { return bytes_.data() + pos_; }
    void pass(std::uint64_t n) noexcept { pos_ += n; }
    std::uint32_t u32() noexcept { return load_be32(take(4)); }
    std::uint64_t u64() noexcept { return load_be64(take(8)); }

private:
    const std::uint8_t* take(std::size_t n) noexcept {
        const std::uint8_t* at = here();
        pos_ += n;
        return at;
    }
    Bytes bytes_;
    std::uint64_t& pos_;
};

}  // namespace tapscope
