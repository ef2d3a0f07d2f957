#include "assign.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "answer_length.hpp"
#include "bound.hpp"
#include "chains.hpp"
#include "content.hpp"
#include "exchange.hpp"
#include "forward.hpp"
#include "lent.hpp"
#include "model.hpp"
#include "nearness.hpp"
#include "pair.hpp"
#include "pair_move.hpp"
#include "pieces.hpp"
#include "probability.hpp"
#include "random.hpp"
#include "workers.hpp"

namespace tapscope::match {
namespace {

constexpr float kGainWorthTaking = 1e-3f;     // nats; below it an exchange is rounding
constexpr double kExchangeWorthTaking = 1.0;  // nats over all chains; the auction is exact only to its bids
constexpr double kLive = 1e-3;  // probability of another parent from which on a pair is drawn again
constexpr float kReach = 8.0f;  // nats: see nearness.hpp
// Of the first rounds of learning: to their poor models everybody is near, and most gains are between the nearest.
constexpr float kFirstReach[] = {3.0f, 6.0f};
// Gaps of steps that overlap are not independent: they share the node's mood (a collection, a full run queue). So
// their log densities count for less than the sum would say. The single best assignment wants most of what they say;
// how sure it is wants much less. Of what the order of idle connections says, half is often that of the one other
// that would change places, which says it again: that makes nobody surer.
constexpr Temper kToDecide{0.7f, 1.0f}, kToDoubt{0.3f, 0.6f};
constexpr double kConverged = 1e-3;  // share of children that moved, up to which the model is learned
constexpr int kBurnIn = 4;           // draws that are not counted, where the model is known already
// What is left of all evidence where chains are scattered for another attempt: enough to keep what is plain.
constexpr float kScatter = 0.15f;
// Draws that cool down, because a climb from the first alone goes to the nearest summit.
constexpr float kAnneal[] = {kScatter, 0.3f, 0.6f};
constexpr int kAttempts = 2;  // of each kind, at the best assignment

Problem without_rows(std::int32_t parent_classes, std::int32_t child_classes) {
    Problem out;
    out.parents.n_classes = parent_classes;
    out.children.n_classes = child_classes;
    return out;
}

}  // namespace

class Matcher::Search {
public:
    Search(std::int32_t parent_classes, std::int32_t child_classes, const Options& options,
           const std::atomic<bool>& stop)
        : problem_(without_rows(parent_classes, child_classes)),
          options_(options),
          stop_(stop),
          content_(problem_, candidates_),
          bound_(problem_, candidates_),
          model_(problem_, candidates_, {}, {}),
          length_(problem_),
          split_(problem_, candidates_, model_),
          move_(split_, length_, random_),
          exchange_(problem_, candidates_, model_, length_),
          nearness_(problem_, candidates_, model_, length_),
          forward_(problem_, candidates_, model_, lent_, nearness_),
          pieces_(problem_, candidates_, model_, length_),
          chains_(candidates_),
          probabilities_(problem_, candidates_, chains_, nearness_, split_, move_, exchange_, options_.draws,
                         stop_) {}

    Assignment run(const Problem& stretch, const std::vector<float>& idle) {
        problem_ = stretch;
        model_.temper(kToDecide);
        find_candidates(problem_, candidates_);
        lent_.find(problem_);
        if (lent_.once()) {
            lent_.keep_whole(problem_, candidates_);
        } else {
            workers_.separate(problem_, candidates_);
        }
        chains_.resize(problem_.parents.size(), problem_.children.size());
        nearness_.forget();
        const auto settled = std::min(problem_.settled, problem_.children.size());
        const double keep =
            learned_ ? std::exp(-static_cast<double>(settled - problem_.decided()) / options_.memory) : 0.0;
        content_.bind(keep);
        bound_.bind();
        model_.bind(idle, lent_.once());
        length_.bind();
        if (!learned_) {
            model_.expect(content_.learn(options_.content_rounds));
            learn();
            soften();
            learned_ = true;
            return weigh(decide());
        }
        content_.apply();
        bound_.score();
        place();
        content_.relearn(chains_.parent_of(), keep);
        bound_.estimate(chains_.parent_of(), keep);
        model_.estimate(chains_.parent_of(), keep);
        length_.estimate(chains_.parent_of(), false);
        content_.score_all();
        bound_.score();
        chains_.forget();
        nearness_.forget();
        return weigh(decide());
    }

private:
    void learn() {
        for (int round = 0; round < options_.learn_rounds && !stop_; ++round) {
            if (round < options_.forward_rounds) {
                if (round > 0) {
                    content_.apply();
                    bound_.score();
                }
                nearness_.forget();
                forward_.run(chains_);
            }
            climb(2, round < 2 ? kFirstReach[round] : kReach);
            if (changed() <= kConverged) break;
            if (round % 2 == 0) model_.choose_clock(chains_.parent_of());
            reestimate();
        }
        climb(options_.max_sweeps);
        attempt([&] { set_out(); });
        attempt([&] { scatter(); });
        if (model_.choose_clock(chains_.parent_of()) || changed() > 0) reestimate();
    }

