// Random numbers that are the same in every run.
#pragma once

#include <cstddef>
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

// One of `count`, drawn in proportion to weight(k); the last one that has a weight where rounding leaves something over.
// `uniform` gives numbers in [0, 1).
template <class Uniform, class Weight>
std::size_t pick(Uniform&& uniform, std::size_t count, Weight&& weight) {
    double total = 0;
    for (std::size_t k = 0; k < count; ++k) total += weight(k);
    double left = uniform() * total;
    std::size_t last = 0;
    for (std::size_t k = 0; k < count; ++k) {
        const double here = weight(k);
        if (here <= 0) continue;
        last = k;
        if ((left -= here) < 0) break;
    }
    return last;
}

}  // namespace tapscope::match
