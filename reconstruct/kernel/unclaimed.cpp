// Calls that are taken for nobody's, and are too many for that.
//
// How many are nobody's is known before anything is assigned (orphans.hpp). But where requests make one call each that
// timers make as well, all of these may be left to nobody: then their class is learned to make none, no single call
// gains by going back, and what the model says of that fits. Two things tell. More are nobody's than are expected; and
// they come while requests of one class are there, of which timers know nothing.
#include <algorithm>
#include <cmath>

#include "search.hpp"

namespace tapscope::match {
namespace {

constexpr double kTimes = 1.5, kFew = 10;  // too many: so many times as many as expected, and so many more
// Stays are compared with such as are moved by so many mean ones, and what is found in them is no chance from so many
// standard deviations on.
constexpr double kMoved = 5, kSure = 5;
constexpr float kSupposed = 10.0f;  // nats against each, while it is supposed that they are somebody's

// Of these instants, ascending, how many are in the stays of each class of requests, all moved by `later`?
std::vector<double> inside(const Parents& parents, const std::vector<Time>& when, Time later) {
    std::vector<double> out(static_cast<std::size_t>(parents.n_classes), 0.0);
    for (std::size_t p = 0; p < parents.size(); ++p) {
        const auto first = std::lower_bound(when.begin(), when.end(), parents.arrive[p] + later);
        const auto last = std::upper_bound(first, when.end(), parents.depart[p] + later);
        out[static_cast<std::size_t>(parents.cls[p])] += static_cast<double>(last - first);
    }
    return out;
}

// Whether they come because requests of some class are there.
bool go_with_requests(const Parents& parents, const std::vector<Time>& when) {
    double stays = 0;
    for (std::size_t p = 0; p < parents.size(); ++p) {
        stays += static_cast<double>(parents.depart[p] - parents.arrive[p]);
    }
    const auto moved =
        static_cast<Time>(kMoved * stays / static_cast<double>(std::max<std::size_t>(parents.size(), 1)));
    const auto here = inside(parents, when, 0);
    const auto earlier = inside(parents, when, -moved), later = inside(parents, when, moved);
    for (std::size_t a = 0; a < here.size(); ++a) {
        const double usual = (earlier[a] + later[a]) / 2;
        if (here[a] > usual + kFew + kSure * std::sqrt(usual)) return true;
    }
    return false;
}

}  // namespace

// By class: nats against each call that is nobody's, where these are too many.
std::vector<float> Matcher::Search::unclaimed() const {
    const auto& children = problem_.children;
    std::vector<std::vector<Time>> nobodys(static_cast<std::size_t>(children.n_classes));
    for (std::size_t c = problem_.decided(); c < std::min(problem_.settled, children.size()); ++c) {
        if (chains_.parent_of()[c] != kNone) continue;
        nobodys[static_cast<std::size_t>(children.cls[c])].push_back(children.begin[c]);
    }
    std::vector<float> nats(nobodys.size(), 0.0f);
    for (std::size_t k = 0; k < nobodys.size(); ++k) {
        const double most = kTimes * model_.expected_orphans(static_cast<std::int32_t>(k)) + kFew;
        if (static_cast<double>(nobodys[k].size()) <= most) continue;
        if (go_with_requests(problem_.parents, nobodys[k])) nats[k] = kSupposed;
    }
    return nats;
}

// All of such a class are supposed to be somebody's.
void Matcher::Search::claim() { try_supposing(&Model::suppose_claimed, unclaimed(), {}); }

}  // namespace tapscope::match
