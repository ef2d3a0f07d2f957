// The logarithm of a sum of two likelihoods, which every first call that may have waited asks for.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace tapscope::match {

inline constexpr float kNegligible = 20.0f;  // nats; less than what a float of a score can show

// log(1 + exp(-x)) at multiples of 1 / kPerNat up to kNegligible. Between them it is at most 1e-5 below the chord.
inline constexpr int kPerNat = 64;
inline constexpr std::size_t kLogSums = static_cast<std::size_t>(kNegligible) * kPerNat + 2;
extern const std::array<float, kLogSums> kLogOfMore;

// log(exp(a) + exp(b)); one of them may be minus infinity.
inline float log_sum(float a, float b) noexcept {
    const float greater = std::max(a, b), apart = greater - std::min(a, b);
    if (!(apart < kNegligible)) return greater;
    const float place = apart * kPerNat;
    const auto at = static_cast<std::size_t>(place);
    return greater + kLogOfMore[at] +
           (place - static_cast<float>(at)) * (kLogOfMore[at + 1] - kLogOfMore[at]);
}

}  // namespace tapscope::match
