// What a search that began elsewhere says of the links that this one is sure of.
//
// A model that was learned from a wrong assignment is as sure of it as a right one would be: what it was fitted to fits.
// It does not show in what the model says, but a search from another beginning ends with other wrong links. So where
// much is in doubt, a second one is made, and that is followed whose model says more of its own assignment. None of its
// links is surer than its like turned out to be: of those that could be somebody else's and that it is sure of, the share
// that the other search has, too; or that of such beside a doubt, in whose request another call may or may not belong, if
// it is less. To a power, because the mistakes that both make do not show. A search whose model says much less of its
// assignment has found nothing, and says nothing.
#include <algorithm>
#include <cmath>

#include "search.hpp"

namespace tapscope::match {
namespace {

constexpr double kSure = 0.99;
constexpr double kInDoubt = 0.1;  // share of the calls that may be another request's: asked from there on
// Nats for each call by which a search may be behind, to be heard: a second one; and the first one, which would have been
// believed, or either where the best one itself is sure of so small a share of the calls.
constexpr double kBehind = 0.03, kFar = 0.3;
constexpr double kHardlyAny = 0.2;
constexpr double kAlike = 1.5;  // mistakes for each one that shows
constexpr double kHalf = 0.5;   // of two searches that disagree, either may be right

// By child: whether it is a sure link of a request that is in doubt, because some other call may be its own or another's.
std::vector<std::uint8_t> sure_beside_doubt(std::size_t parents, const Assignment& found) {
    std::vector<std::uint8_t> doubted(parents, 0), out(found.parent.size(), 0);
    for (std::size_t c = 0; c < out.size(); ++c) {
        if (found.probability[c] >= kSure) continue;
        for (const auto p : {found.parent[c], found.runner_up[c]}) {
            if (p != kNone) doubted[static_cast<std::size_t>(p)] = 1;
        }
    }
    for (std::size_t c = 0; c < out.size(); ++c) {
        const auto p = found.parent[c];
        out[c] = found.probability[c] >= kSure && p != kNone && doubted[static_cast<std::size_t>(p)] != 0;
    }
    return out;
}

}  // namespace

bool Matcher::Search::in_doubt(const Assignment& found) const {
    double unsure = 0;  // not of whether a request or nobody made it: another search knows no more of that
    for (std::size_t c = 0; c < found.parent.size(); ++c) {
        unsure += found.probability[c] < kSure && found.runner_up[c] != kNone;
    }
    return unsure > kInDoubt * static_cast<double>(found.parent.size());
}

bool Matcher::Search::worth_hearing(double apart, bool second, const Assignment& found) const {
    const auto calls = static_cast<double>(found.probability.size());
    const auto sure = std::count_if(found.probability.begin(), found.probability.end(),
                                    [](double p) { return p >= kSure; });
    const bool far = second || static_cast<double>(sure) < kHardlyAny * calls;
    return apart <= (far ? kFar : kBehind) * calls;
}

void Matcher::Search::hear(const Assignment& second, Assignment& found) {
    const auto beside_doubt = sure_beside_doubt(problem_.parents.size(), found);
    double sure = 0, agreed = 0, sure_there = 0, agreed_there = 0;
    for (std::size_t c = problem_.decided(); c < found.parent.size(); ++c) {
        if (found.probability[c] < kSure || !has_choice(c)) continue;
        const bool both = found.parent[c] == second.parent[c];
        sure += 1;
        agreed += both;
        sure_there += beside_doubt[c];
        agreed_there += both && beside_doubt[c];
    }
    const auto trusted = [](double both, double all) { return std::pow((both + 1) / (all + 1), kAlike); };
    trust_ = trusted(agreed, sure);
    trust_beside_doubt_ = std::min(trust_, trusted(agreed_there, sure_there));
    trust(found);
    for (std::size_t c = problem_.decided(); c < found.parent.size(); ++c) {
        if (found.parent[c] == second.parent[c] || found.probability[c] <= kHalf) continue;
        found.probability[c] = kHalf;
        found.runner_up[c] = second.parent[c];
        found.runner_up_probability[c] = kHalf;
    }
}

void Matcher::Search::trust(Assignment& found) const {
    if (trust_ >= 1) return;
    const auto beside_doubt = sure_beside_doubt(problem_.parents.size(), found);
    for (std::size_t c = problem_.decided(); c < found.parent.size(); ++c) {
        if (has_choice(c)) found.probability[c] *= beside_doubt[c] ? trust_beside_doubt_ : trust_;
    }
}

bool Matcher::Search::has_choice(std::size_t child) const {
    return candidates_.of(child).size() > 1 && !candidates_.certain(child);
}

}  // namespace tapscope::match
