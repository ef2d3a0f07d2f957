// How much of the calls that came first teaches a model as well as all of them: what does it ask of them?
#pragma once

#include <cstdint>
#include <span>

#include "problem.hpp"

namespace tapscope::match {

// The rows of a node that learning may begin with, as columns of one length for each side, in order of time.
struct FirstRows {
    std::span<const std::int32_t> parent_cls, child_cls;
    std::span<const Time> arrive, depart, begin;
    std::span<const std::int64_t> child_token_offset;  // one more than children: see Tokens
};

// The fewest children from `least` on, in doublings, that are like all: no class that is rare among them comes behind
// them, and requests take about as long, with about as many in flight. All of them where no half or less of them is like
// the rest (a node that has just started, or with many classes), and where few calls carry values: by time alone the
// first stretch, which is searched more thoroughly than later ones, is better when it is long.
std::size_t enough_to_learn(const FirstRows& rows, std::size_t least);

}  // namespace tapscope::match
