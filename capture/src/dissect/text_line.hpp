// Lines of text protocols that end with CR LF, or LF alone.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include "bytes.hpp"

namespace tapscope {

// The line at the start of `bytes`, without its end; `size` counts that, too. False when the end does not stand among
// the first `most` bytes at hand.
inline bool take_text_line(Bytes bytes, std::size_t most, std::string_view& line,
                           std::size_t& size) noexcept {
    const void* found = std::memchr(bytes.data(), '\n', std::min(bytes.size(), most));
    if (found == nullptr) return false;
    size = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - bytes.data()) + 1;
    line = as_text(bytes.first(size - 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return true;
}

}  // namespace tapscope