    // A forward pass by a model that is good already. Sharp gaps would hold it where it has left the chains, as it knew
    // only the past: so at first they count for little.
    void set_out() {
        forward_.run(chains_);
        model_.temper(kToDoubt);
        climb(2);
        model_.temper(kToDecide);
    }

    // Where no pair of parents can gain, four may: what each of them lacks is with the next one. So the chains are
    // drawn again with most of the evidence set aside, and climb from there.
    void scatter(float weight = kScatter) {
        split_.weigh_evidence(weight);
        move_.weigh(weight);
        for_pairs(Nearness::Whom::all, [&](std::int32_t p, std::int32_t q) {
            if (move_.draw()) chains_.take(p, q, split_);
        });
        split_.weigh_evidence(1.0f);
        move_.weigh(1.0f);
    }

    void anneal() {
        for (const float weight : kAnneal) scatter(weight);
    }

    // Another attempt, from where `leave` leaves the chains. Its better pieces are taken.
    template <class Leave>
    void attempt(Leave&& leave) {
        if (stop_) return;
        const auto known = chains_.parent_of();
        leave();
        climb(options_.max_sweeps);
        chains_.restore(pieces_.best(known, chains_.parent_of()));
        if (pieces_.gain() > 0) climb(options_.max_sweeps);
    }

    // A chain that has nothing to exchange with any other, and that content holds where it is, takes no part in attempts:
    // all its calls are certain meanwhile. Without such a call three chains may be one place off, and look quiet.
    // Returns the calls that are certain by content.
    std::vector<std::int32_t> settle_quiet() {
        auto certain = candidates_.certain_parent;
        nearness_.find(chains_, kReach, Nearness::Whom::open);
        std::vector<std::uint8_t> quiet(problem_.parents.size(), 0);
        for (std::size_t c = 0; c < certain.size(); ++c) {
            if (certain[c] != kNone) quiet[certain[c]] = !nearness_.paired()[certain[c]];
        }
        for (const auto p : nearness_.near_nobody()) quiet[p] = 0;
        for (std::size_t c = problem_.decided(); c < certain.size(); ++c) {
            const auto p = chains_.parent_of()[c];
            if (p != kNone && quiet[p]) candidates_.certain_parent[c] = p;
        }
        nearness_.narrow(quiet);
        return certain;
    }

    void unsettle(const std::vector<std::int32_t>& certain) {
        candidates_.certain_parent = certain;
        nearness_.widen();
    }

    // Who waits and what lies idle is told anew, by the assignment as it is now.
    void rank() {
        const auto ranked = model_.rank(chains_.parent_of());
        if (ranked == Model::Ranked::none) return;
        chains_.forget();
        if (ranked == Model::Ranked::starts_and_ends) nearness_.forget_starts();
    }

    void place() {
        set_out();
        rank();
        climb(options_.max_sweeps);
        find_live_pairs();
        for (int round = 0; round < kBurnIn && !stop_; ++round) draw();
    }

    void soften() {
        find_live_pairs();
        for (int round = 0; round < options_.soften_rounds && !stop_; ++round) {
            if (live_.empty()) return;
            if (2 * round == options_.soften_rounds) find_live_pairs();
            draw();
            // What is drawn anew is a small part, and tells little of what is copied.
            if (round % 4 == 3) relearn();
            model_.estimate(chains_.parent_of());
            nearness_.forget();
        }
        chains_.forget();
    }

    // The best assignment near the last estimate; then how often each choice is drawn, over options_.draws draws from
    // there.
    Draws decide() {
        climb(options_.max_sweeps);
        rank();
        climb(options_.max_sweeps);
        const auto certain = settle_quiet();
        for (int round = 0; round < kAttempts; ++round) attempt([&] { scatter(); });
        attempt([&] { set_out(); });
        for (int round = 0; round < kAttempts; ++round) attempt([&] { anneal(); });
        unsettle(certain);
        const auto best = chains_.parent_of();
        model_.temper(kToDoubt);
        find_live_pairs();
        Draws drawn(candidates_, chains_, live_);
        for (int round = 0; round < options_.draws && !stop_; ++round) {
            draw();
            drawn.count(chains_);
        }
        chains_.restore(best);
        return drawn;
    }

    Assignment weigh(const Draws& drawn) {
        nearness_.find(chains_, kReach, Nearness::Whom::open);
        auto out = probabilities_.weigh(drawn);
        if (lent_.once()) lent_.keep_to_the_end(problem_, out);
        return out;
    }

