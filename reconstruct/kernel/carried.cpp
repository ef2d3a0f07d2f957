#include "carried.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace tapscope::match {
namespace {

constexpr double kPrior = 30.0;        // steps of the coarser estimate that go with those of a pair, or class
constexpr double kPriorAtLarge = 2.0;  // and of none, with all
constexpr float kMost = 5.0f;          // nats that a step may say, either way
constexpr float kWorthALook = 0.2f;    // nats
constexpr int kOthers = 4;             // candidates of a call that did not make it, and are asked

// Shares of steps at which the chain holds the value.
struct Shares {
    double made = 0.5, others = 0.5;
};

}  // namespace

// Whether a chain that ends with a call holds a value of the next one.
bool Carried::holds(std::int32_t previous, std::int32_t next) const noexcept {
    const auto before = static_cast<std::size_t>(next - previous);
    if (before >= kShortly) return find(previous, next);
    auto& asked = asked_[static_cast<std::size_t>(asked_at_[static_cast<std::size_t>(next)])];
    const auto bit = std::uint64_t{1} << (before % 64);
    const auto word = before / 64;
    if ((asked.known[word] & bit) == 0) {
        asked.known[word] |= bit;
        if (find(previous, next)) asked.holds[word] |= bit;
    }
    return (asked.holds[word] & bit) != 0;
}

bool Carried::find(std::int32_t previous, std::int32_t next) const noexcept {
    const auto from = sources_.of(next);
    for (const auto back : lineage_.of(previous)) {
        if (std::find(from.begin(), from.end(), back) != from.end()) return true;
    }
    return false;
}

void Carried::estimate(const std::vector<std::int32_t>& parent_of, const FanOut& fan_out, double keep) {
    const auto& children = problem_.children;
    to_.resize(static_cast<std::size_t>(children.n_classes));
    for (auto* counted : {&steps_, &to_}) {
        for (auto& steps : *counted) steps.fade(keep);
    }
    all_.fade(keep);
    if (!children.tokens.hash.empty()) {
        std::vector<std::int32_t> latest(problem_.parents.size(), kNone), home(latest.size(), kStart);
        const auto fans_out = [&](std::int32_t p) { return fan_out.fans_out(problem_.parents.cls[p]); };
        for (std::size_t i = 0; i < std::min(problem_.settled, parent_of.size()); ++i) {
            const auto p = parent_of[i];
            if (p == kNone) continue;
            const auto c = static_cast<std::int32_t>(i);
            if (i >= problem_.decided() && !sources_.of(c).empty() && latest[p] != kNone) {
                const auto note = [&](std::int32_t q) {
                    const auto at = static_cast<std::size_t>(
                        pairs_.insert(pair(children.cls[latest[q]], children.cls[i])));
                    if (at == steps_.size()) {
                        steps_.emplace_back();
                        next_.push_back(children.cls[i]);
                    }
                    const auto from = fans_out(q) ? home[q] : latest[q];
                    const bool held = from != kStart && holds(from, c);
                    for (auto* steps : {&steps_[at], &to_[children.cls[i]], &all_}) {
                        (q == p ? steps->made : steps->others)[held] += 1;
                    }
                };
                note(p);
                int others = kOthers;
                for (const auto q : candidates_.of(i)) {
                    if (q == p || latest[q] == kNone || others-- <= 0) continue;
                    note(q);
                }
            }
            latest[p] = c;
            home[p] = at_hand(home[p], c);
        }
    }
    learn_ratios();
}

void Carried::learn_ratios() {
    const auto shares = [](const Steps& steps, double prior, const Shares& coarser) {
        const auto share = [&](const std::array<double, 2>& count, double expected) {
            return (count[1] + prior * expected) / (count[0] + count[1] + prior);
        };
        return Shares{share(steps.made, coarser.made), share(steps.others, coarser.others)};
    };
    const auto ratio = [](double of_made, double of_others) {
        return std::clamp(static_cast<float>(std::log(of_made / of_others)), -kMost, kMost);
    };
    const auto at_large = shares(all_, kPriorAtLarge, {});
    ratios_.assign(steps_.size(), {});
    for (std::size_t at = 0; at < steps_.size(); ++at) {
        const auto here = shares(steps_[at], kPrior, shares(to_[next_[at]], kPrior, at_large));
        const Ratios found{ratio(1 - here.made, 1 - here.others), ratio(here.made, here.others)};
        if (found.holds > kWorthALook) ratios_[at] = found;
    }
}

Carried::Ratios Carried::ratios(std::int32_t previous_cls, std::int32_t next_cls) const noexcept {
    const auto at = pairs_.find(pair(previous_cls, next_cls));
    return at == kNone || static_cast<std::size_t>(at) >= ratios_.size()
               ? Ratios{}
               : ratios_[static_cast<std::size_t>(at)];
}

}  // namespace tapscope::match
