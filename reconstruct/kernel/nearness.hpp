// Which parents could exchange children at all: the others are left alone.
//
// A child is told from the candidates for it by the step that each of them would take to make it, from where its chain
// stands just before. A candidate that is `width` nats less likely than the parent that has the child is out of reach;
// a pair of parents between which no child is in reach keeps what it has. One sweep over the children that are not
// certain, in time order; the steps of parents whose chains have not changed since the last sweep are remembered, and so
// is who is in reach of a child none of whose candidates has changed.
#pragma once

#include <cstdint>
#include <vector>

#include "chains.hpp"
#include "model.hpp"
#include "outlook.hpp"
#include "problem.hpp"
#include "stop.hpp"

namespace tapscope::match {

class Nearness {
public:
    Nearness(const Problem& problem, const Candidates& candidates, const Model& model,
             const AnswerLength& length, const Stop& stop)
        : problem_(problem),
          candidates_(candidates),
          model_(model),
          stop_(stop),
          outlook_(problem, candidates, model, length) {}

    // Forgets all steps: the model has changed, or the candidates, or other children are certain.
    void forget() {
        known_version_.clear();
        near_.clear();
        apart_.clear();
    }
    // From here until widen() the chains of these parents (1 by parent) stay as they are: their children are certain now,
    // and nobody else's are theirs. Steps that are known stay known.
    void narrow(const std::vector<std::uint8_t>& apart);
    void widen();
    // Whether a parent is out of it.
    bool apart(std::int32_t p) const noexcept { return !apart_.empty() && apart_[p]; }
    // Finds the children that have candidates and are not certain, and returns them, in order.
    const std::vector<std::int32_t>& find_open();
    // For who works out all steps himself: that of a candidate. Then know_all() says whose chains they continue.
    void know(std::int64_t candidate, const Model::Parts& step) noexcept {
        step_[static_cast<std::size_t>(candidate)] = step;
    }
    void know_all(const Chains& chains);
    // Forgets the steps from arrivals: the order of arrivals has been ranked.
    void forget_starts() noexcept { starts_known_ = false; }

    // Pairs of everybody in reach, or only of those to whom a call could go for all that follows (outlook.hpp).
    enum class Whom : std::uint8_t { all, open };
    void find(const Chains& chains, float width, Whom whom);

    // Pairs (p, q), p < q, in order.
    const std::vector<Pair>& pairs() const noexcept { return pairs_; }
    // Parents that are in some pair.
    const std::vector<std::uint8_t>& paired() const noexcept { return paired_; }
    // Parents between which and nobody a child is in reach, in order.
    const std::vector<std::int32_t>& near_nobody() const noexcept { return near_nobody_; }

private:
    // Two parents, the lower one first, or nobody and one parent, for whom a child is in reach.
    struct Near {
        std::int32_t child = 0, p = 0, q = 0;  // p kNone: nobody
        bool open = true;                      // as far as that is told
    };

    bool refresh(const Chains& chains);
    void look(const Chains& chains, std::size_t child, std::int32_t own, float width);
    void gather();

    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    const Stop& stop_;
    Outlook outlook_;
    std::vector<Model::Parts> step_;  // by candidate
    std::vector<std::uint64_t>
        known_version_;  // of the chains that step_ was worked out from; empty: of none
    bool starts_known_ = false;
    std::vector<std::uint8_t> apart_;            // by parent; empty: nobody is
    std::vector<std::uint64_t> version_before_;  // known_version_ when that began
    std::vector<std::int32_t> open_;             // children that are not certain
    std::vector<std::uint8_t> stale_;            // by parent
    std::vector<std::int32_t> first_, last_;     // by parent: what it is a candidate for, by place in open_
    // By place in open_: how many more stale parents may have made it than the one before; and whether a step to it was
    // worked out anew.
    std::vector<std::int32_t> stale_here_;
    std::vector<std::uint8_t> touched_;
    Whom whom_ = Whom::all;                 // pairs_ are of these
    bool told_ = false;                     // who of them is open
    float temper_ = 0, width_ = 0;          // that near_ was found with
    std::vector<Near> near_, near_before_;  // by child
    struct Ahead {
        Tip tip;             // of its chain before the child at hand,
        std::size_t at = 0;  // which begins with so many
    };
    std::vector<Ahead> ahead_;  // by parent
    std::vector<float> score_;
    std::vector<Pair> pairs_;
    std::vector<std::uint64_t> keys_;
    std::vector<std::uint8_t> offered_;  // by parent: some child without a parent could be its own
    std::vector<std::uint8_t> paired_, lonely_;
    std::vector<std::int32_t> near_nobody_;
};

}  // namespace tapscope::match
