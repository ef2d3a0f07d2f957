#include "enough.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <queue>
#include <vector>

namespace tapscope::match {
namespace {

constexpr std::uint32_t kOften = 100;    // rows of a class that teach it,
constexpr double kMostRare = 1e-3;       // and the share of later rows that may be of other classes
constexpr double kMostDifferent = 0.15;  // share of requests that would have to change their stay, or load
constexpr double kLeastTold = 0.5;       // share of calls that carry values
constexpr std::size_t kOctaves = 64;

using Octaves = std::array<double, kOctaves>;

std::size_t octave(std::int64_t of) noexcept {
    return static_cast<std::size_t>(
        std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(of, 0))));
}

// Whether classes that are rare in the first `part` rows are rare behind them.
bool knows_classes(std::span<const std::int32_t> cls, std::size_t part) {
    std::vector<std::uint32_t> seen;
    std::size_t rare = 0;
    for (std::size_t i = 0; i < cls.size(); ++i) {
        const auto k = static_cast<std::size_t>(cls[i]);
        if (k >= seen.size()) seen.resize(k + 1, 0);
        if (i < part) {
            ++seen[k];
        } else {
            rare += seen[k] < kOften;
        }
    }
    return static_cast<double>(rare) <= kMostRare * static_cast<double>(cls.size() - part);
}

double told(std::span<const std::int64_t> token_offset) {
    std::size_t with_values = 0;
    for (std::size_t c = 1; c < token_offset.size(); ++c)
        with_values += token_offset[c] > token_offset[c - 1];
    return static_cast<double>(with_values) / static_cast<double>(token_offset.size() - 1);
}

// Share of the first `part` that would have to be elsewhere for them to be spread as the others are.
double difference(const std::vector<std::size_t>& octaves, std::size_t part) {
    Octaves first{}, rest{};
    for (std::size_t i = 0; i < octaves.size(); ++i) (i < part ? first : rest)[octaves[i]] += 1;
    double out = 0;
    const auto n = static_cast<double>(part), others = static_cast<double>(octaves.size() - part);
    for (std::size_t k = 0; k < kOctaves; ++k) out += std::abs(first[k] / n - rest[k] / others) / 2;
    return out;
}

}  // namespace

std::size_t enough_to_learn(const FirstRows& rows, std::size_t least) {
    const auto all = rows.begin.size();
    if (2 * least > all || rows.arrive.empty() || told(rows.child_token_offset) < kLeastTold) return all;
    std::vector<std::size_t> stays, loads;
    std::priority_queue<Time, std::vector<Time>, std::greater<>> in_flight;
    for (std::size_t p = 0; p < rows.arrive.size(); ++p) {
        while (!in_flight.empty() && in_flight.top() < rows.arrive[p]) in_flight.pop();
        in_flight.push(rows.depart[p]);
        stays.push_back(std::min(octave(rows.depart[p] - rows.arrive[p]), kOctaves - 1));
        loads.push_back(octave(static_cast<std::int64_t>(in_flight.size())));
    }
    for (auto part = least; 2 * part <= all; part *= 2) {
        const auto parents = static_cast<std::size_t>(
            std::upper_bound(rows.arrive.begin(), rows.arrive.end(), rows.begin[part]) - rows.arrive.begin());
        if (parents == 0 || parents == rows.arrive.size()) continue;
        if (!knows_classes(rows.child_cls, part) || !knows_classes(rows.parent_cls, parents)) continue;
        if (difference(stays, parents) > kMostDifferent || difference(loads, parents) > kMostDifferent)
            continue;
        return part;
    }
    return all;
}

}  // namespace tapscope::match
