// Calls that nobody waits for: their node may answer its own request first (an event is sent, a cache is filled).
//
// As a rule a call begins to be answered before its parent has left, which is half of what times tell. But where calls
// of a class are made for requests that are there, and at times outlast all of them, the rule is not of that class. Calls
// that begin behind the answer are another thing: some of their class begin while nobody is there, and to link those that
// do not to whoever is there would be wrong.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace tapscope::match {

class Forgotten {
public:
    // Counts the undecided calls of a stretch; what was counted before counts `keep` times as much from now on.
    void count(const Problem& problem, double keep);

    // By class of children: whether one need only begin while its parent is there.
    const std::vector<std::uint8_t>& classes() const noexcept { return forgotten_; }

private:
    // By class: calls that were made while somebody was there, that outlasted all who were, and that nobody was there for.
    std::vector<double> made_, outlast_, alone_;
    std::vector<std::uint8_t> forgotten_;
};

}  // namespace tapscope::match
