// Calls that no request made: those of a timer or of a pool that tests its connections, or of a request that the tap did
// not see.
//
// They come as a Poisson stream of each class. Some of them no request could have made, because none was there for as
// long as they took. As many come while requests are there, and seem to be theirs. So each of the former stands for more:
// the time around it, by the part of that in which such a call would have found nobody (by the time around it, because
// such streams begin, end and pause). That much is known before anything is assigned; a rate that was learned from the
// assignment would feed itself.
//
// Where somebody is there at nearly all times, none of them would be seen. So where it is asked how sure an assignment is,
// three calls of a thousand may be nobody's, as far as the time in which that would have shown does not speak against it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "problem.hpp"

namespace tapscope::match {

class Orphans {
public:
    Orphans(const Problem& problem, const Candidates& candidates)
        : problem_(problem), candidates_(candidates) {}

    // The rows have been replaced. What was learned stays.
    void bind();

    // Counts of before weigh `keep` (0: forgotten).
    void estimate(double keep);

    // Logarithm of the rate per ns at which calls of this class come that are nobody's.
    float log_rate(std::int32_t cls) const noexcept { return log_rate_[static_cast<std::size_t>(cls)]; }
    // The same where it is asked how sure an assignment is.
    float log_rate_in_doubt(std::int32_t cls) const noexcept {
        return log_rate_in_doubt_[static_cast<std::size_t>(cls)];
    }
    // Share of that rate that is supposed, and not told by calls that no request could have made.
    float supposed(std::int32_t cls) const noexcept { return supposed_[static_cast<std::size_t>(cls)]; }
    // How many calls of this class are nobody's.
    double expected(std::int32_t cls) const noexcept {
        return streams_[static_cast<std::size_t>(cls)].expected;
    }

private:
    // What is known of a class.
    struct Stream {
        double made = 0;      // all calls of the class
        double expected = 0;  // nobody's, by those that no request could have made
        double alone = 0;     // of those made: how many would have found nobody, had they come at any time
    };

    const Problem& problem_;
    const Candidates& candidates_;
    std::vector<float> stands_for_;  // by child: how many it stands for; 0 where a request could have made it
    std::vector<Stream> streams_;    // by class
    double span_ns_ = 0;
    std::vector<float> alone_;  // by class: share of the time in which its calls would find nobody
    std::vector<float> log_rate_, log_rate_in_doubt_, supposed_;  // by class
};

}  // namespace tapscope::match
