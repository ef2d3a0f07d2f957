// The split of a pair of parents of which one fans out: the same question as in pair.hpp, but a step depends on more
// than the last child, so that the states are not numbered but listed.
//
// Layer i holds the distinct tips that the two chains can have when the first i + 1 children are shared out; edges join
// them to the layer before. Splits that lead to the same tips are one state: without calls side by side there are no more
// states than in pair.cpp. At most kMostStates of a layer are kept, the best, and always those of the loaded split.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "model.hpp"
#include "problem.hpp"

namespace tapscope::match {

class Lattice {
public:
    // Content is added to each step, which counts `weight` times; -inf where the child is no candidate of that side. The
    // arguments must outlive it.
    struct Side {
        std::int32_t parent;  // kNone: nobody, who takes orphans
        const std::vector<float>& content;
    };

    void build(const Model& model, float weight, const std::vector<std::int32_t>& child,
               const std::vector<std::uint8_t>& loaded, Side first, Side second);

    // Best split. Returns its score minus the score of the loaded one.
    float best(std::vector<std::uint8_t>& side) const;
    void marginals(std::vector<double>& belongs_to_second);
    template <class Uniform>
    void draw(Uniform&& uniform, std::vector<std::uint8_t>& side);

private:
    struct State {
        Tip tip[2];
        float top = 0;                    // score of the best split that leads here
        std::int32_t came = 0;            // edge by which it does
        std::int64_t begin = 0, end = 0;  // edges into it
        std::uint8_t side = 0;            // who took the child of this layer
        bool loaded = false;
        double forward = 0, backward = 0;  // log sums over all splits up to here, and from here
    };
    struct Edge {
        std::int32_t from = 0, to = 0;  // states, numbered within their layers
        float gain = 0;
    };
    struct Layer {
        std::vector<State> states;
        std::vector<Edge> edges;  // into these states, by state
    };
    void extend(std::size_t i, const Layer& before, Layer& layer);
    void cut(Layer& layer);
    void run_forward();
    float step(int side, const Tip& tip, std::int32_t next) const;
    float finish(const State& state) const;

    const Model* model_ = nullptr;
    float weight_ = 1.0f;
    const std::vector<std::int32_t>* child_ = nullptr;
    const std::vector<std::uint8_t>* loaded_ = nullptr;
    std::int32_t parent_[2] = {kNone, kNone};
    const std::vector<float>* content_[2] = {nullptr, nullptr};
    std::vector<Layer> layers_;  // layer 0: before the first child
    std::vector<float> finish_;  // by state of the last layer
    std::size_t used_ = 0;       // layers of this pair
};

template <class Uniform>
void Lattice::draw(Uniform&& uniform, std::vector<std::uint8_t>& side) {
    run_forward();
    side.assign(child_->size(), 0);
    // Picks one of [begin, end) with probability proportional to exp(log_weight).
    auto pick = [&](std::int64_t begin, std::int64_t end, auto&& log_weight) {
        double top = log_weight(begin), total = 0;
        for (auto k = begin; k < end; ++k) top = std::max(top, log_weight(k));
        for (auto k = begin; k < end; ++k) total += std::exp(log_weight(k) - top);
        double left = uniform() * total;
        for (auto k = begin; k < end; ++k) {
            if ((left -= std::exp(log_weight(k) - top)) < 0) return k;
        }
        return end - 1;
    };
    const auto& last = layers_[used_ - 1].states;
    auto at = static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(last.size()), [&](std::int64_t k) {
        return last[static_cast<std::size_t>(k)].forward + finish_[static_cast<std::size_t>(k)];
    }));
    for (std::size_t i = used_ - 1; i > 0; --i) {
        const auto& layer = layers_[i];
        const auto& state = layer.states[at];
        side[i - 1] = state.side;
        const auto& before = layers_[i - 1].states;
        const auto edge = pick(state.begin, state.end, [&](std::int64_t k) {
            const auto& e = layer.edges[static_cast<std::size_t>(k)];
            return before[static_cast<std::size_t>(e.from)].forward + e.gain;
        });
        at = static_cast<std::size_t>(layer.edges[static_cast<std::size_t>(edge)].from);
    }
}

}  // namespace tapscope::match
