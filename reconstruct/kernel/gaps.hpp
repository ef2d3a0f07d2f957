// Gap densities: log-spaced histograms of the time that a node itself takes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "problem.hpp"

namespace tapscope::match {

inline constexpr int kGapBins = 96;  // 4 per octave from 1 us to 16 s; the ends collect the rest

inline constexpr double kUniformShare = 0.02;  // of every density that is spread evenly
inline constexpr double kOwnShare = 0.5;       // of a gap that stays in its bin when a histogram is smoothed

inline constexpr int kLoads = 12;  // octaves of requests in flight that are told apart; 0 stands for any load

inline int gap_bin(Time gap_ns) noexcept {
    if (gap_ns < 1024) return 0;
    const auto x = static_cast<std::uint64_t>(gap_ns);
    const int octave = static_cast<int>(std::bit_width(x)) - 1;  // 10 for 1024 ns
    const int quarter = static_cast<int>((x >> (octave - 2)) & 3);
    return std::min(1 + (octave - 10) * 4 + quarter, kGapBins - 1);
}
double gap_bin_width_ns(int bin) noexcept;

using Histogram = std::array<float, kGapBins>;

// Adds `from`, scaled to a total of `weight` gaps.
void add(Histogram& into, const Histogram& from, double weight);

// What a bin has of a histogram that is smoothed over its neighbours.
inline double smoothed(const Histogram& counts, int bin) noexcept {
    constexpr double kNextShare = (1 - kOwnShare) / 2;
    return kNextShare * counts[static_cast<std::size_t>(std::max(bin - 1, 0))] +
           kOwnShare * counts[static_cast<std::size_t>(bin)] +
           kNextShare * counts[static_cast<std::size_t>(std::min(bin + 1, kGapBins - 1))];
}
// The probability of a bin that has this share of all gaps.
inline double evened(double share) noexcept { return (1 - kUniformShare) * share + kUniformShare / kGapBins; }

// Counts to a smoothed log density per ns. A small share is spread evenly over the log scale: nothing is impossible.
Histogram log_density(const Histogram& counts);

}  // namespace tapscope::match
