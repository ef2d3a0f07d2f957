// Random numbers that are the same in every run.
#pragma once

#include <cstdint>

namespace tapscope::match {

class Random {  // splitmix64
public:
    double operator()() noexcept {  // [0, 1)
        state_ += 0x9E3779B97F4A7C15ull;
        std::uint64_t x = state_;
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
        return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
    }

private:
    std::uint64_t state_ = 0x7A705C09E;
};

}  // namespace tapscope::match
