// The better pieces of two assignments.
//
// Two assignments of the same rows differ in pieces: groups of parents such that no child that is with one of the group
// here is with one outside of it there. The score of an assignment is a sum over parents, so every piece may be taken
// from either, whatever is done about the others (partition crossover, Whitley et al. 2009). Many small mistakes that
// lie apart are thus corrected one by one, by a second attempt that has new mistakes elsewhere.
#pragma once

#include <cstdint>
#include <vector>

#include "answer_length.hpp"
#include "chains.hpp"
#include "model.hpp"
#include "problem.hpp"

namespace tapscope::match {

class Pieces {
public:
    Pieces(const Problem& problem, const Candidates& candidates, const Model& model,
           const AnswerLength& length)
        : problem_(problem), candidates_(candidates), model_(model), length_(length) {}

    // `known` with those pieces of `other` that score better. Both: parent of each child, or kNone.
    std::vector<std::int32_t> best(const std::vector<std::int32_t>& known,
                                   const std::vector<std::int32_t>& other);
    // Log score of a whole assignment.
    double score(const std::vector<std::int32_t>& parent_of);
    // Nats by which the last result is better than `known`.
    double gain() const noexcept { return gain_; }

private:
    std::int32_t piece(std::int32_t parent) noexcept;
    void join(std::int32_t one, std::int32_t other) noexcept;
    // Adds the scores of the chains of the parents in question to their pieces, `sign` times.
    void add(const std::vector<std::int32_t>& parent_of, double sign);

    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    const AnswerLength& length_;
    std::vector<std::int32_t> above_;  // union-find over parents; kNone: same chain in both
    std::vector<Tip> tip_;
    std::vector<float> parts_;    // of answers, by parent
    std::vector<double> better_;  // by piece
    double gain_ = 0;
};

}  // namespace tapscope::match
