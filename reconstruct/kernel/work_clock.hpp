// The node's own time: gaps by a clock that goes more slowly while more requests share the processors.
//
// Requests that wait neither for a call nor for their client work on the node. While more of them work than it has
// processors, each goes on more slowly, and all gaps of that while are longer, whosever they are. How many work is known
// before anything is matched: the requests in flight less the calls in flight. So gaps are measured by a clock that
// goes at processors / working requests, where that is less than one. A density by that clock times its speed at the
// end of the gap is a density per ns on the wall, so both can be compared: it is a hypothesis for each kind of step, like
// the number of processors, and the likelihood of an assignment decides (a step that waits for something else is
// better told by the wall).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace tapscope::match {

enum StepKind : std::int32_t {
    kFirstStep,
    kNextStep,
    kLastStep
};  // to the first call, from call to call, to the answer
inline constexpr int kStepKinds = 3;

// A gap of an assignment: `cell` numbers those that are expected to be alike, which are of one kind.
struct TimedStep {
    StepKind kind = kFirstStep;
    std::int32_t cell = 0;
    Time from = 0, to = 0;
};

class WorkClock {
public:
    // Decides by which clock each kind of step is told best. Returns whether it is another one than before.
    bool choose(const Problem& problem, const std::vector<TimedStep>& steps);
    bool tells(StepKind kind) const noexcept { return tells_[kind]; }
    double processors() const noexcept { return processors_; }

    // The rows of the problem have been replaced.
    void bind(const Problem& problem);

    // Where an instant is among the changes of speed: the same whatever the number of processors.
    struct Place {
        Time wall = 0;
        std::size_t changes = 0;  // before it
    };
    struct Reading {
        Time at = 0;          // ns of the clock
        float log_speed = 0;  // of the clock against the wall, just before
    };
    // `near`: a number of changes that may not be far from it.
    Place place(Time wall, std::size_t near = 0) const noexcept;
    Reading read(const Place& place) const noexcept;
    Reading read(Time wall) const noexcept {
        return running_ ? read(place(wall, when_.size() / 2)) : Reading{wall, 0.0f};
    }

private:
    void find_changes(const Problem& problem);
    void run(double processors);

    double processors_ = 0;  // 0: the wall alone
    std::array<bool, kStepKinds> tells_{};
    bool running_ = false;          // by another clock than the wall
    std::vector<Time> when_;        // instants at which the number that work changes
    std::vector<int> working_;      // that number, from then on
    std::vector<double> shown_;     // what the clock shows then
    std::vector<double> speed_;     // from then on
    std::vector<float> log_speed_;  // its logarithm
};

}  // namespace tapscope::match
