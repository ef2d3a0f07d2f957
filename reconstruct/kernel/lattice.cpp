#include "lattice.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

namespace tapscope::match {
namespace {

constexpr std::size_t kMostStates = 256;  // of a layer
constexpr std::size_t kLookBack = 8;      // states of a layer that another one may have a tip in common with
constexpr float kImpossible = -std::numeric_limits<float>::infinity();

std::uint64_t hash(const Tip& tip, std::uint64_t seed) noexcept {
    const auto mix = [&](std::uint64_t more) {
        seed = (seed ^ more) * 0x9E3779B97F4A7C15ull;
        seed ^= seed >> 29;
    };
    mix(static_cast<std::uint64_t>(static_cast<std::uint32_t>(tip.last)) << 32 |
        static_cast<std::uint32_t>(tip.latest));
    mix(static_cast<std::uint64_t>(static_cast<std::uint32_t>(tip.held)) << 32 | tip.called);
    return seed;
}

}  // namespace

float Lattice::step(int side, const Tip& tip, std::int32_t next) const {
    const auto p = parent_[side];
    return weight_ * (p == kNone ? model_->orphan(next) : model_->step(p, tip, next));
}

// The step out of state s. One of the first states may have the same tip.
float Lattice::step_from(int side, const Layer& before, std::size_t s, std::int32_t next) {
    auto& stepped = stepped_[side];
    const auto& tip = before.states[s].tip[side];
    for (std::size_t other = 0; other < std::min(s, kLookBack); ++other) {
        if (before.states[other].tip[side] == tip) return stepped[s] = stepped[other];
    }
    return stepped[s] = step(side, tip, next);
}

float Lattice::finish(const Tip& first, const Tip& second) const {
    float score = 0;
    if (parent_[0] != kNone) score += weight_ * model_->step(parent_[0], first, kEnd);
    if (parent_[1] != kNone) score += weight_ * model_->step(parent_[1], second, kEnd);
    return score;
}

void Lattice::build(const Model& model, float weight, const std::vector<std::int32_t>& child,
                    const std::vector<std::uint8_t>& loaded, std::size_t lo, Side first, Side second,
                    bool sums) {
    model_ = &model;
    weight_ = weight;
    child_ = &child;
    loaded_ = &loaded;
    parent_[0] = first.parent;
    parent_[1] = second.parent;
    content_[0] = &first.content;
    content_[1] = &second.content;
    lo_ = lo;
    used_ = child.size() - lo + 1;
    if (layers_.size() < used_) layers_.resize(used_);
    layers_[0].states.assign(1, State{});
    layers_[0].top = 0;
    auto& begin = layers_[0].states[0];
    begin.loaded = true;
    for (std::size_t i = 0; i < lo; ++i) {
        const int x = loaded[i];
        if (parent_[x] != kNone) model.advance(parent_[x], begin.tip[x], child[i]);
    }
    for (std::size_t i = 0; i + 1 < used_; ++i) extend(lo + i, layers_[i], layers_[i + 1], sums);
    finish_.clear();
    for (const auto& state : layers_[used_ - 1].states) {
        finish_.push_back(finish(state.tip[0], state.tip[1]));
    }
}

void Lattice::extend(std::size_t i, const Layer& before, Layer& layer, bool sums) {
    const auto c = (*child_)[i];
    layer.states.clear();
    made_.clear();
    for (auto& stepped : stepped_) stepped.resize(before.states.size());
    slots_.assign(std::bit_ceil(4 * before.states.size()), kNone);
    for (std::size_t s = 0; s < before.states.size(); ++s) {
        const auto& from = before.states[s];
        for (int side = 0; side < 2; ++side) {
            const float content = (*content_[side])[i];
            if (content == kImpossible) continue;
            const float gain = step_from(side, before, s, c) + content;
            State made;
            made.tip[0] = from.tip[0];
            made.tip[1] = from.tip[1];
            if (parent_[side] != kNone) model_->advance(parent_[side], made.tip[side], c);
            made.side = static_cast<std::uint8_t>(side);
            made.top = kImpossible;
            const auto to = merge(made, layer.states);
            auto& state = layer.states[static_cast<std::size_t>(to)];
            state.loaded = state.loaded || (from.loaded && (*loaded_)[i] == side);
            if (from.top + gain > state.top) {
                state.top = from.top + gain;
                state.came = static_cast<std::int32_t>(s);
            }
            if (sums) made_.push_back({static_cast<std::int32_t>(s), to, gain, 0});
        }
    }
    cut(layer, sums);
    if (sums) join(layer);
}

// Number of the state with these tips; a new one is put behind the others. The side is part of it: orphans leave no trace
// in the tips.
std::int32_t Lattice::merge(const State& state, std::vector<State>& states) {
    const std::size_t mask = slots_.size() - 1;
    for (auto at = hash(state.tip[1], hash(state.tip[0], state.side)) & mask;; at = (at + 1) & mask) {
        auto& slot = slots_[at];
        if (slot == kNone) {
            slot = static_cast<std::int32_t>(states.size());
            states.push_back(state);
            return slot;
        }
        const auto& known = states[static_cast<std::size_t>(slot)];
        if (known.side == state.side && known.tip[0] == state.tip[0] && known.tip[1] == state.tip[1]) {
            return slot;
        }
    }
}

// Keeps the best states of a layer.
void Lattice::cut(Layer& layer, bool sums) {
    scores_.clear();
    for (const auto& state : layer.states) scores_.push_back(state.top);
    layer.top = *std::max_element(scores_.begin(), scores_.end());
    float least = layer.top - far_behind(weight_, sums);
    if (scores_.size() > kMostStates) {
        std::nth_element(scores_.begin(), scores_.begin() + kMostStates, scores_.end(), std::greater<>());
        least = std::max(least, scores_[kMostStates]);
    }
    kept_.assign(layer.states.size(), kNone);
    std::size_t kept = 0;
    for (std::size_t s = 0; s < layer.states.size(); ++s) {
        if (layer.states[s].top <= least && !layer.states[s].loaded) continue;
        kept_[s] = static_cast<std::int32_t>(kept);
        layer.states[kept++] = layer.states[s];
    }
    layer.states.resize(kept);
}

// Puts the edges into the states that were kept together, by state.
void Lattice::join(Layer& layer) {
    for (auto& edge : made_) {
        edge.to = kept_[static_cast<std::size_t>(edge.to)];
        if (edge.to != kNone) ++layer.states[static_cast<std::size_t>(edge.to)].end;
    }
    std::int32_t behind = 0;
    for (auto& state : layer.states) {
        state.begin = behind;
        behind += state.end;
        state.end = state.begin;
    }
    layer.edges.resize(static_cast<std::size_t>(behind));
    for (std::size_t k = 0; k < made_.size(); ++k) {
        if (made_[k].to == kNone) continue;
        auto& state = layer.states[static_cast<std::size_t>(made_[k].to)];
        layer.edges[static_cast<std::size_t>(state.end++)] = made_[k];
    }
}

float Lattice::best(std::vector<std::uint8_t>& side) const {
    const auto& last = layers_[used_ - 1].states;
    float top = kImpossible;
    std::size_t at = 0;
    for (std::size_t s = 0; s < last.size(); ++s) {
        if (last[s].top + finish_[s] > top) top = last[s].top + finish_[s], at = s;
    }
    side = *loaded_;
    for (std::size_t i = used_ - 1; i > 0; --i) {
        const auto& state = layers_[i].states[at];
        side[lo_ + i - 1] = state.side;
        at = static_cast<std::size_t>(state.came);
    }
    // The loaded split's own score, step by step: other splits may lead to the same states.
    float held = 0;
    const auto& begin = layers_[0].states[0];
    Tip tip[2] = {begin.tip[0], begin.tip[1]};
    for (std::size_t i = lo_; i < child_->size(); ++i) {
        const int x = (*loaded_)[i];
        const auto c = (*child_)[i];
        held += step(x, tip[x], c) + (*content_[x])[i];
        if (parent_[x] != kNone) model_->advance(parent_[x], tip[x], c);
    }
    return top - (held + finish(tip[0], tip[1]));
}

void Lattice::sum() {
    layers_[0].states[0].forward = 1;
    for (std::size_t i = 1; i < used_; ++i) {
        auto& layer = layers_[i];
        const auto& before = layers_[i - 1];
        const float rise = layer.top - before.top;
        for (auto& state : layer.states) {
            state.forward = 0;
            for (auto k = state.begin; k < state.end; ++k) {
                auto& edge = layer.edges[static_cast<std::size_t>(k)];
                edge.weight = std::exp(static_cast<double>(edge.gain - rise));
                state.forward += before.states[static_cast<std::size_t>(edge.from)].forward * edge.weight;
            }
        }
    }
    const float top = *std::max_element(finish_.begin(), finish_.end());
    finish_weight_.clear();
    for (const float score : finish_) finish_weight_.push_back(std::exp(static_cast<double>(score - top)));
}

void Lattice::marginals(std::vector<double>& belongs_to_second) {
    auto& last = layers_[used_ - 1].states;
    for (std::size_t s = 0; s < last.size(); ++s) last[s].backward = finish_weight_[s];
    for (std::size_t i = used_ - 1; i > 0; --i) {
        auto& before = layers_[i - 1].states;
        for (auto& state : before) state.backward = 0;
        const auto& layer = layers_[i];
        for (const auto& state : layer.states) {
            for (auto k = state.begin; k < state.end; ++k) {
                const auto& edge = layer.edges[static_cast<std::size_t>(k)];
                before[static_cast<std::size_t>(edge.from)].backward += edge.weight * state.backward;
            }
        }
    }
    belongs_to_second.assign(loaded_->begin(), loaded_->end());
    for (std::size_t i = 1; i < used_; ++i) {
        double mass[2] = {0, 0};
        for (const auto& state : layers_[i].states) mass[state.side] += state.forward * state.backward;
        belongs_to_second[lo_ + i - 1] = mass[1] > 0 ? mass[1] / (mass[0] + mass[1]) : 0.0;
    }
}

}  // namespace tapscope::match
