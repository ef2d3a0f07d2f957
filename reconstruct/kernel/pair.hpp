// The exact step of the matcher: give the children of two parents back, and share them out again in the best way.
//
// The n children of the two chains, in order of begin, each go to one of the two parents (where it is a candidate);
// those before the first and behind the last that may go to either are left out, as they cost every split the same.
// The state after child i is (chain that took i, last child of the other chain), so the best of all 2^n splits is
// found in O(n^2) steps, and so are the exact marginals. The second "parent" may be nobody: then children are shared
// between a parent and the orphans. A state that is far behind (lattice.hpp) the best after the same child is not
// followed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "lattice.hpp"
#include "model.hpp"
#include "problem.hpp"
#include "random.hpp"

namespace tapscope::match {

inline constexpr std::int32_t kNobody = -2;  // as second parent: the orphans

class PairSplit {
public:
    PairSplit(const Problem& problem, const Candidates& candidates, const Model& model)
        : problem_(problem), candidates_(candidates), model_(model) {}

    // Loads parents p, q and the children that they hold now (each ascending). False when nothing can be exchanged,
    // or when the pair is larger than kMaxSplit.
    bool load(std::int32_t p, std::int32_t q, const std::vector<std::int32_t>& of_p,
              const std::vector<std::int32_t>& of_q);

    // Best split. Returns its score minus the score of the split that was loaded (>= 0 up to rounding).
    float best();
    // After best(), draw() or choose(): whether child i of children() belongs to q.
    const std::vector<std::uint8_t>& side() const noexcept { return side_; }
    const std::vector<std::int32_t>& children() const noexcept { return child_; }

    // Exact probability, given all other chains, that child i belongs to q.
    void marginals(std::vector<double>& belongs_to_q);

    // Draws a split from its exact conditional distribution into side(). `uniform` gives numbers in [0, 1).
    // Returns whether it differs from the split that was loaded.
    template <class Uniform>
    bool draw(Uniform&& uniform) {
        prepare();
        draw_prepared(uniform);
        return side_ != held_by_;
    }
    // The same in two steps, for many draws. marginals() prepares as well.
    void prepare();
    template <class Uniform>
    void draw_prepared(Uniform&& uniform);

    std::int32_t parent(int side) const noexcept { return parent_[side]; }
    // The split that was loaded.
    const std::vector<std::uint8_t>& held_by() const noexcept { return held_by_; }
    // Places in children() of those that may change sides.
    void find_movable(std::vector<std::size_t>& out) const;
    void choose(const std::vector<std::uint8_t>& side) { side_ = side; }
    // Whether score() can tell: not where one of the two fans out.
    bool scores() const noexcept { return !listed_; }
    // Of a split that differs from the loaded one only where children may change, up to what is the same for all.
    float score(const std::vector<std::uint8_t>& side) const;
    // After marginals(): probability of the loaded split; 0 where that is not known.
    double share_of_loaded() const noexcept { return share_of_loaded_; }

    // How much all evidence counts in the splits that are loaded from now on, 0 to 1.
    void weigh_evidence(float weight) noexcept {
        weight_[0] = weight_[1] = weight;
        usual_ = nullptr;
    }
    // From now on p is favoured: how well a split suits q counts `other` times as much. `usual`: by child, what its step
    // is worth where it is now; each is judged by what it gains, else nobody who is favoured would want any.
    void favour(float other, const std::vector<float>& usual) noexcept {
        weight_[1] = other;
        usual_ = &usual;
    }

    std::uint64_t too_large() const noexcept { return too_large_; }

private:
    float step(int side, std::int32_t previous, std::int32_t next) const;
    float finish(int side, std::int32_t last) const;
    // Follows all splits, child by child. `sums`: with what marginals() and draw() need.
    void follow(bool sums);
    void extend(std::size_t i, bool sums);
    void follow_loaded(std::size_t i, const float* stay);
    void finish_sums();
    void build_lattice(bool sums);
    std::int32_t at(int side, std::size_t j) const noexcept {
        return j == lo_ ? before_[side] : child_[j - 1];
    }
    // Content of c with the parent of this side, or -inf where that is no candidate for it, or c is certain.
    float content_of(std::int32_t c, int side) const;

    // The latest child is in chain x, the other chain ends in child j-1 (lo_: where it did before them).
    struct State {
        std::size_t j = 0;
        float score = 0;     // of the best split that leads here
        double forward = 0;  // sum over all of them, relative to the best score of the layer
    };
    struct Layer {                     // after each child, by x
        std::size_t begin[2], end[2];  // in states_
        std::size_t switches[2];       // in switch_weight_: one for each state of the other chain before
        double stay_weight[2] = {0, 0};
        bool entered[2] = {false, false};  // whether the child may change to chain x
    };

    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    std::int32_t parent_[2] = {kNone, kNone};
    std::vector<std::int32_t> child_;
    std::vector<std::uint8_t> held_by_, side_;
    // Children that may change sides are among [lo_, hi_). Only these are split: before them and behind them chains go
    // on as they do, from before_ and to after_.
    std::size_t lo_ = 0, hi_ = 0;
    std::int32_t before_[2] = {kStart, kStart}, after_[2] = {kEnd, kEnd};
    std::vector<float> content_[2];  // -inf where the child is no candidate of that parent
    float top_ = 0;                  // best score in the layer at hand
    float loaded_score_ = 0;         // of the loaded split so far
    double share_of_loaded_ = 0;
    std::size_t loaded_end_[2] = {0, 0};  // where its chains end: behind child loaded_end_ - 1
    std::vector<State> alive_[2];         // states of the layer at hand, by j
    std::vector<std::size_t> came_from_[2];
    std::vector<float> gain_[2];
    std::vector<Layer> layers_;
    std::vector<State> states_;
    std::vector<double> switch_weight_, finish_weight_, backward_[2];
    bool listed_ = false;  // one of the two fans out: the lattice answers
    Lattice lattice_;
    float weight_[2] = {1.0f, 1.0f};  // by side
    const std::vector<float>* usual_ = nullptr;
    std::uint64_t too_large_ = 0;
};

template <class Uniform>
void PairSplit::draw_prepared(Uniform&& uniform) {
    if (listed_) {
        lattice_.draw(uniform, side_);
        return;
    }
    const State* last = &states_[layers_.back().begin[0]];
    const std::size_t state = pick(uniform, finish_weight_.size(),
                                   [&](std::size_t k) { return last[k].forward * finish_weight_[k]; });
    int x = state < layers_.back().end[0] - layers_.back().begin[0] ? 0 : 1;
    std::size_t j = last[state].j;
    side_ = held_by_;
    for (std::size_t i = hi_; i > lo_;) {
        while (i > j) side_[--i] = static_cast<std::uint8_t>(x);
        if (i == lo_) break;
        // Child i (0-based: the first one in x) switched to x; where had x ended before?
        const auto& before = layers_[i - lo_ - 1];
        const auto from = before.begin[1 - x];
        const double* weight = &switch_weight_[layers_[i - lo_].switches[x]];
        const auto k = pick(uniform, before.end[1 - x] - from,
                            [&](std::size_t way) { return states_[from + way].forward * weight[way]; });
        j = states_[from + k].j;
        x = 1 - x;
    }
}

}  // namespace tapscope::match
