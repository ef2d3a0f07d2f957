#include "answer_fit.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "least_squares.hpp"

namespace tapscope::match {
namespace {

constexpr std::size_t kLeast = 40;      // examples to learn from
constexpr std::size_t kPerFeature = 8;  // examples for each number that is learned, at least
constexpr std::size_t kFeatures = 24;   // numbers at most
constexpr double kOften = 5;            // examples that have a call, for it to count
// Nats above the lengths of answers by themselves, in the mean and all together.
constexpr double kWorthALook = 0.05, kWorthAtAll = 10.0;
constexpr double kPrior = 2.0;      // answers that are off by anything, in octaves
constexpr std::size_t kAround = 8;  // before and behind
constexpr int kRounds = 4;          // of weighing examples by how well they fit
constexpr int kTurns = 2;           // of telling what neighbours have in common from what they have not

std::vector<float> less_drift(std::vector<float> values) {
    const auto around = medians_around(values);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= around[i];
    return values;
}

// A fit, and how far answers are off by it: each by what the others say, less what those around it have in common.
struct Explained {
    LeastSquares fit;
    float base = 0;
    std::vector<float> off;
};

Explained explain(LeastSquares fit) {
    fit.solve(kRounds);
    const auto base = static_cast<float>(fit.constant());
    auto off = less_drift(fit.left_out());
    return {std::move(fit), base, std::move(off)};
}

// The same where answers have so much in `common` with those around them, which is not to be explained.
Explained explain_apart(LeastSquares fit, const std::vector<float>& lengths, std::vector<float> common) {
    for (std::size_t i = 0; i < lengths.size(); ++i) fit.replace(i, lengths[i] - common[i]);
    fit.solve(kRounds);
    auto off = fit.left_out();
    for (std::size_t i = 0; i < off.size(); ++i) off[i] += common[i];
    const auto middle = common.begin() + static_cast<std::ptrdiff_t>(common.size() / 2);
    std::nth_element(common.begin(), middle, common.end());
    const auto base = static_cast<float>(fit.constant()) + *middle;
    return {std::move(fit), base, less_drift(std::move(off))};
}

// What answers have in common with those around them, beside what their calls explain.
std::vector<float> in_common(const LeastSquares& fit, std::vector<float> lengths) {
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        lengths[i] -= static_cast<float>(fit.expected(i) - fit.constant());
    }
    return medians_around(lengths);
}

}  // namespace

std::vector<float> medians_around(const std::vector<float>& values) {
    std::vector<float> out(values.size(), 0.0f), near;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto low = i < kAround ? 0 : i - kAround, high = std::min(values.size(), i + kAround + 1);
        near.clear();
        for (auto k = low; k < high; ++k) {
            if (k != i) near.push_back(values[k]);
        }
        if (near.size() < kAround) continue;
        const auto middle = near.begin() + static_cast<std::ptrdiff_t>(near.size() / 2);
        std::nth_element(near.begin(), middle, near.end());
        out[i] = *middle;
    }
    return out;
}

std::size_t AnswerFit::bin(float off) noexcept {
    const float size = std::abs(off);
    if (!(size >= 2.0f)) return 0;
    return std::min(static_cast<std::size_t>(2.0f * std::log2(size)) - 1, kBins - 1);
}

AnswerFit::Density AnswerFit::log_density(const std::vector<float>& off) {
    std::array<double, kBins + 1> counts{};
    for (const float each : off) {  // the neighbours stand for where a border happens to be
        const auto b = bin(each);
        counts[b] += 0.6;
        counts[b == 0 ? 1 : b - 1] += 0.2;
        counts[b + 1] += 0.2;
    }
    // The farther off, the rarer: two chains that were given to one another are off by the same, and would vouch for
    // themselves. So bins that are denser than those before them are put together with these.
    struct Step {
        double share = 0, width = 0;
        int bins = 0;
    };
    std::vector<Step> steps;
    const double all = static_cast<double>(off.size()) + kPrior;
    double low = 0;
    for (std::size_t b = 0; b < kBins; ++b) {
        const double high = std::exp2(0.5 * static_cast<double>(b + 2));
        steps.push_back({(counts[b] + kPrior / kBins) / all, 2 * (high - low), 1});
        low = high;
        while (steps.size() > 1) {
            auto& before = steps[steps.size() - 2];
            const auto& last = steps.back();
            if (last.share * before.width <= before.share * last.width) break;
            before = {before.share + last.share, before.width + last.width, before.bins + last.bins};
            steps.pop_back();
        }
    }
    Density out{};
    std::size_t b = 0;
    for (const auto& step : steps) {
        for (int i = 0; i < step.bins; ++i) out[b++] = static_cast<float>(std::log(step.share / step.width));
    }
    return out;
}

