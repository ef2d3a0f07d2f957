// A part of a stretch that stands for it while its model is young: learning asks every candidate in every round, and
// most of what there is to learn is in any few thousand calls.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace tapscope::match {

struct WindowSize {
    std::size_t children = 6'144;
    std::size_t candidates = 32;  // of a child of the stretch on average; among more a part says too little
};

// The consecutive children of a stretch that have the fewest candidates, with the parents that were there meanwhile.
// Whoever leaves behind its end counts as not answered: how it ends is not seen.
class Window {
public:
    // False where the whole stretch had better teach: it is hardly longer, or much is in flight. `idle` is as in idle_connections().
    bool cut(const Problem& stretch, const Candidates& candidates, const std::vector<float>& idle,
             const WindowSize& size);
    // Borrows from the stretch and from this.
    const Problem& problem() const noexcept { return problem_; }
    const std::vector<float>& idle() const noexcept { return idle_; }

private:
    Problem problem_;
    std::vector<std::uint8_t> answered_;
    std::vector<std::int32_t> before_on_conn_;
    std::vector<float> idle_;
};

}  // namespace tapscope::match
