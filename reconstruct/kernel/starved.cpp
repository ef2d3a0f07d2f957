// Requests that have no call, because another one has them all.
//
// Where many requests wait for each connection, one of them may get the calls of all who wait beside it, one after the
// other, and teach that its class does so, and that others make none. No pair of them gains by sharing, so that nothing
// leads out of there; and what is said of the times is about as likely as the truth. Where nobody waits, requests without
// calls found what they needed elsewhere, as in a cache: they are no case for this.
#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "search.hpp"

namespace tapscope::match {
namespace {

constexpr double kCrowd = 5.0;  // requests in flight for each connection, from which on they wait
// Then requests without calls are starved where there are so many of their class, such a share of it, and the class
// makes, or is expected to make, so many calls each.
constexpr int kFew = 10;
constexpr double kShare = 0.2, kUsual = 1.0;
constexpr double kMostly = 0.1;     // share of all requests
constexpr float kUnlikely = 3.0f;   // nats against each, where they are more,
constexpr float kSupposed = 10.0f;  // and while it is supposed that there are none

}  // namespace

bool Matcher::Search::crowded() const {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    double stays = 0;
    for (std::size_t p = 0; p < parents.size(); ++p) {
        stays += static_cast<double>(parents.depart[p] - parents.arrive[p]);
    }
    const std::unordered_set<std::int32_t> connections(children.conn.begin(), children.conn.end());
    const auto span = static_cast<double>(children.begin.back() - children.begin.front());
    return !connections.empty() && stays > kCrowd * static_cast<double>(connections.size()) * span;
}

// How many requests of each class are starved; empty: nobody is.
std::vector<int> Matcher::Search::starved() const {
    if (!crowded()) return {};
    const auto& parents = problem_.parents;
    const auto classes = static_cast<std::size_t>(parents.n_classes);
    std::vector<int> all(classes, 0), none(classes, 0);
    std::vector<double> calls(classes, 0.0);
    for (std::size_t p = 0; p < parents.size(); ++p) {
        const auto a = static_cast<std::size_t>(parents.cls[p]);
        const auto held = chains_.held(static_cast<std::int32_t>(p)).size();
        ++all[a];
        none[a] += held == 0;
        calls[a] += static_cast<double>(held);
    }
    for (std::size_t a = 0; a < classes; ++a) {
        double usual = 0;
        for (std::int32_t k = 0; k < problem_.children.n_classes; ++k) {
            usual += expected_(static_cast<std::int32_t>(a), k);
        }
        usual = std::max(usual, calls[a] / std::max(all[a], 1));
        if (none[a] < kFew || none[a] < kShare * all[a] || usual < kUsual) none[a] = 0;
    }
    return none;
}

bool Matcher::Search::mostly_starved() const {
    const auto none = starved();
    return std::accumulate(none.begin(), none.end(), 0.0) >
           kMostly * static_cast<double>(problem_.parents.size());
}

void Matcher::Search::expect_calls() {
    against_none_.clear();
    for (const int count : starved()) against_none_.push_back(count > 0 ? kUnlikely : 0.0f);
    suppose(&Model::suppose_calls, against_none_);
}

// All of a starved class are supposed to make calls.
void Matcher::Search::feed() {
    std::vector<float> nats;
    for (const int count : starved()) nats.push_back(count > 0 ? kSupposed : 0.0f);
    try_supposing(&Model::suppose_calls, nats, against_none_);
}

}  // namespace tapscope::match
