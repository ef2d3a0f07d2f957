// Assignments before there is a model, as beginnings of other models than the one that starts from the arrivals.
//
// A model that was learned from a wrong assignment may fit all requests of a node with the calls of others, each the
// same number of places behind it: no attempt by that model leads out of there, and it likes no other assignment. But
// other beginnings lead elsewhere:
//   soonest  each child, from the last to the first, goes where what follows it, a call or the answer, comes soonest.
//            A request that waits for a worker spends its stay before its first call, and goes on quickly then: seen
//            from its arrival it is like those around it, seen from its answer it is not.
//   longest  each child, from the first to the last, goes to who has waited for longest, since its arrival or its last
//            call: as where all calls wait for the connections of a pool.
// How many calls of a class a request makes is known from content and numbers alone (Affinity); one too many is unlikely.
#pragma once

#include <cstdint>
#include <vector>

#include "content.hpp"
#include "key_map.hpp"
#include "problem.hpp"

namespace tapscope::match {

class Guess {
public:
    Guess(const Problem& problem, const Candidates& candidates)
        : problem_(problem), candidates_(candidates) {}

    enum class By : std::uint8_t { soonest, longest };

    // Parent of each child. `expected`: calls of each class of children by a request of each class.
    std::vector<std::int32_t> parents(By by, const Affinity& expected);

private:
    // How this call suits a candidate whose nearest event is so many ns away.
    float score(std::int64_t candidate, std::int32_t cls, Time gap, By by, const Affinity& expected) const;
    std::uint64_t key(std::int32_t p, std::int32_t cls) const noexcept {
        return static_cast<std::uint64_t>(p) * static_cast<std::uint64_t>(problem_.children.n_classes) +
               static_cast<std::uint64_t>(cls) + 1;
    }

    const Problem& problem_;
    const Candidates& candidates_;
    KeyMap kinds_;             // parents with a class of calls
    std::vector<double> has_;  // so far, by kind
};

}  // namespace tapscope::match
