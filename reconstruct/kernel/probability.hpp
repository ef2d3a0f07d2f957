// How sure each choice of an assignment is, and who comes next.
//
// Three things tell, and the least sure of them counts:
//   draws    how often a child was with the parent that it has, as pairs were drawn from their conditional distribution
//   pairs    the exact marginals of each pair as the chains are now, which also tell what is too rare to be drawn
//   chains   marginals of whole chains among all parents, as each pair may look certain alone (exchange.hpp)
#pragma once

#include <cstdint>
#include <vector>

#include "assign.hpp"
#include "chains.hpp"
#include "exchange.hpp"
#include "nearness.hpp"
#include "pair.hpp"
#include "pair_move.hpp"
#include "problem.hpp"
#include "stop.hpp"

namespace tapscope::match {

// How often each choice was drawn.
class Draws {
public:
    // Only the pairs `live` will be drawn: what their parents hold stays among them. Keeps a reference to the candidates.
    Draws(const Candidates& candidates, const Chains& chains, const std::vector<Pair>& live);

    // The chains as they are now are one draw.
    void count(const Chains& chains);

    // Whether draws could move the child.
    bool moving(std::size_t child) const noexcept { return moving_[child] != 0; }
    // How many draws had this candidate, by its place in Candidates::parent.
    std::uint16_t times(std::int64_t candidate) const noexcept {
        return drawn_[static_cast<std::size_t>(candidate)];
    }

private:
    const Candidates& candidates_;
    std::vector<std::uint16_t> drawn_;           // by candidate
    std::vector<std::uint8_t> moving_;           // by child
    std::vector<std::int32_t> moving_children_;  // those children
};

class Probabilities {
public:
    // Keeps references. Always so many draws are counted; `move` is of `split`.
    Probabilities(const Problem& problem, const Candidates& candidates, const Chains& chains,
                  const Nearness& nearness, PairSplit& split, PairMove& move, ChainExchange& exchange,
                  int draws, const Stop& stop)
        : problem_(problem),
          candidates_(candidates),
          chains_(chains),
          nearness_(nearness),
          split_(split),
          move_(move),
          exchange_(exchange),
          draws_(draws),
          stop_(stop) {}

    // Of the chains as they are now; nearness has been found for them, of pairs that are open.
    Assignment weigh(const Draws& drawn);

private:
    // By child: odds of every alternative against the parent that it has.
    struct Odds {
        std::vector<double> sum, best;
        std::vector<std::int32_t> alternative;  // the parent of the best, or kNone
    };
    Odds odds_of_pairs();
    // Adds what the loaded pair says. `q` may be kNobody.
    void add_pair(std::int32_t p, std::int32_t q, Odds& odds);

    const Problem& problem_;
    const Candidates& candidates_;
    const Chains& chains_;
    const Nearness& nearness_;
    PairSplit& split_;
    PairMove& move_;
    ChainExchange& exchange_;
    const int draws_;
    const Stop& stop_;
    std::vector<double> to_q_;
};

}  // namespace tapscope::match
