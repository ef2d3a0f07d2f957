// A first assignment: each child that is not certain, in time order, goes where its hazard is highest.
//
// It sees the past only; but where a connection is one parent's, who takes its first call takes it to its end, and that
// end must suit the parent's, too.
#pragma once

#include <cstdint>
#include <vector>

#include "chains.hpp"
#include "lent.hpp"
#include "model.hpp"
#include "nearness.hpp"
#include "problem.hpp"
#include "stop.hpp"

namespace tapscope::match {

class Forward {
public:
    Forward(const Problem& problem, const Candidates& candidates, const Model& model, const Lent& lent,
            Nearness& nearness, const Stop& stop)
        : problem_(problem),
          candidates_(candidates),
          model_(model),
          lent_(lent),
          nearness_(nearness),
          stop_(stop) {}

    // How long a request waits before its first call, or who waits first: one of them tells whose a first call is.
    enum class Starts : std::uint8_t { by_gap, in_order };

    // Into `chains`, which forget what they held. Nearness is told the steps.
    void run(Chains& chains, Starts starts = Starts::by_gap);

private:
    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    const Lent& lent_;
    Nearness& nearness_;
    const Stop& stop_;
    std::vector<float> in_queue_;  // of the requests that wait: what the child at hand is to them
};

}  // namespace tapscope::match
