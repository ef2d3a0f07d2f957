#include "lattice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace tapscope::match {
namespace {

constexpr std::size_t kMostStates = 256;  // of a layer
constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr double kNever = -std::numeric_limits<double>::infinity();

double log_add(double a, double b) noexcept {
    if (a < b) std::swap(a, b);
    return b == kNever ? a : a + std::log1p(std::exp(b - a));
}

auto order(const Tip& tip) { return std::tie(tip.last, tip.latest, tip.called); }

}  // namespace

float Lattice::step(int side, const Tip& tip, std::int32_t next) const {
    const auto p = parent_[side];
    return weight_ * (p == kNone ? model_->orphan(next) : model_->step(p, tip, next));
}

float Lattice::finish(const State& state) const {
    float score = 0;
    for (int side = 0; side < 2; ++side) {
        if (parent_[side] != kNone) score += weight_ * model_->step(parent_[side], state.tip[side], kEnd);
    }
    return score;
}

void Lattice::build(const Model& model, float weight, const std::vector<std::int32_t>& child,
                    const std::vector<std::uint8_t>& loaded, Side first, Side second) {
    model_ = &model;
    weight_ = weight;
    child_ = &child;
    loaded_ = &loaded;
    parent_[0] = first.parent;
    parent_[1] = second.parent;
    content_[0] = &first.content;
    content_[1] = &second.content;
    used_ = child.size() + 1;
    if (layers_.size() < used_) layers_.resize(used_);
    layers_[0].states.assign(1, State{});
    layers_[0].states[0].loaded = true;
    for (std::size_t i = 0; i < child.size(); ++i) extend(i, layers_[i], layers_[i + 1]);
    finish_.clear();
    for (const auto& state : layers_[used_ - 1].states) finish_.push_back(finish(state));
}

void Lattice::extend(std::size_t i, const Layer& before, Layer& layer) {
    const auto c = (*child_)[i];
    struct Next {
        State state;
        Edge edge;
    };
    std::vector<Next> next;
    next.reserve(2 * before.states.size());
    for (std::size_t s = 0; s < before.states.size(); ++s) {
        const auto& from = before.states[s];
        for (int side = 0; side < 2; ++side) {
            const float content = (*content_[side])[i];
            if (content == kImpossible) continue;
            Next made;
            made.state.tip[0] = from.tip[0];
            made.state.tip[1] = from.tip[1];
            if (parent_[side] != kNone) model_->advance(parent_[side], made.state.tip[side], c);
            made.state.side = static_cast<std::uint8_t>(side);
            made.state.loaded = from.loaded && (*loaded_)[i] == side;
            made.edge = {static_cast<std::int32_t>(s), 0, step(side, from.tip[side], c) + content};
            made.state.top = from.top + made.edge.gain;
            next.push_back(std::move(made));
        }
    }
    // Equal tips become one state. The side is part of it: orphans leave no trace in the tips.
    auto key = [](const Next& n) {
        return std::tuple_cat(std::tie(n.state.side), order(n.state.tip[0]), order(n.state.tip[1]));
    };
    std::stable_sort(next.begin(), next.end(), [&](const Next& a, const Next& b) { return key(a) < key(b); });
    layer.states.clear();
    layer.edges.clear();
    for (std::size_t k = 0; k < next.size(); ++k) {
        if (k == 0 || key(next[k]) != key(next[k - 1])) {
            layer.states.push_back(next[k].state);
            layer.states.back().begin = static_cast<std::int64_t>(k);
            layer.states.back().came = static_cast<std::int32_t>(k);
        } else {
            auto& state = layer.states.back();
            state.loaded = state.loaded || next[k].state.loaded;
            if (next[k].state.top > state.top) {
                state.top = next[k].state.top;
                state.came = static_cast<std::int32_t>(k);
            }
        }
        layer.edges.push_back(next[k].edge);
        layer.edges.back().to = static_cast<std::int32_t>(layer.states.size()) - 1;
        layer.states.back().end = static_cast<std::int64_t>(k) + 1;
    }
    if (layer.states.size() > kMostStates) cut(layer);
}

