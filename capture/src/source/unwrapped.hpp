// Counts of more than 32 bits from counters that have no more.
#pragma once

#include <cstdint>

namespace tapscope {

// libpcap's counters begin again at 0 after 2^32 packets, which a full 10 Gbit/s sends in five minutes. What came
// between two looks is their difference modulo 2^32, as long as there are fewer than that.
class Unwrapped {
public:
    // The sum so far, with a new reading of the counter.
    std::uint64_t operator()(std::uint32_t reading) noexcept {
        sum_ += static_cast<std::uint32_t>(reading - last_);
        last_ = reading;
        return sum_;
    }

private:
    std::uint64_t sum_ = 0;
    std::uint32_t last_ = 0;
};

}  // namespace tapscope
