// Habits of a node that the data may show or not: how often something occurs for the pairs of an assignment, and how
// often for candidate pairs at large. The log ratio of the two is evidence for a pair; without a habit it is near 0.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace tapscope::match {

template <std::size_t kBuckets>
struct Habit {
    using Counts = std::array<double, kBuckets>;
    using Ratios = std::array<float, kBuckets>;

    Counts chosen{}, possible{};

    void fade(double keep) noexcept {
        for (auto* counts : {&chosen, &possible}) {
            for (double& x : *counts) x *= keep;
        }
    }

    void add(const Habit& other) noexcept {
        for (std::size_t b = 0; b < kBuckets; ++b) {
            chosen[b] += other.chosen[b];
            possible[b] += other.possible[b];
        }
    }

    // Log ratios, at most `most` nats either way. Before any pair is seen, `prior` pairs say what is `expected`.
    Ratios ratios(double prior, float most, const Ratios& expected = {}) const noexcept {
        double all_chosen = 0, all_possible = 0, all_expected = 0;
        for (std::size_t b = 0; b < kBuckets; ++b) {
            all_chosen += chosen[b];
            all_possible += possible[b];
        }
        Counts at_large{}, before{};
        for (std::size_t b = 0; b < kBuckets; ++b) {
            at_large[b] = (possible[b] + 1.0) / (all_possible + kBuckets);
            before[b] = at_large[b] * std::exp(expected[b]);
            all_expected += before[b];
        }
        Ratios out{};
        for (std::size_t b = 0; b < kBuckets; ++b) {
            const double of_pairs = (chosen[b] + prior * before[b] / all_expected) / (all_chosen + prior);
            out[b] = std::clamp(static_cast<float>(std::log(of_pairs / at_large[b])), -most, most);
        }
        return out;
    }
};

}  // namespace tapscope::match
