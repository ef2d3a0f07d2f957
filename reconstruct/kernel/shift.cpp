#include "shift.hpp"

#include <algorithm>

namespace tapscope::match {
namespace {

constexpr double kWorthIt = 0.5;  // nats
constexpr float kMisfit =
    8.0f;  // nats that a step is better than if it were nobody's, at most, to begin a way
constexpr std::size_t kLooks = 32;  // calls on the ways from one of them that are asked for

}  // namespace

bool Shift::run(Chains& chains) {
    left_ = problem_.children.size();
    bool any = false;
    for (const auto c : misfits(chains)) {
        if (left_ == 0) break;
        const bool shifted = shift(chains, c);
        any = any || shifted;
    }
    return any;
}

Shift::Chain Shift::misfits(const Chains& chains) {
    step_.assign(problem_.children.size(), 0.0f);
    for (std::int32_t p = 0; p < chains.parents(); ++p) {
        if (!chains.held(p).empty()) score_(p, chains.held(p), &step_);
    }
    Chain out;
    for (auto c = problem_.decided(); c < problem_.children.size(); ++c) {
        if (candidates_.certain(c) || candidates_.of(c).empty()) continue;
        const auto call = static_cast<std::int32_t>(c);
        if (chains.parent_of()[c] == kNone || step_[c] < model_.orphan(call) + kMisfit) out.push_back(call);
    }
    return out;
}

bool Shift::shift(Chains& chains, std::int32_t first) {
    const auto owner = chains.parent_of()[static_cast<std::size_t>(first)];
    worth_.clear();
    best_ = {kWorthIt, kNone, kNone};
    double gain = -model_.orphan(first);
    if (owner != kNone) gain = score_(owner, instead(chains, owner, kNone, first)) - worth(chains, owner);
    ways_.assign(1, {gain, first, owner});
    for (std::size_t look = 0; look < kLooks && left_ > 0; ++look) {
        stop_.poll();
        std::int32_t next = kNone;
        for (std::size_t i = 0; i < ways_.size(); ++i) {
            if (ways_[i].asked || ways_[i].gain <= best_.gain) continue;
            if (next == kNone || ways_[i].gain > ways_[static_cast<std::size_t>(next)].gain) {
                next = static_cast<std::int32_t>(i);
            }
        }
        if (next == kNone) break;
        ways_[static_cast<std::size_t>(next)].asked = true;
        const auto call = ways_[static_cast<std::size_t>(next)].call;
        const double alone = ways_[static_cast<std::size_t>(next)].gain + model_.orphan(call);
        if (alone > best_.gain) best_ = {alone, next, kNone};
        for (const auto p : candidates_.of(static_cast<std::size_t>(call))) {
            if (left_ > 0 && !on_the_way(next, p)) ask(chains, next, p);
        }
    }
    if (best_.last == kNone) return false;
    auto parent_of = chains.parent_of();
    auto taker = best_.taker;
    for (auto at = best_.last; at != kNone; at = ways_[static_cast<std::size_t>(at)].before) {
        const auto& way = ways_[static_cast<std::size_t>(at)];
        parent_of[static_cast<std::size_t>(way.call)] = taker;
        taker = way.owner;
    }
    chains.restore(parent_of);
    return true;
}

void Shift::ask(const Chains& chains, std::int32_t at, std::int32_t p) {
    const auto [gain, call, owner, before, asked] = ways_[static_cast<std::size_t>(at)];
    const auto& cls = problem_.children.cls;
    const double had = worth(chains, p);
    --left_;
    const double taken = gain + score_(p, instead(chains, p, call, kNone)) - had;
    if (taken > best_.gain) best_ = {taken, at, p};
    for (const auto given : chains.held(p)) {
        const auto c = static_cast<std::size_t>(given);
        if (cls[c] != cls[static_cast<std::size_t>(call)] || c < problem_.decided() || candidates_.certain(c))
            continue;
        left_ -= std::min<std::size_t>(left_, 1);
        const Displaced next{gain + score_(p, instead(chains, p, call, given)) - had, given, p, at};
        const auto known =
            std::find_if(ways_.begin(), ways_.end(), [&](const Displaced& way) { return way.call == given; });
        if (known == ways_.end()) {
            ways_.push_back(next);
        } else if (!known->asked && next.gain > known->gain) {
            *known = next;
        }
    }
}

bool Shift::on_the_way(std::int32_t at, std::int32_t p) const noexcept {
    for (; at != kNone; at = ways_[static_cast<std::size_t>(at)].before) {
        if (ways_[static_cast<std::size_t>(at)].owner == p) return true;
    }
    return false;
}

double Shift::worth(const Chains& chains, std::int32_t p) {
    const auto known =
        std::find_if(worth_.begin(), worth_.end(), [&](const auto& each) { return each.first == p; });
    if (known != worth_.end()) return known->second;
    worth_.emplace_back(p, score_(p, chains.held(p)));
    return worth_.back().second;
}

const Shift::Chain& Shift::instead(const Chains& chains, std::int32_t p, std::int32_t taken,
                                   std::int32_t given) {
    chain_ = chains.held(p);
    if (given != kNone) std::erase(chain_, given);
    if (taken != kNone) chain_.insert(std::lower_bound(chain_.begin(), chain_.end(), taken), taken);
    return chain_;
}

}  // namespace tapscope::match
