// What the model says of the whole chain of one parent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "answer_length.hpp"
#include "model.hpp"
#include "problem.hpp"

namespace tapscope::match {

class ChainScore {
public:
    // Keeps references.
    ChainScore(const Problem& problem, const Candidates& candidates, const Model& model,
               const AnswerLength& length)
        : problem_(problem), candidates_(candidates), model_(model), length_(length) {}

    // Nats, if p made these children (ascending) and no others. What each step is worth goes into `usual`, by child, if
    // asked.
    double operator()(std::int32_t p, std::span<const std::int32_t> chain,
                      std::vector<float>* usual = nullptr) const;

private:
    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    const AnswerLength& length_;
};

}  // namespace tapscope::match
