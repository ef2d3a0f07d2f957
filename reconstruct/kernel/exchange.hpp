// Whole chains exchanged among all parents at once: what pairs cannot see.
//
// When the chains of three parents are one place off, no pair of them can gain, and each looks certain. So every chain
// is scored with every parent that could have made all of it, and chains are assigned to parents anew: optimally (an
// auction, Bertsekas 1988), and with marginal probabilities (belief propagation on the assignment, Williams and Lau
// 2014), which count every cycle of exchanges.
#pragma once

#include <cstdint>
#include <vector>

#include "answer_length.hpp"
#include "chains.hpp"
#include "model.hpp"
#include "problem.hpp"

namespace tapscope::match {

class ChainExchange {
public:
    ChainExchange(const Problem& problem, const Candidates& candidates, const Model& model,
                  const AnswerLength& length)
        : problem_(problem), candidates_(candidates), model_(model), length_(length) {}

    // Scores every chain of the assignment with every parent it could belong to, among `parents` (a flag for each).
    void load(const Chains& chains, const std::vector<std::uint8_t>& parents);

    // Best assignment of the loaded chains. Returns its gain in nats over the loaded one; parent_of() holds the result.
    double best();
    // Parent of each child after best().
    std::vector<std::int32_t> parent_of(const Chains& chains) const;

    struct Marginal {
        double own = 1.0;            // of the parent that holds the chain
        std::int32_t other = kNone;  // the likeliest other parent
        double other_probability = 0.0;
    };
    // By parent: marginals of the chain that it holds, as loaded.
    std::vector<Marginal> marginals() const;

private:
    struct Option {
        std::int32_t parent = kNone;
        float score = 0;  // of the chain with that parent, minus that parent left empty
    };
    void score(const std::vector<std::int32_t>& chain, std::int32_t holder,
               const std::vector<std::uint8_t>& parents);
    float steps(const std::vector<std::int32_t>& chain, std::int32_t p);

    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    const AnswerLength& length_;
    std::vector<std::uint8_t> free_;    // by parent: whether its chain may be another
    std::vector<std::int32_t> holder_;  // of each loaded chain
    std::vector<std::int64_t> offset_;  // CSR of options by chain
    std::vector<Option> options_;
    std::vector<float> steps_of_class_;   // of parents, along the chain at hand
    std::vector<std::int32_t> assigned_;  // parent of each chain
};

}  // namespace tapscope::match
