// What a search that began elsewhere says of the links that this one is sure of.
//
// A model that was learned from a wrong assignment is as sure of it as a right one would be: what it was fitted to fits.
// It does not show in what the model says, but a search from another beginning ends with other wrong links. So where
// much is in doubt, a second one is made, and no link is surer than its like turned out to be: of those that could be
// somebody else's and that the first search is sure of, the share that the second one has, too: counted apart where some
// other call is doubted to be of the same request, because there more is wrong of what seems sure. A second search that
// ends with an assignment of which its model says less has found nothing, and says nothing.
#include <algorithm>

#include "search.hpp"

namespace tapscope::match {
namespace {

constexpr double kSure = 0.99;
constexpr double kInDoubt = 0.1;  // share of the calls that may be another request's: asked from there on
constexpr double kBehind = 0.03;  // nats for each call, from which on the second search has found nothing
constexpr double kHalf = 0.5;     // of two searches that disagree, either may be right

// What is trusted alike: sure links of requests none of whose calls is in doubt, sure links of others, and links that are
// not sure, as far as all sure ones.
enum Like : std::uint8_t { kWhole, kDoubted, kUnsure };

// By child. A request is doubted where some call may be its own or another's.
std::vector<Like> find_likes(std::size_t parents, const Assignment& found) {
    std::vector<Like> of_parent(parents, kWhole), out(found.parent.size(), kWhole);
    for (std::size_t c = 0; c < out.size(); ++c) {
        if (found.probability[c] >= kSure) continue;
        out[c] = kUnsure;
        for (const auto p : {found.parent[c], found.runner_up[c]}) {
            if (p != kNone) of_parent[static_cast<std::size_t>(p)] = kDoubted;
        }
    }
    for (std::size_t c = 0; c < out.size(); ++c) {
        const auto p = found.parent[c];
        if (out[c] != kUnsure && p != kNone) out[c] = of_parent[static_cast<std::size_t>(p)];
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

void Matcher::Search::ask(Search& other, Assignment& found) {
    const auto second = other.settle();
    if (other.score() < score() - kBehind * static_cast<double>(found.parent.size())) return;
    const auto like = find_likes(problem_.parents.size(), found);
    std::array<double, 3> sure{}, agreed{};
    for (std::size_t c = problem_.decided(); c < found.parent.size(); ++c) {
        if (like[c] == kUnsure || !has_choice(c)) continue;
        for (const auto of : {like[c], kUnsure}) {
            sure[of] += 1;
            agreed[of] += found.parent[c] == second.parent[c];
        }
    }
    for (std::size_t of = 0; of < trust_.size(); ++of) trust_[of] = (agreed[of] + 1) / (sure[of] + 1);
    trust(found);
    for (std::size_t c = problem_.decided(); c < found.parent.size(); ++c) {
        if (found.parent[c] == second.parent[c] || found.probability[c] <= kHalf) continue;
        found.probability[c] = kHalf;
        found.runner_up[c] = second.parent[c];
        found.runner_up_probability[c] = kHalf;
    }
}

void Matcher::Search::trust(Assignment& found) const {
    if (std::all_of(trust_.begin(), trust_.end(), [](double each) { return each >= 1; })) return;
    const auto like = find_likes(problem_.parents.size(), found);
    for (std::size_t c = problem_.decided(); c < found.parent.size(); ++c) {
        if (has_choice(c)) found.probability[c] *= trust_[like[c]];
    }
}

bool Matcher::Search::has_choice(std::size_t child) const {
    return candidates_.of(child).size() > 1 && !candidates_.certain(child);
}

}  // namespace tapscope::match
