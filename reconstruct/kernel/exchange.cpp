#include "exchange.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

namespace tapscope::match {
namespace {

constexpr double kBid = 0.02;  // nats by which a bid outdoes the second best; the auction's error bound
constexpr double kOnlyChance = 60.0;   // nats that a chain bids for its only parent
constexpr float kFar = 25.0f;          // nats below a chain's best parent from which on an option is left out
constexpr std::size_t kMaxBids = 400;  // per chain; beyond it the loaded assignment stays
constexpr int kSweeps = 60;            // of belief propagation
constexpr float kUnknown = std::numeric_limits<float>::infinity();

}  // namespace

void ChainExchange::load(const Chains& chains, const std::vector<std::uint8_t>& parents) {
    holder_.clear();
    options_.clear();
    offset_.assign(1, 0);
    steps_of_class_.resize(static_cast<std::size_t>(problem_.parents.n_classes));
    // A chain with a call that is certain goes nowhere, nor does another come in its place.
    free_ = parents;
    for (std::int32_t p = 0; p < chains.parents(); ++p) {
        for (const auto c : chains.held(p)) free_[p] &= !candidates_.certain(static_cast<std::size_t>(c));
    }
    for (std::int32_t p = 0; p < chains.parents(); ++p) {
        if (free_[p] && !chains.held(p).empty()) score(chains.held(p), p, free_);
    }
    assigned_ = holder_;
}

void ChainExchange::score(const std::vector<std::int32_t>& chain, std::int32_t holder,
                          const std::vector<std::uint8_t>& parents) {
    const auto first_option = options_.size();
    float top = -std::numeric_limits<float>::infinity();
    const auto last_begin = problem_.children.begin[static_cast<std::size_t>(chain.back())];
    steps_of_class_.assign(steps_of_class_.size(), kUnknown);
    for (const auto p : candidates_.of(static_cast<std::size_t>(chain.front()))) {
        if (!parents[p] || problem_.parents.depart[static_cast<std::size_t>(p)] + kSlack < last_begin)
            continue;
        float total = 0;
        bool possible = true;
        for (const auto c : chain) {
            const auto where = candidates_.find(static_cast<std::size_t>(c), p);
            possible = where >= 0;
            if (!possible) break;
            total += candidates_.content[static_cast<std::size_t>(where)];
        }
        if (!possible) continue;
        total += steps(chain, p) - model_.step(p, kStart, kEnd);
        if (length_.judges(p)) total += length_.score(p, chain) - length_.score(p, 0.0f);
        options_.push_back({p, total});
        top = std::max(top, total);
    }
    const auto begin = options_.begin() + static_cast<std::ptrdiff_t>(first_option);
    options_.erase(
        std::remove_if(begin, options_.end(),
                       [&](const Option& o) { return o.parent != holder && o.score < top - kFar; }),
        options_.end());
    holder_.push_back(holder);
    offset_.push_back(static_cast<std::int64_t>(options_.size()));
}

// All steps of p along the chain. Those from call to call are the same for all parents of a class.
float ChainExchange::steps(const std::vector<std::int32_t>& chain, std::int32_t p) {
    if (model_.fans_out(p)) {
        float total = 0;
        Tip tip;
        for (const auto c : chain) {
            total += model_.step(p, tip, c);
            model_.advance(p, tip, c);
        }
        return total + model_.step(p, tip, kEnd);
    }
    auto& between =
        steps_of_class_[static_cast<std::size_t>(problem_.parents.cls[static_cast<std::size_t>(p)])];
    if (between == kUnknown) {
        between = 0;
        for (std::size_t i = 1; i < chain.size(); ++i) between += model_.step(p, chain[i - 1], chain[i]);
    }
    return model_.step(p, kStart, chain.front()) + between + model_.step(p, chain.back(), kEnd);
}

double ChainExchange::best() {
    const std::size_t n = holder_.size();
    std::vector<double> price(problem_.parents.size(), 0.0);
    std::vector<std::int32_t> owner(problem_.parents.size(), kNone), won(n, kNone);
    std::deque<std::int32_t> bidders;
    for (std::size_t k = 0; k < n; ++k) bidders.push_back(static_cast<std::int32_t>(k));
    for (std::size_t bids = 0; !bidders.empty(); ++bids) {
        if (bids > kMaxBids * n) return 0.0;
        const auto k = bidders.front();
        bidders.pop_front();
        double first = -1e300, second = -1e300;
        std::int32_t target = kNone;
        for (auto i = offset_[k]; i < offset_[k + 1]; ++i) {
            const double value = options_[i].score - price[options_[i].parent];
            if (value > first) {
                second = first;
                first = value;
                target = options_[i].parent;
            } else {
                second = std::max(second, value);
            }
        }
        price[target] += std::min(first - second, kOnlyChance) + kBid;
        if (owner[target] != kNone) {
            won[owner[target]] = kNone;
            bidders.push_back(owner[target]);
        }
        owner[target] = k;
        won[k] = target;
    }
    double gain = 0;
    for (std::size_t k = 0; k < n; ++k) {
        for (auto i = offset_[k]; i < offset_[k + 1]; ++i) {
            if (options_[i].parent == won[k]) gain += options_[i].score;
            if (options_[i].parent == holder_[k]) gain -= options_[i].score;
        }
    }
    if (gain > 0) assigned_ = std::move(won);
    return gain;
}

std::vector<std::int32_t> ChainExchange::parent_of(const Chains& chains) const {
    auto out = chains.parent_of();
    for (std::size_t k = 0; k < holder_.size(); ++k) {
        for (const auto c : chains.held(holder_[k])) out[c] = assigned_[k];
    }
    return out;
}

std::vector<ChainExchange::Marginal> ChainExchange::marginals() const {
    const std::size_t n = holder_.size();
    std::vector<double> weight(options_.size()), to_parent(options_.size(), 0.0),
        to_chain(options_.size(), 1.0);
    for (std::size_t k = 0; k < n; ++k) {
        float top = -std::numeric_limits<float>::infinity();
        for (auto i = offset_[k]; i < offset_[k + 1]; ++i) top = std::max(top, options_[i].score);
        for (auto i = offset_[k]; i < offset_[k + 1]; ++i) weight[i] = std::exp(options_[i].score - top);
    }
    std::vector<double> offered(problem_.parents.size());
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
        for (std::size_t k = 0; k < n; ++k) {
            double total = 0;
            for (auto i = offset_[k]; i < offset_[k + 1]; ++i) total += weight[i] * to_chain[i];
            for (auto i = offset_[k]; i < offset_[k + 1]; ++i) {
                const double rest = std::max(total - weight[i] * to_chain[i], 1e-12);
                to_parent[i] = weight[i] / rest;
            }
        }
        std::fill(offered.begin(), offered.end(), 0.0);
        for (std::size_t i = 0; i < options_.size(); ++i) offered[options_[i].parent] += to_parent[i];
        for (std::size_t i = 0; i < options_.size(); ++i) {
            to_chain[i] = 1.0 / (1.0 + std::max(offered[options_[i].parent] - to_parent[i], 0.0));
        }
    }
    std::vector<Marginal> out(problem_.parents.size());
    for (std::size_t k = 0; k < n; ++k) {
        double total = 0;
        for (auto i = offset_[k]; i < offset_[k + 1]; ++i) total += weight[i] * to_chain[i];
        auto& m = out[holder_[k]];
        m.own = 0;
        for (auto i = offset_[k]; i < offset_[k + 1]; ++i) {
            const double p = weight[i] * to_chain[i] / total;
            if (options_[i].parent == holder_[k]) {
                m.own = p;
            } else if (p > m.other_probability) {
                m.other = options_[i].parent;
                m.other_probability = p;
            }
        }
    }
    return out;
}

}  // namespace tapscope::match
