// Whether a call that is in reach of another parent could go there at all: what would become of the calls behind it?
//
// Of every split of a pair that is another than the one at hand, some call is the first to change sides. Up to there
// both chains are what they are; from there on the split costs what its steps are worth less than those of the chains
// at hand. So the splits that begin with one call are followed, call by call, until they have become the chains at hand
// again, or the end; those that have fallen `width` nats behind are left. A chain whose connection or grammar says who
// made its next call has none left after one or two calls. That is most pairs, where many requests are in flight, and
// costs a tenth of asking the pair (pair.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "answer_length.hpp"
#include "chains.hpp"
#include "model.hpp"
#include "problem.hpp"

namespace tapscope::match {

class Outlook {
public:
    Outlook(const Problem& problem, const Candidates& candidates, const Model& model,
            const AnswerLength& length)
        : problem_(problem), candidates_(candidates), model_(model), length_(length) {}

    // Whether child c of `own` may go to `other`, to which its step scores `ahead` nats more than that of `own`: a
    // candidate for it, or kNobody, which has no other children then. True also where a few steps do not
    // tell, or where lengths of answers count, which are of whole chains.
    bool open(const Chains& chains, std::int32_t c, std::int32_t own, std::int32_t other, float ahead,
              float width);

private:
    static constexpr std::size_t kMostWays = 8, kMostCalls = 8;
    using Ends = std::array<std::int32_t, 2>;  // last calls of both chains
    struct Way {
        Ends last;
        float ahead;  // nats, of the chains at hand
    };

    float moved(std::int32_t c, std::int32_t own, std::int32_t p) const noexcept;
    float step(std::int32_t p, std::int32_t last, std::int32_t next) const;
    void add(const Ends& last, float ahead);
    void follow(const std::array<std::int32_t, 2>& parent, const Ends& now, std::int32_t child, std::size_t x,
                float width);
    bool ends(const std::array<std::int32_t, 2>& parent, const Ends& now, float width) const;

    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    const AnswerLength& length_;
    std::vector<Way> ways_, before_;
};

}  // namespace tapscope::match
