// The split of a pair of parents of which one fans out: the same question as in pair.hpp, but a step depends on more
// than the last child, so that the states are not numbered but listed.
//
// Layer i holds the distinct tips that the two chains can have when the first i children that may change sides, and those
// between them, are shared out; edges join them to the layer before. Splits that lead to the same tips are one state:
// without calls side by side there are no more states than in pair.cpp. Of a layer those are followed that are not
// far behind the best one, at most kMostStates, and always those of the loaded split.
#pragma once

#include <cstdint>
#include <vector>

#include "model.hpp"
#include "problem.hpp"
#include "random.hpp"

namespace tapscope::match {

// Nats that a state may be behind the best one that follows the same child. The two mostly differ in one later step before
// they meet again, and what that gives back is the less, the less evidence counts. Where all splits are summed up, one that
// is kHardly nats less likely still has a share.
inline constexpr float kGivenBack = 17.0f, kHardly = 8.0f;
inline constexpr float far_behind(float weight, bool sums) noexcept {
    return kGivenBack * weight + (sums ? kHardly : 0.0f);
}

class Lattice {
public:
    // Content is added to each step, which counts `weight` times; -inf where the child is no candidate of that side. The
    // arguments must outlive it.
    struct Side {
        std::int32_t parent;  // kNone: nobody, who takes orphans
        const std::vector<float>& content;
    };

    // `lo`: children before it stay with who has them in the loaded split. `sums`: for sum(), and not for best() alone.
    void build(const Model& model, float weight, const std::vector<std::int32_t>& child,
               const std::vector<std::uint8_t>& loaded, std::size_t lo, Side first, Side second, bool sums);

    // Best split. Returns its score minus the score of the loaded one.
    float best(std::vector<std::uint8_t>& side) const;

    // Once before marginals() and draw().
    void sum();
    void marginals(std::vector<double>& belongs_to_second);
    template <class Uniform>
    void draw(Uniform&& uniform, std::vector<std::uint8_t>& side) const;

private:
    struct State {
        Tip tip[2];
        float top = 0;                    // score of the best split that leads here
        std::int32_t came = 0;            // state of the layer before by which it does
        std::int32_t begin = 0, end = 0;  // edges into it
        std::uint8_t side = 0;            // who took the child of this layer
        bool loaded = false;
        // Sums over all splits up to here, relative to the best score of the layer, and from here.
        double forward = 0, backward = 0;
    };
    struct Edge {
        std::int32_t from = 0, to = 0;  // states, numbered within their layers
        float gain = 0;
        double weight = 0;  // of the gain, between the best scores of the two layers
    };
    struct Layer {
        std::vector<State> states;
        std::vector<Edge> edges;  // into these states, by state
        float top = 0;
    };
    void extend(std::size_t i, const Layer& before, Layer& layer, bool sums);
    std::int32_t merge(const State& state, std::vector<State>& states);
    void cut(Layer& layer, bool sums);
    void join(Layer& layer);
    float step(int side, const Tip& tip, std::int32_t next) const;
    float step_from(int side, const Layer& before, std::size_t s, std::int32_t next);
    float finish(const Tip& first, const Tip& second) const;

    const Model* model_ = nullptr;
    float weight_ = 1.0f;
    const std::vector<std::int32_t>* child_ = nullptr;
    const std::vector<std::uint8_t>* loaded_ = nullptr;
    std::int32_t parent_[2] = {kNone, kNone};
    const std::vector<float>* content_[2] = {nullptr, nullptr};
    std::size_t lo_ = 0;
    std::vector<Layer> layers_;          // layer 0: before child lo_
    std::size_t used_ = 0;               // layers of this pair
    std::vector<float> finish_;          // by state of the last layer
    std::vector<double> finish_weight_;  // of that
    std::vector<float> stepped_[2];      // steps to the layer at hand, by side and state of the one before
    std::vector<Edge> made_;             // into the layer at hand, as they are found
    std::vector<std::int32_t> slots_;    // hash table of its states
    std::vector<std::int32_t> kept_;     // by state, before the layer is cut: its number then
    std::vector<float> scores_;
};

template <class Uniform>
void Lattice::draw(Uniform&& uniform, std::vector<std::uint8_t>& side) const {
    side = *loaded_;
    const auto& last = layers_[used_ - 1].states;
    auto at = pick(uniform, last.size(), [&](std::size_t k) { return last[k].forward * finish_weight_[k]; });
    for (std::size_t i = used_ - 1; i > 0; --i) {
        const auto& layer = layers_[i];
        const auto& state = layer.states[at];
        side[lo_ + i - 1] = state.side;
        const auto& before = layers_[i - 1].states;
        const auto* const edges = &layer.edges[static_cast<std::size_t>(state.begin)];
        const auto edge =
            pick(uniform, static_cast<std::size_t>(state.end - state.begin), [&](std::size_t k) {
                return before[static_cast<std::size_t>(edges[k].from)].forward * edges[k].weight;
            });
        at = static_cast<std::size_t>(edges[edge].from);
    }
}

}  // namespace tapscope::match