    // Share of the children whose parent is another than when the model was learned last.
    double changed() const {
        const auto& parent_of = chains_.parent_of();
        if (taught_by_.size() != parent_of.size()) return 1;
        std::size_t count = 0;
        for (std::size_t c = 0; c < parent_of.size(); ++c) count += parent_of[c] != taught_by_[c];
        return static_cast<double>(count) / static_cast<double>(parent_of.size());
    }

    void reestimate() {
        taught_by_ = chains_.parent_of();
        relearn();
        model_.estimate(chains_.parent_of());
        chains_.forget();
        nearness_.forget();
    }

    // What tells of single calls.
    void relearn() {
        content_.relearn(chains_.parent_of());
        bound_.estimate(chains_.parent_of(), 0);
        bound_.score();
        length_.estimate(chains_.parent_of(), true);
    }

    // Pairwise splits of near parents until nothing improves.
    void climb(int max_sweeps, float reach = kReach) {
        for (int sweep = 0; sweep < max_sweeps && !stop_; ++sweep) {
            nearness_.find(chains_, reach, learned_ ? Nearness::Whom::open : Nearness::Whom::all);
            bool improved = adopt_or_leave();
            for (const auto& [p, q] : nearness_.pairs()) {
                if (stop_) break;
                if (!chains_.ask(p, q, model_.temper().gaps)) continue;
                if (!split_.load(p, q, chains_.held(p), chains_.held(q))) continue;
                if (move_.best() < kGainWorthTaking) continue;
                improved = true;
                chains_.take(p, q, split_);
                chains_.ask(p, q, model_.temper().gaps);  // in its new, best state
            }
            if (!improved && !exchange_chains()) break;
        }
    }

    bool exchange_chains() {
        if (!chains_.ask_all(model_.temper().gaps)) return false;
        exchange_.load(chains_, nearness_.paired());
        if (exchange_.best() < kExchangeWorthTaking) return false;
        chains_.restore(exchange_.parent_of(chains_));
        return true;
    }

    // Exchanges between each parent and the orphans.
    bool adopt_or_leave() {
        bool improved = false;
        if (nearness_.near_nobody().empty()) return false;
        auto orphans = chains_.orphans();
        for (const auto p : nearness_.near_nobody()) {
            if (stop_) break;
            std::erase_if(orphans[p], [&](std::int32_t c) { return chains_.parent_of()[c] != kNone; });
            if (chains_.held(p).empty() && orphans[p].empty()) continue;
            if (!chains_.ask(p, orphans[p], model_.temper().gaps)) continue;
            if (!split_.load(p, kNobody, chains_.held(p), orphans[p])) continue;
            if (move_.best() < kGainWorthTaking) continue;
            improved = true;
            chains_.take(p, kNobody, split_);
        }
        return improved;
    }

    // Calls visit(p, q) with the split loaded, for every pair that could exchange children in the present state.
    template <class Visit>
    void for_pairs(Nearness::Whom whom, Visit&& visit) {
        nearness_.find(chains_, kReach, whom);
        for (const auto& [p, q] : nearness_.pairs()) {
            if (stop_) return;
            if (split_.load(p, q, chains_.held(p), chains_.held(q))) visit(p, q);
        }
    }

    // Pairs between which something is undecided. The others would be drawn the same way again and again.
    void find_live_pairs() {
        live_.clear();
        std::vector<double> to_q;
        for_pairs(Nearness::Whom::open, [&](std::int32_t p, std::int32_t q) {
            move_.marginals(to_q);
            for (std::size_t i = 0; i < to_q.size(); ++i) {
                const double away = chains_.parent_of()[split_.children()[i]] == p ? to_q[i] : 1 - to_q[i];
                if (away < kLive) continue;
                live_.emplace_back(p, q);
                break;
            }
        });
    }

    void draw() {
        for (const auto& [p, q] : live_) {
            if (stop_) return;
            if (!split_.load(p, q, chains_.held(p), chains_.held(q))) continue;
            if (move_.draw()) chains_.take(p, q, split_);
        }
    }

    Problem problem_;
    const Options options_;
    const std::atomic<bool>& stop_;
    bool learned_ = false;
    Candidates candidates_;
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
    Pieces pieces_;
    Chains chains_;
    Probabilities probabilities_;
    std::vector<std::int32_t>
        taught_by_;  // the assignment that the model was learned from, of a first stretch
    std::vector<Pair> live_;
};

Matcher::Matcher(std::int32_t parent_classes, std::int32_t child_classes, const Options& options,
                 const std::atomic<bool>& stop)
    : search_(std::make_unique<Search>(parent_classes, child_classes, options, stop)) {}

Matcher::~Matcher() = default;

Assignment Matcher::match(const Problem& stretch, const std::vector<float>& idle) {
    if (stretch.children.size() == 0) return {};
    return search_->run(stretch, idle);
}

}  // namespace tapscope::match
