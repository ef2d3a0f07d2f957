// Sums of two likelihoods from a table, against the library's logarithm.
#include "log_sum.hpp"

#include <cmath>
#include <limits>

#include "expect.hpp"

using namespace tapscope::match;
using tapscope::test::expect;

int main() {
    double worst = 0;
    for (int i = -30'000; i <= 30'000; ++i) {
        const float a = -3.0f, b = a + static_cast<float>(i) / 1000.0f;
        const double exact = std::log(std::exp(static_cast<double>(a)) + std::exp(static_cast<double>(b)));
        worst = std::max(worst, std::abs(exact - static_cast<double>(log_sum(a, b))));
        expect(log_sum(a, b) == log_sum(b, a), "neither goes before the other");
        expect(log_sum(a, b) >= std::max(a, b), "a sum is no less than its parts");
    }
    expect(worst < 1.2e-5, "the table is near the logarithm");
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    expect(log_sum(-7.5f, kNever) == -7.5f && log_sum(kNever, -7.5f) == -7.5f, "nothing adds nothing");
    expect(log_sum(kNever, kNever) == kNever, "two times nothing is nothing");
    return tapscope::test::failures > 0;
}
