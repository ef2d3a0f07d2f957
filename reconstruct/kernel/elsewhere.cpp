// Other beginnings than the class affinities, where times and classes alone must tell.
#include "search.hpp"

namespace tapscope::match {
namespace {

// Another beginning is worth it where so large a share of the calls has so many candidates, and such a share no values.
constexpr std::size_t kMany = 3;
constexpr double kWorthAStart = 0.2, kMostlySilent = 0.9;
constexpr double kMostBehind = 1.5;  // nats for each call that a mere guess may be behind, to be followed
constexpr int kStartRounds = 5;      // models on the way from there

}  // namespace

// Whether hardly a call carries values.
bool Matcher::Search::mostly_silent() const {
    const auto& values = problem_.children.tokens.offset;
    double silent = 0;
    for (std::size_t c = 0; c < problem_.children.size(); ++c) silent += values[c] == values[c + 1];
    return silent >= kMostlySilent * static_cast<double>(problem_.children.size());
}

// Other models, learned from other beginnings. Each is judged by what it says of its own assignment: another one's would
// never do. Where calls say whose they are, or have nobody to choose from, there is nothing to find.
void Matcher::Search::start_elsewhere() {
    const auto calls = static_cast<double>(problem_.children.size());
    double open = 0;
    for (std::size_t c = 0; c < problem_.children.size(); ++c) open += candidates_.of(c).size() >= kMany;
    if (open < kWorthAStart * calls || !mostly_silent()) return;
    const auto estimate = [&] {
        model_.choose_clock(chains_.parent_of());
        reestimate();
        return score();
    };
    auto known = chains_.parent_of();
    double best = score();
    for (const auto by : {Guess::By::soonest, Guess::By::longest}) {
        chains_.restore(guess_.parents(by, expected_));
        if (estimate() < best - kMostBehind * calls) continue;
        for (int round = 0; round < kStartRounds; ++round) {
            climb(2);
            if (changed() <= kConverged) break;
            estimate();
        }
        soften();
        climb(options_.max_sweeps);
        if (const double here = estimate(); here > best + kWorthMoving * calls) {
            best = here;
            known = chains_.parent_of();
        }
    }
    if (chains_.parent_of() == known) return;
    chains_.restore(known);
    estimate();
}

}  // namespace tapscope::match
