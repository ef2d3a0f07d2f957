#include "gaps.hpp"

#include <cmath>

namespace tapscope::match {

GapScale::GapScale(Time tick_ns) : least_(std::max(tick_ns, kLeastGap)) {
    std::array<bool, kGapBins> met{};
    for (int b = 0; b < kGapBins; ++b) {
        const double width = b == 0 ? static_cast<double>(kLeastGap) : std::ldexp(0.25, 10 + (b - 1) / 4);
        width_ns_[b] = static_cast<float>(std::max(width, static_cast<double>(tick_ns)));
        if (tick_ns <= kLeastGap) met[b] = true;
    }
    // From the fourth tick on each bin is as wide as a tick.
    for (int ticks = 0; ticks <= 4; ++ticks) met[static_cast<std::size_t>(bin(ticks * tick_ns))] = true;
    for (int b = bin(4 * tick_ns); b < kGapBins; ++b) met[b] = true;
    for (int b = 0; b < kGapBins; ++b) {
        int below = b - 1, above = b + 1;
        while (below >= 0 && !met[below]) --below;
        while (above < kGapBins && !met[above]) ++above;
        // What only another clock (work_clock.hpp) puts between two ticks is not spread.
        below_[b] = static_cast<std::uint8_t>(below < 0 || !met[b] ? b : below);
        above_[b] = static_cast<std::uint8_t>(above == kGapBins || !met[b] ? b : above);
    }
}

void add(Histogram& into, const Histogram& from, double weight) {
    double total = 0;
    for (const float x : from) total += x;
    if (total <= 0) return;
    for (int b = 0; b < kGapBins; ++b) into[b] += static_cast<float>(from[b] * weight / total);
}

Histogram GapScale::log_density(const Histogram& counts) const {
    Histogram smooth{}, out{};
    double total = 0;
    for (int b = 0; b < kGapBins; ++b) {
        smooth[b] = static_cast<float>(smoothed(counts, b));
        total += smooth[b];
    }
    for (int b = 0; b < kGapBins; ++b) {
        const double share = total > 0 ? smooth[b] / total : 1.0 / kGapBins;
        out[b] = static_cast<float>(std::log(evened(share) / width_ns(b)));
    }
    return out;
}

}  // namespace tapscope::match
