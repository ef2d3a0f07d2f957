// Splits of a pair where the lengths of answers count as well.
//
// What an answer's length says is of the whole chain, so the recursion over single children (pair.hpp) cannot follow it.
// Where few children may change sides, all splits are scored. Where they are more, the recursion proposes: its best
// split, the one with all changed over, and draws; draws from the conditional distribution are accepted as by Metropolis
// and Hastings (an independence sampler: only the lengths are left to be weighed), and marginals are those of the
// recursion, weighed by such draws.
#pragma once

#include <cstdint>
#include <vector>

#include "answer_length.hpp"
#include "pair.hpp"
#include "random.hpp"

namespace tapscope::match {

class PairMove {
public:
    // Keeps references. `split` has the pair loaded in every call below.
    PairMove(PairSplit& split, const AnswerLength& length, Random& random)
        : split_(split), length_(length), random_(random) {}

    // How much lengths count, 0 to 1.
    void weigh(float weight) noexcept { weight_ = weight; }

    // Best split that is found: side() of the pair. Returns its score minus that of the loaded one, never below 0.
    float best();
    // Draws a split; returns whether it differs from the one that was loaded.
    bool draw();
    // Probability, given all other chains, that child i belongs to q.
    void marginals(std::vector<double>& belongs_to_q);

private:
    using Side = std::vector<std::uint8_t>;

    bool judged() const noexcept {
        return length_.judges(split_.parent(0)) || length_.judges(split_.parent(1));
    }
    // Whether all splits can be scored.
    bool few();
    // Scores all splits, the loaded one first: score_, by which of the movable children change.
    void score_all();
    Side changed(std::size_t which) const;
    // What lengths say of a split.
    float lengths(const Side& side) const;
    // How much more than `now` they could say.
    float room(float now) const;
    float best_of_proposals(float gain);
    void weigh_marginals(std::vector<double>& belongs_to_q);

    PairSplit& split_;
    const AnswerLength& length_;
    Random& random_;
    float weight_ = 1.0f;
    std::vector<std::size_t> movable_;
    std::vector<double> score_;
};

}  // namespace tapscope::match
