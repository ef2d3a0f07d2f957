// The fields of a message that become evidence, at most so many: names and values, views into its bytes.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace tapscope {

struct Field {
    std::string_view name, value;
};

// Not cleared when it is made: one is made for every message, and most have few fields of these.
template <std::size_t Most>
class FewFields {
public:
    FewFields() noexcept {}
    // What is beyond the bound is left out.
    void add(const Field& field) noexcept {
        if (count_ < Most) items_[count_++] = field;
    }
    const Field* begin() const noexcept { return items_.data(); }
    const Field* end() const noexcept { return items_.data() + count_; }

private:
    std::size_t count_ = 0;
    union {
        std::array<Field, Most> items_;
    };
};

}  // namespace tapscope
