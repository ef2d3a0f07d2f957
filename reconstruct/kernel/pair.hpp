// The exact step of the matcher: give the children of two parents back, and share them out again in the best way.
//
// The n children of the two chains, in order of begin, each go to one of the two parents (where it is a candidate).
// The state after child i is (chain that took i, last child of the other chain), so the best of all 2^n splits is
// found in O(n^2) steps, and so are the exact marginals. The second "parent" may be nobody: then children are shared
// between a parent and the orphans.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "lattice.hpp"
#include "model.hpp"
#include "problem.hpp"

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
    // After best(): whether child i of children() belongs to q.
    const std::vector<std::uint8_t>& side() const noexcept { return side_; }
    const std::vector<std::int32_t>& children() const noexcept { return child_; }

    // Exact probability, given all other chains, that child i belongs to q.
    void marginals(std::vector<double>& belongs_to_q);

    // Draws a split from its exact conditional distribution into side(). `uniform` gives numbers in [0, 1).
    // Returns whether it differs from the split that was loaded.
    template <class Uniform>
    bool draw(Uniform&& uniform);

    std::uint64_t too_large() const noexcept { return too_large_; }

private:
    float step(int side, std::int32_t previous, std::int32_t next) const;
    float finish(int side, std::int32_t last) const;
    float loaded_score() const;
    void run_forward();
    std::size_t cell(std::size_t i, int x, std::size_t j) const noexcept {
        return (i * 2 + static_cast<std::size_t>(x)) * (child_.size() + 1) + j;
    }
    std::int32_t at(std::size_t j) const noexcept { return j == 0 ? kStart : child_[j - 1]; }

    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    std::int32_t parent_[2] = {kNone, kNone};
    std::vector<std::int32_t> child_;
    std::vector<std::uint8_t> held_by_, side_;
    std::vector<float> content_[2];  // -inf where the child is no candidate of that parent
    std::vector<float> value_[2], fresh_[2];
    std::vector<std::int32_t> came_from_[2];
    std::vector<double> forward_, backward_;
    std::vector<float> switch_, stay_[2];
    bool listed_ = false;  // one of the two fans out: the lattice answers
    Lattice lattice_;
    void build_lattice();
    std::uint64_t too_large_ = 0;
};

template <class Uniform>
bool PairSplit::draw(Uniform&& uniform) {
    if (listed_) {
        build_lattice();
        lattice_.draw(uniform, side_);
        return side_ != held_by_;
    }
    run_forward();
    const std::size_t n = child_.size();
    // Picks index k with probability proportional to exp(log_weight(k)).
    auto pick = [&](std::size_t count, auto&& log_weight) {
        double top = -std::numeric_limits<double>::infinity(), total = 0;
        for (std::size_t k = 0; k < count; ++k) top = std::max(top, log_weight(k));
        for (std::size_t k = 0; k < count; ++k) total += std::exp(log_weight(k) - top);
        double left = uniform() * total;
        std::size_t last = 0;
        for (std::size_t k = 0; k < count; ++k) {
            const double weight = std::exp(log_weight(k) - top);
            if (weight <= 0) continue;
            last = k;
            if ((left -= weight) < 0) break;
        }
        return last;
    };
    const std::size_t state = pick(2 * n, [&](std::size_t k) {
        const int x = static_cast<int>(k / n);
        const double f = forward_[cell(n - 1, x, k % n)];
        return std::isinf(f) ? f : f + finish(x, child_[n - 1]) + finish(1 - x, at(k % n));
    });
    int x = static_cast<int>(state / n);
    std::size_t j = state % n;
    side_.assign(n, 0);
    for (std::size_t i = n; i > 0;) {
        while (i > j) side_[--i] = static_cast<std::uint8_t>(x);
        if (i == 0) break;
        // Child i (0-based: the first one in x) switched to x; where had x ended before?
        j = pick(i, [&](std::size_t k) {
            return forward_[cell(i - 1, 1 - x, k)] + static_cast<double>(switch_[cell(i, x, k)]);
        });
        x = 1 - x;
    }
    return side_ != held_by_;
}

}  // namespace tapscope::match
