#include "fan_out.hpp"

#include <algorithm>
#include <cmath>

namespace tapscope::match {
namespace {

constexpr double kOverlapShare = 0.05;  // of the steps of a class that overlap, from which on it fans out
constexpr double kFewSteps = 8.0;       // steps that say "one after the other" before any is seen
constexpr std::int8_t kMostBits = 32;
constexpr double kDiscount = 0.9;  // of what was seen seldom; sets come more often than steps (cells.cpp)
constexpr double kBackoff = 1.0;   // pseudo-steps that the chain lends to a set

}  // namespace

FanOut::FanOut(const Problem& problem) : problem_(problem) { fade(0); }

void FanOut::fade(double keep) {
    if (keep <= 0) {
        const auto a = static_cast<std::size_t>(problem_.parents.n_classes);
        const auto cells = a * static_cast<std::size_t>(problem_.children.n_classes);
        fans_out_.assign(a, 0);
        followed_.assign(a, 0.0);
        overlapped_.assign(a, 0.0);
        bit_.assign(cells, -1);
        bits_.assign(a, 0);
        from_arrival_.assign(cells, 0);
        slot_.assign(cells, kNone);
        for (auto* map : {&steps_, &sets_}) map->clear(64);
        for (auto* counts : {&step_count_, &set_count_, &set_kinds_, &gain_}) counts->clear();
        begins_.clear();
        any_ = false;
    }
    density_.clear();
    known_.assign(std::size_t{1} << kKnownBits, {});
    for (auto* counts : {&followed_, &overlapped_, &step_count_, &set_count_, &gain_}) {
        for (double& x : *counts) x *= keep;
    }
    for (auto& begins : begins_) {
        for (float& x : begins) x *= static_cast<float>(keep);
    }
}

void FanOut::find(const std::vector<std::int32_t>& parent_of) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    std::vector<Time> latest(parents.size(), -1);
    for (std::size_t c = 0; c < children.size(); ++c) {
        const auto p = parent_of[c];
        if (p == kNone) continue;
        if (latest[p] >= 0 && c >= problem_.decided() && c < problem_.settled) {
            followed_[parents.cls[p]] += 1;
            overlapped_[parents.cls[p]] += latest[p] > children.begin[c] + kSlack;
        }
        latest[p] = std::max(latest[p], children.end[c]);
    }
    any_ = false;
    for (std::int32_t a = 0; a < parents.n_classes; ++a) {
        fans_out_[a] = overlapped_[a] > kOverlapShare * (followed_[a] + kFewSteps);
        any_ = any_ || fans_out_[a];
    }
    if (!any_) return;
    for (std::size_t c = 0; c < children.size(); ++c) {
        const auto p = parent_of[c];
        if (p == kNone || !fans_out(parents.cls[p])) continue;
        const auto a = parents.cls[p];
        auto& bit = bit_[index(a, children.cls[c])];
        if (bit < 0 && bits_[a] < kMostBits) bit = bits_[a]++;
    }
}

void FanOut::observe(std::int32_t a, std::uint32_t called, std::int32_t next) {
    const auto set = static_cast<std::size_t>(sets_.insert(key(a, called, -1)));
    if (set == set_count_.size()) {
        set_count_.push_back(0);
        set_kinds_.push_back(0);
    }
    const auto step = static_cast<std::size_t>(steps_.insert(key(a, called, next)));
    if (step == step_count_.size()) {
        step_count_.push_back(0);
        set_kinds_[set] += 1;
    }
    set_count_[set] += 1;
    step_count_[step] += 1;
}

float FanOut::find_log_p(std::int32_t a, std::uint32_t called, std::int32_t next, float log_expected) const {
    const auto set = sets_.find(key(a, called, -1));
    if (set == kNone) return log_expected;
    const auto step = steps_.find(key(a, called, next));
    const double times = step == kNone ? 0.0 : step_count_[step];
    const double lent = kDiscount * set_kinds_[set] + kBackoff;
    return static_cast<float>(std::log((std::max(times - kDiscount, 0.0) + lent * std::exp(log_expected)) /
                                       (set_count_[set] + kBackoff)));
}

void FanOut::observe_begin(std::int32_t a, std::int32_t k, Time since_arrival) {
    auto& at = slot_[index(a, k)];
    if (at == kNone) {
        at = static_cast<std::int32_t>(begins_.size());
        begins_.push_back({});
    }
    begins_[at][problem_.gaps.bin(since_arrival)] += 1;
}

void FanOut::compare_begin(std::int32_t a, std::int32_t k, Time since_arrival, float chain) {
    if (density_.empty()) {
        for (const auto& begins : begins_) density_.push_back(problem_.gaps.log_density(begins));
        gain_.resize(begins_.size(), 0.0);
    }
    gain_[slot_[index(a, k)]] += begin_density(a, k, since_arrival) - chain;
}

void FanOut::finish_begins() {
    if (density_.empty()) return;
    for (std::size_t cell = 0; cell < slot_.size(); ++cell) {
        from_arrival_[cell] = slot_[cell] != kNone && gain_[slot_[cell]] > 0;
    }
}

}  // namespace tapscope::match