// Keeps the best states of a layer. Edges of the others stay in place and are not asked for again.
void Lattice::cut(Layer& layer) {
    std::vector<float> scores;
    for (const auto& state : layer.states) scores.push_back(state.top);
    std::nth_element(scores.begin(), scores.begin() + kMostStates, scores.end(), std::greater<>());
    const float least = scores[kMostStates];
    std::erase_if(layer.states, [&](const State& s) { return s.top <= least && !s.loaded; });
    for (std::size_t s = 0; s < layer.states.size(); ++s) {
        for (auto k = layer.states[s].begin; k < layer.states[s].end; ++k) {
            layer.edges[static_cast<std::size_t>(k)].to = static_cast<std::int32_t>(s);
        }
    }
}

float Lattice::best(std::vector<std::uint8_t>& side) const {
    const auto& last = layers_[used_ - 1].states;
    float top = kImpossible, held = kImpossible;
    std::size_t at = 0;
    for (std::size_t s = 0; s < last.size(); ++s) {
        if (last[s].top + finish_[s] > top) top = last[s].top + finish_[s], at = s;
    }
    side.assign(child_->size(), 0);
    for (std::size_t i = used_ - 1; i > 0; --i) {
        const auto& state = layers_[i].states[at];
        side[i - 1] = state.side;
        at = static_cast<std::size_t>(layers_[i].edges[static_cast<std::size_t>(state.came)].from);
    }
    // The loaded split's own score, step by step: other splits may lead to the same states.
    float score = 0;
    Tip tip[2];
    for (std::size_t i = 0; i < child_->size(); ++i) {
        const int x = (*loaded_)[i];
        const auto c = (*child_)[i];
        score += step(x, tip[x], c) + (*content_[x])[i];
        if (parent_[x] != kNone) model_->advance(parent_[x], tip[x], c);
    }
    State end;
    end.tip[0] = tip[0];
    end.tip[1] = tip[1];
    held = score + finish(end);
    return top - held;
}

void Lattice::run_forward() {
    for (std::size_t i = 1; i < used_; ++i) {
        auto& layer = layers_[i];
        for (auto& state : layer.states) {
            state.forward = kNever;
            for (auto k = state.begin; k < state.end; ++k) {
                const auto& edge = layer.edges[static_cast<std::size_t>(k)];
                state.forward =
                    log_add(state.forward,
                            layers_[i - 1].states[static_cast<std::size_t>(edge.from)].forward + edge.gain);
            }
        }
    }
}

void Lattice::marginals(std::vector<double>& belongs_to_second) {
    run_forward();
    auto& last = layers_[used_ - 1].states;
    for (std::size_t s = 0; s < last.size(); ++s) last[s].backward = finish_[s];
    for (std::size_t i = used_ - 1; i > 0; --i) {
        for (auto& state : layers_[i - 1].states) state.backward = kNever;
        const auto& layer = layers_[i];
        for (const auto& state : layer.states) {
            for (auto k = state.begin; k < state.end; ++k) {
                const auto& edge = layer.edges[static_cast<std::size_t>(k)];
                auto& before = layers_[i - 1].states[static_cast<std::size_t>(edge.from)];
                before.backward = log_add(before.backward, edge.gain + state.backward);
            }
        }
    }
    belongs_to_second.assign(child_->size(), 0.0);
    for (std::size_t i = 1; i < used_; ++i) {
        double mass[2] = {kNever, kNever};
        for (const auto& state : layers_[i].states) {
            mass[state.side] = log_add(mass[state.side], state.forward + state.backward);
        }
        if (mass[1] == kNever) continue;
        belongs_to_second[i - 1] = mass[0] == kNever ? 1.0 : 1.0 / (1.0 + std::exp(mass[0] - mass[1]));
    }
}

}  // namespace tapscope::match
