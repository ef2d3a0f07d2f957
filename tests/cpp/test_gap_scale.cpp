// Gaps by clocks that tick: what their histograms say per ns is near to what those of a fine clock say.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "expect.hpp"
#include "gaps.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

struct Gap {
    double from, until;  // ns
};

// Lognormal, somewhere in time.
std::vector<Gap> gaps(double median_ns, std::size_t n) {
    std::mt19937_64 draw(1);
    std::lognormal_distribution<double> lasts(std::log(median_ns), 0.6);
    std::uniform_real_distribution<double> begins(0, 1e12);
    std::vector<Gap> out;
    for (std::size_t i = 0; i < n; ++i) {
        const double from = begins(draw);
        out.push_back({from, from + lasts(draw)});
    }
    return out;
}

Time stamped(const Gap& gap, Time tick) {
    const auto stamp = [&](double at) {
        return static_cast<Time>(std::floor(at / static_cast<double>(tick))) * tick;
    };
    return stamp(gap.until) - stamp(gap.from);
}

// Nats that the density of these gaps has for each of them, on average.
double says(const std::vector<Gap>& gaps, Time tick) {
    const GapScale scale(tick);
    Histogram counts{};
    for (const auto& gap : gaps) counts[static_cast<std::size_t>(scale.bin(stamped(gap, tick)))] += 1;
    const auto density = scale.log_density(counts);
    double total = 0;
    for (const auto& gap : gaps) total += density[static_cast<std::size_t>(scale.bin(stamped(gap, tick)))];
    return total / static_cast<double>(gaps.size());
}

}  // namespace

int main() {
    const auto some = gaps(2e6, 20'000);
    const double fine = says(some, 1);
    for (const Time tick : {1'000, 10'000, 100'000, 1'000'000}) {
        const double here = says(some, tick);
        std::printf("tick of %lld ns: %.2f nats, by a fine clock %.2f\n", static_cast<long long>(tick), here,
                    fine);
        expect(std::abs(here - fine) < 0.3, "a clock that ticks says as much");
    }
    // Gaps of half a tick tell no more than that they are short.
    expect(says(gaps(5e5, 20'000), 1'000'000) < says(gaps(5e5, 20'000), 1),
           "a gap of no tick is not one of no time");

    for (const Time tick : {Time{0}, Time{1}, Time{1'024}, Time{1'000'000}, Time{40'000'000'000}}) {
        const GapScale scale(tick);
        Histogram counts{};
        for (Time ticks = 0; ticks < 9; ++ticks) {
            const auto bin = scale.bin(ticks * tick);
            expect(scale.width_ns(bin) >= static_cast<double>(tick), "no bin is narrower than a tick");
            counts[static_cast<std::size_t>(bin)] += 1;
        }
        for (const float each : scale.log_density(counts))
            expect(std::isfinite(each), "nothing is impossible");
    }
    std::printf("gap scale: %d differences\n", failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
