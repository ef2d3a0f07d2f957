// The exact step of the matcher: give the children of two parents back, and share them out again in the best way.
//
// The n children of the two chains, in order of begin, each go to one of the two parents (where it is a candidate).
// The state after child i is (chain that took i, last child of the other chain), so the best of all 2^n splits is
// found in O(n^2) steps, and so are the exact marginals. The second "parent" may be nobody: then children are shared
// between a parent and the orphans.
#pragma once

#include <cstdint>
#include <vector>

#include "model.hpp"
#include "problem.hpp"

namespace tapscope::match {

inline constexpr std::int32_t kNobody = -2;     // as second parent: the orphans

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

    std::uint64_t too_large() const noexcept { return too_large_; }

 private:
    float step(int side, std::int32_t previous, std::int32_t next) const;
    float finish(int side, std::int32_t last) const;
    float loaded_score() const;
    std::int32_t at(std::size_t j) const noexcept { return j == 0 ? kStart : child_[j - 1]; }

    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    std::int32_t parent_[2] = {kNone, kNone};
    std::vector<std::int32_t> child_;
    std::vector<std::uint8_t> held_by_, side_;
    std::vector<float> content_[2];             // -inf where the child is no candidate of that parent
    std::vector<float> value_[2], fresh_[2];
    std::vector<std::int32_t> came_from_[2];
    std::vector<double> forward_, backward_;
    std::vector<float> switch_;
    std::uint64_t too_large_ = 0;
};

}  // namespace tapscope::match
