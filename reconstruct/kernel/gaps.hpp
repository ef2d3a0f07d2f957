// Gap densities: log-spaced histograms of the time that a node itself takes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "time.hpp"

namespace tapscope::match {

inline constexpr int kGapBins = 96;  // 4 per octave from 1 us to 16 s; the ends collect the rest

inline constexpr double kUniformShare = 0.02;  // of every density that is spread evenly
inline constexpr double kOwnShare = 0.5;       // of a gap that stays in its bin when a histogram is smoothed

inline constexpr int kLoads = 12;  // octaves of requests in flight that are told apart; 0 stands for any load

inline constexpr Time kLeastGap = 1024;  // ns; shorter gaps share a bin

inline int gap_bin(Time gap_ns) noexcept {
    if (gap_ns < kLeastGap) return 0;
    const auto x = static_cast<std::uint64_t>(gap_ns);
    const int octave = static_cast<int>(std::bit_width(x)) - 1;  // 10 for 1024 ns
    const int quarter = static_cast<int>((x >> (octave - 2)) & 3);
    return std::min(1 + (octave - 10) * 4 + quarter, kGapBins - 1);
}

using Histogram = std::array<float, kGapBins>;

// Adds `from`, scaled to a total of `weight` gaps.
void add(Histogram& into, const Histogram& from, double weight);

// The probability of a bin that has this share of all gaps.
inline double evened(double share) noexcept { return (1 - kUniformShare) * share + kUniformShare / kGapBins; }

// What a count of gaps says per ns, by a clock that ticks. A gap of no tick may have been any time up to one: as a gap
// of a microsecond it would count for a thousand times more than it says, where ticks are milliseconds.
class GapScale {
public:
    explicit GapScale(Time tick_ns = 1);

    int bin(Time gap_ns) const noexcept { return gap_ns < least_ ? 0 : gap_bin(gap_ns); }
    double width_ns(int bin) const noexcept { return width_ns_[static_cast<std::size_t>(bin)]; }

    // What a bin has of a histogram that is smoothed over its neighbours: bins that no number of ticks falls into are
    // none.
    double smoothed(const Histogram& counts, int bin) const noexcept {
        constexpr double kNextShare = (1 - kOwnShare) / 2;
        const auto b = static_cast<std::size_t>(bin);
        return kNextShare * counts[below_[b]] + kOwnShare * counts[b] + kNextShare * counts[above_[b]];
    }

    // Counts to a smoothed log density per ns. A small share is spread evenly over the log scale: nothing is impossible.
    Histogram log_density(const Histogram& counts) const;

private:
    Time least_ = kLeastGap;
    std::array<float, kGapBins> width_ns_{};
    std::array<std::uint8_t, kGapBins> below_{}, above_{};
};

}  // namespace tapscope::match