// What chains have, and how much it varies.
std::vector<AnswerFit::Seen> AnswerFit::look(std::span<const Example> examples) {
    place_.clear(64);
    std::vector<Seen> seen;
    for (const auto& example : examples) {
        for (const auto& each : example.called) {
            const auto at = static_cast<std::size_t>(place_.insert(static_cast<std::uint64_t>(each.cls) + 1));
            if (at == seen.size()) seen.push_back({each.cls});
            auto& s = seen[at];
            const double bytes = each.bytes, count = each.count;
            s.chains += 1;
            s.bytes += bytes;
            s.bytes2 += bytes * bytes;
            s.calls += count;
            s.calls2 += count * count;
        }
    }
    return seen;
}

std::vector<AnswerFit::Feature> AnswerFit::features(const std::vector<Seen>& seen, std::size_t examples) {
    std::vector<Feature> out;
    const auto n = static_cast<double>(examples);
    for (std::size_t k = 0; k < seen.size(); ++k) {
        const auto& s = seen[k];
        if (s.chains < kOften) continue;
        const double bytes = s.bytes2 / n - std::pow(s.bytes / n, 2);
        const double calls = (s.calls2 / n - std::pow(s.calls / n, 2)) * std::pow(s.bytes / s.calls, 2);
        if (bytes > 0.5) out.push_back({k, false, bytes});
        // Where all answers are as long, their bytes say how many they are.
        if (calls > 0.5 && std::abs(bytes - calls) > 0.5) out.push_back({k, true, calls});
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const Feature& a, const Feature& b) { return a.varies > b.varies; });
    out.resize(std::min({out.size(), kFeatures, examples / kPerFeature}));
    return out;
}

void AnswerFit::learn(std::span<const Example> examples) {
    tells_ = false;
    if (examples.size() < kLeast) return;
    const auto seen = look(examples);
    const auto used = features(seen, examples.size());
    std::vector<std::int32_t> of_bytes(seen.size(), kNone), of_calls(seen.size(), kNone);
    for (std::size_t f = 0; f < used.size(); ++f) {
        (used[f].calls ? of_calls : of_bytes)[used[f].of] = static_cast<std::int32_t>(f);
    }
    LeastSquares fit(used.size());
    std::vector<float> lengths;
    for (const auto& example : examples) {
        const auto row = fit.add(example.answer);
        lengths.push_back(example.answer);
        for (const auto& each : example.called) {
            const auto k = static_cast<std::size_t>(place(each.cls));
            if (of_bytes[k] != kNone) row[static_cast<std::size_t>(of_bytes[k])] = each.bytes;
            if (of_calls[k] != kNone) row[static_cast<std::size_t>(of_calls[k])] = each.count;
        }
    }
    const auto says = [](const Density& density, const std::vector<float>& off) {
        return std::accumulate(off.begin(), off.end(), 0.0,
                               [&](double sum, float each) { return sum + density[bin(each)]; });
    };
    const auto count = static_cast<double>(examples.size());
    const double worth = std::max(kWorthALook * count, kWorthAtAll);
    auto best = explain(fit);
    density_ = log_density(best.off);
    double told = says(density_, best.off), lacks = worth;
    auto common = medians_around(lengths);
    for (int turn = 0; turn < kTurns; ++turn) {
        auto other = explain_apart(fit, lengths, common);
        common = in_common(other.fit, lengths);
        const auto density = log_density(other.off);
        const double here = says(density, other.off);
        if (here <= told + lacks) continue;
        best = std::move(other);
        density_ = density;
        told = here;
        lacks = 0;
    }
    lengths = less_drift(std::move(lengths));
    const double by_themselves = says(log_density(lengths), lengths);
    tells_ = told - by_themselves > worth;
    for (float& each : density_) each -= static_cast<float>(by_themselves / count);
    base_ = best.base;
    weight_.clear();
    for (std::size_t k = 0; k < seen.size(); ++k) {
        const auto slope = [&](std::int32_t f) {
            return f == kNone ? 0.0f : static_cast<float>(best.fit.slope(static_cast<std::size_t>(f)));
        };
        weight_.push_back(
            {slope(of_bytes[k]), slope(of_calls[k]), static_cast<float>(seen[k].bytes / seen[k].calls)});
    }
}

float AnswerFit::part(std::int32_t cls, float bytes) const noexcept {
    const auto at = place(cls);
    if (at == kNone) return 0;
    const auto& weight = weight_[static_cast<std::size_t>(at)];
    return weight.per_byte * (bytes < 0 ? weight.usual : bytes) + weight.per_call;
}

}  // namespace tapscope::match
