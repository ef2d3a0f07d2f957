#include "gaps.hpp"

#include <algorithm>
#include <cmath>

namespace tapscope::match {

double gap_bin_width_ns(int bin) noexcept {
    if (bin == 0) return 1024.0;
    return std::ldexp(0.25, 10 + (bin - 1) / 4);
}

void add(Histogram& into, const Histogram& from, double weight) {
    double total = 0;
    for (const float x : from) total += x;
    if (total <= 0) return;
    for (int b = 0; b < kGapBins; ++b) into[b] += static_cast<float>(from[b] * weight / total);
}

Histogram log_density(const Histogram& counts) {
    Histogram smooth{}, out{};
    double total = 0;
    for (int b = 0; b < kGapBins; ++b) {
        smooth[b] = static_cast<float>(smoothed(counts, b));
        total += smooth[b];
    }
    for (int b = 0; b < kGapBins; ++b) {
        const double share = total > 0 ? smooth[b] / total : 1.0 / kGapBins;
        out[b] = static_cast<float>(std::log(evened(share) / gap_bin_width_ns(b)));
    }
    return out;
}

}  // namespace tapscope::match
