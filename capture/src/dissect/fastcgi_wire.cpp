#include "dissect/fastcgi_wire.hpp"

#include <algorithm>

namespace tapscope::fastcgi {

bool plausible(Direction direction, Bytes record) noexcept {
    if (record[0] != 1 || record[7] != 0) return false;
    const std::uint16_t id = id_of(record), length = length_of(record);
    switch (type_of(record)) {
        case Type::begin_request:
            if (direction != Direction::to_server || id == 0 || length != kFixedBody) return false;
            if (record.size() < kHeader + kFixedBody) return true;
            return record[8] == 0 && record[9] >= kResponder && record[9] <= kFilter && record[10] <= 1 &&
                   std::all_of(record.begin() + 11, record.begin() + 16,
                               [](std::uint8_t c) { return c == 0; });
        case Type::abort_request:
            return direction == Direction::to_server && id != 0 && length == 0;
        case Type::params:
        case Type::stdin_:
        case Type::data:
            return direction == Direction::to_server && id != 0;
        case Type::get_values:
            return direction == Direction::to_server && id == 0;
        case Type::end_request:
            return direction == Direction::to_client && id != 0 && length == kFixedBody &&
                   (record.size() < kHeader + 5 || record[kHeader + 4] <= 3);
        case Type::stdout_:
        case Type::stderr_:
            return direction == Direction::to_client && id != 0;
        case Type::get_values_result:
            return direction == Direction::to_client && id == 0;
        case Type::unknown_type:
            return direction == Direction::to_client && id == 0 && length == kFixedBody;
    }
    return false;
}

std::size_t find_chain(Direction direction, Bytes bytes, std::size_t from, bool only_at_start) noexcept {
    for (std::size_t p = from; p + kHeader <= bytes.size(); ++p) {
        std::size_t q = p, count = 0;
        while (count < 3 && q + kHeader <= bytes.size() && plausible(direction, bytes.subspan(q))) {
            q += size_of(bytes.subspan(q));
            ++count;
        }
        // The last one may go on beyond the bytes, or the next one begin at their end.
        const bool at_end = q >= bytes.size() || (q + kHeader > bytes.size() && bytes[q] == 1);
        if (count == 3 || (count > 0 && at_end)) return p;
        if (only_at_start) break;
    }
    return bytes.size();
}

}  // namespace tapscope::fastcgi
