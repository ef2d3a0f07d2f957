// The state of an assignment: which parent has which children, and which pairs of chains have nothing to gain.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "model.hpp"
#include "pair.hpp"
#include "problem.hpp"

namespace tapscope::match {

using Pair = std::pair<std::int32_t, std::int32_t>;

// Invariant: held(p) is ascending, and c is in held(p) exactly when parent_of()[c] == p.
class Chains {
public:
    explicit Chains(const Candidates& candidates) : candidates_(candidates) {}

    // Another stretch: nobody has a parent.
    void resize(std::size_t parents, std::size_t children);

    const std::vector<std::int32_t>& parent_of() const noexcept { return parent_of_; }
    // Tells chains of p apart: the same again when the chain is.
    std::uint64_t version(std::int32_t p) const noexcept { return version_[p]; }
    const std::vector<std::int32_t>& held(std::int32_t p) const noexcept { return held_[p]; }
    std::int32_t parents() const noexcept { return static_cast<std::int32_t>(held_.size()); }

    // Child c, which nobody holds, goes to p, behind the first `at` children that p holds.
    void insert(std::int32_t p, std::size_t at, std::int32_t c);
    // The split of a pair becomes the state.
    void take(std::int32_t p, std::int32_t q, const PairSplit& split);
    void restore(const std::vector<std::int32_t>& parent_of);
    // The same for some parents, who have exchanged children among themselves only: each with the chain that it had.
    void restore(const std::vector<std::pair<std::int32_t, std::vector<std::int32_t>>>& before);

    // Children without a parent that each parent could have made, ascending.
    std::vector<std::vector<std::int32_t>> orphans() const;

    // Notes that the pair is asked with the chains that it has now, and with gaps that count `temper`. False when it is
    // known to have been asked so before. What is known is not all: a newer pair takes the place of an older one.
    bool ask(std::int32_t p, std::int32_t q, float temper) noexcept { return ask(p, q, temper, version_[q]); }
    // The same for a parent and these orphans.
    bool ask(std::int32_t p, const std::vector<std::int32_t>& orphans, float temper) noexcept;
    // The same for all chains at once.
    bool ask_all(float temper) noexcept;
    // Forgets what was asked: the model has changed.
    void forget() noexcept { ++models_; }

private:
    // Child c, which is later than every child that p holds, goes to p.
    void append(std::int32_t p, std::int32_t c);
    bool ask(std::int32_t p, std::int32_t q, float temper, std::uint64_t others) noexcept;
    std::uint64_t how(float temper) const noexcept {
        return models_ << 32 | std::bit_cast<std::uint32_t>(temper);
    }

    const Candidates& candidates_;
    std::vector<std::int32_t> parent_of_;
    std::vector<std::vector<std::int32_t>> held_;
    std::vector<std::uint64_t> version_;
    std::vector<std::uint64_t> asked_;  // fingerprints of what was asked, each in the one place it may have
    std::uint64_t all_asked_ = 0;
    std::uint64_t models_ = 1;
};

}  // namespace tapscope::match
