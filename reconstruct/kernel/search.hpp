// The search for the assignment of one stretch: what its parts share. assign.cpp is its course, climb.cpp the moves that
// only gain, attempts.cpp, elsewhere.cpp, starved.cpp and unclaimed.cpp the ways out of a place where none does,
// second_opinion.cpp what it is held to.
#pragma once

#include <cstdint>
#include <vector>

#include "answer_length.hpp"
#include "assign.hpp"
#include "bound.hpp"
#include "chains.hpp"
#include "content.hpp"
#include "cut_off.hpp"
#include "ejection.hpp"
#include "exchange.hpp"
#include "forgotten.hpp"
#include "forward.hpp"
#include "guess.hpp"
#include "leases.hpp"
#include "lent.hpp"
#include "model.hpp"
#include "nearness.hpp"
#include "pair.hpp"
#include "pair_move.hpp"
#include "pieces.hpp"
#include "probability.hpp"
#include "random.hpp"
#include "shift.hpp"
#include "stop.hpp"
#include "workers.hpp"

namespace tapscope::match {

// Nats: see nearness.hpp. While the model is learned, and climbs are many, who is farther off hardly ever gains.
inline constexpr float kReach = 8.0f, kReachWhileLearning = 6.0f;
// Nats for each call that an attempt has gained, from which on another one is worth it.
inline constexpr double kWorthAnother = 0.002;
inline constexpr double kConverged = 1e-3;  // share of children that moved, up to which the model is learned
// Nats for each call that another beginning or a queue for workers must be ahead: the former has been learned for longer,
// and says a little more for that alone; and a queue that explains no more than that tells nothing.
inline constexpr double kWorthMoving = 0.05;
// Gaps of steps that overlap are not independent: they share the node's mood (a collection, a full run queue). So
// their log densities count for less than the sum would say. The single best assignment wants most of what they say;
// how sure it is wants much less. Of what the order of idle connections says, half is often that of the one other
// that would change places, which says it again: that makes nobody surer.
// Where connections go to requests as a whole, most gaps stay together wherever they go, and say of many calls at once what
// is usual in a class of requests: that is not so many times as sure.
inline constexpr Temper kToDecide{0.7f, 1.0f}, kToDecideWhole{0.5f, 1.0f}, kToDoubt{0.3f, 0.6f};

class Matcher::Search {
public:
    Search(std::int32_t parent_classes, std::int32_t child_classes, const Options& options, const Stop& stop,
           Course course);

    // The first stretch: learns from it. Other searches may do so, too; then it settles.
    void begin(const Problem& stretch, const std::vector<float>& idle);
    // What the model says of its own assignment, in nats.
    double score() { return pieces_.score(chains_.parent_of()); }
    // Whether many requests have no call, though their class makes some. Then it counts against each, from here on.
    bool mostly_starved() const;
    void expect_calls();
    Assignment settle();
    // What the model that was settled on says of its best assignment. score() is from then on as of how sure it is, where
    // gaps count for less: it may rank two searches the other way round.
    double says() const noexcept { return says_; }

    // Whether a second search is worth it; whether this one, which leads, should hear the other, by how far `apart` is what
    // they say, and whether this one is the `second`; and what follows from what that has found: see second_opinion.cpp.
    bool in_doubt(const Assignment& found) const;
    bool worth_hearing(double apart, bool second, const Assignment& found) const;
    void hear(const Assignment& second, Assignment& found);

    // A later stretch.
    Assignment follow(const Problem& stretch, const std::vector<float>& idle);

private:
    using Way = void (Search::*)();
    using Supposition = void (Model::*)(const std::vector<float>& nats);

    // The course of the search.
    double bind(const Problem& stretch, const std::vector<float>& idle);
    void learn();
    void move_on();
    void refit();
    void scatter_on();
    void start_elsewhere();
    void place();
    void soften();
    void improve(bool first);
    Draws draws();
    float order_unheard(const std::vector<std::int32_t>& best);
    Assignment weigh(const Draws& drawn);
    double changed() const;
    double moved_since(const std::vector<std::int32_t>& before) const;
    void reestimate();
    void learn_again();
    void relearn();

    // Moves that gain.
    void climb(int max_sweeps) { climb(max_sweeps, learned_ ? kReach : kReachWhileLearning); }
    void climb(int max_sweeps, float reach);
    bool exchange_chains();
    bool adopt_or_leave();

    // Draws.
    void find_live_pairs();
    void draw();

    // Other places to climb from.
    double attempt(Way leave);
    void suppose(Supposition against, const std::vector<float>& nats);
    void try_supposing(Supposition against, const std::vector<float>& nats,
                       const std::vector<float>& otherwise);
    void set_out();
    void scatter();
    void anneal();
    void queue_up();
    void eject();
    void lease();
    void suppose_order(float nats);
    void draw_all(float evidence);
    std::vector<std::int32_t> settle_quiet();
    void unsettle(const std::vector<std::int32_t>& certain);
    void rank();

    // What a second search has said of this one.
    void trust(Assignment& found) const;
    bool has_choice(std::size_t child) const;

    // Requests that have no call.
    bool crowded() const;
    bool mostly_silent() const;
    std::vector<int> starved() const;
    void feed();

    // Calls that are nobody's, and too many for that.
    std::vector<float> unclaimed() const;
    void claim();

    // Calls visit(p, q) with the split loaded, for every pair that could exchange children in the present state.
    template <class Visit>
    void for_pairs(Nearness::Whom whom, Visit&& visit) {
        nearness_.find(chains_, kReach, whom);
        for (const auto& [p, q] : nearness_.pairs()) {
            stop_.poll();
            if (split_.load(p, q, chains_.held(p), chains_.held(q))) visit(p, q);
        }
    }

    Problem problem_;
    const Options options_;
    const Stop& stop_;
    const Course course_;
    bool learned_ = false;
    bool restless_ = false;  // what was found in the stretch before is far from what taught the model
    double says_ = 0;
    bool whole_connections_ = false;  // each serves one request, and most calls name something
    Temper to_decide_ = kToDecide;
    bool by_lease_ = false;  // leases were worth it in the first stretch: it is so in later ones
    // Share of what this is sure of that another search found, too; and beside a doubt.
    double trust_ = 1, trust_beside_doubt_ = 1;
    std::vector<float> against_none_;  // nats, by class; empty: none
    Candidates candidates_;
    Forgotten forgotten_;
    Lent lent_;
    Workers workers_;
    Content content_;
    Bound bound_;
    Model model_;
    AnswerLength length_;
    Random random_;
    PairSplit split_;
    PairMove move_;
    ChainExchange exchange_;
    Nearness nearness_;
    Forward forward_;
    Guess guess_;
    Affinity expected_;  // of a first stretch
    Pieces pieces_;
    Ejection ejection_;
    Leases leases_;
    CutOff cut_off_;
    Shift shift_;
    Chains chains_;
    Probabilities probabilities_;
    std::vector<std::int32_t>
        taught_by_;  // of a first stretch: the assignment that the model was learned from
    std::vector<Pair> live_;
};

}  // namespace tapscope::match
