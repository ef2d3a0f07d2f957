// Other places to climb from, where no move gains and there may still be better assignments.
#include <algorithm>

#include "search.hpp"

namespace tapscope::match {
namespace {

// What is left of all evidence where chains are scattered for another attempt: enough to keep what is plain.
constexpr float kScatter = 0.15f;
// Draws that cool down, because a climb from the first alone goes to the nearest summit.
constexpr float kAnneal[] = {kScatter, 0.3f, 0.6f};
constexpr int kSupposedFor = 4;  // models
// Rounds of queueing requests up; and the share of the calls that moved in one, up to which the next hardly moves others.
constexpr int kQueueRounds = 8;
constexpr double kQueued = 0.002;
// Nats for each call, by what the model says that is learned from a scattering: of the first one, to go on at all, and of
// another; how many there are at most, and in vain in a row.
constexpr double kMuchScattered = 0.0035, kWorthScattering = 0.001;
constexpr int kScatters = 24, kInVain = 2;
// Climbs, and models of the assignment that one has found, at most; and nats for each call, of another model of that.
constexpr int kRefits = 24;
constexpr double kWorthRefitting = 1e-4;
constexpr float kInOrder = 2.0f;  // nats for each octave of places that a request is before or behind its own

}  // namespace

// Another attempt, from where `leave` leaves the chains. Its better pieces are taken. Returns the nats that they gain.
double Matcher::Search::attempt(Way leave) {
    const auto known = chains_.parent_of();
    (this->*leave)();
    climb(options_.max_sweeps);
    chains_.restore(pieces_.best(known, chains_.parent_of()));
    const double gain = pieces_.gain();
    if (gain > 0) climb(options_.max_sweeps);
    return gain;
}

// From here on, so many nats are against something, by class.
void Matcher::Search::suppose(Supposition against, const std::vector<float>& nats) {
    (model_.*against)(nats);
    chains_.forget();
    nearness_.forget();
}

// The same for some models, and `otherwise` again from there on. Meanwhile all may have become as it likes; and it is
// given up where the last model says less of its own assignment than the first.
void Matcher::Search::try_supposing(Supposition against, const std::vector<float>& nats,
                                    const std::vector<float>& otherwise) {
    if (std::all_of(nats.begin(), nats.end(), [](float each) { return each == 0; })) return;
    const auto known = chains_.parent_of();
    const double before = score();
    suppose(against, nats);
    for (int round = 0; round < kSupposedFor; ++round) {
        climb(2);
        reestimate();
    }
    suppose(against, otherwise);
    for (int round = 0; round < 2; ++round) {
        climb(options_.max_sweeps);
        model_.choose_clock(chains_.parent_of());
        reestimate();
    }
    if (score() > before) return;
    chains_.restore(known);
    reestimate();
}

// A forward pass by a model that is good already. Sharp gaps would hold it where it has left the chains, as it knew
// only the past: so at first they count for little.
void Matcher::Search::set_out() {
    forward_.run(chains_);
    model_.temper(kToDoubt);
    climb(2);
    model_.temper(to_decide_);
}

// Where many requests wait before their first calls, the chains of all may be off, each with calls of requests before
// and behind it, and none of them near another: every one by itself would lose far more than it can gain. So for a while
// those who came first are supposed to go first, which leaves few ways to be off. If they do not, the pieces that come
// of it score worse.
void Matcher::Search::queue_up() {
    forward_.run(chains_, Forward::Starts::in_order);
    for (int round = 0; round < kQueueRounds; ++round) {
        const auto before = chains_.parent_of();
        suppose_order(kInOrder);
        model_.temper(kToDoubt);
        climb(2);
        model_.temper(to_decide_);
        climb(4);
        if (moved_since(before) <= kQueued) break;
    }
    suppose_order(0.0f);
}

void Matcher::Search::suppose_order(float nats) {
    model_.suppose_order(nats);
    model_.rank(chains_.parent_of());
    chains_.forget();
    nearness_.forget_starts();
}

// Where no pair of parents can gain, four may: what each of them lacks is with the next one. So the chains are drawn
// again with most of the evidence set aside, and climb from there.
void Matcher::Search::scatter() { draw_all(kScatter); }

void Matcher::Search::anneal() {
    for (const float evidence : kAnneal) draw_all(evidence);
}

// Who has waited for a connection is told by the last model, and tells the next one: of the same assignment each of them
// says a little more than the one before, which is no sign that scattering finds anything.
void Matcher::Search::refit() {
    const auto calls = static_cast<double>(problem_.children.size());
    for (int round = 0; round < kRefits; ++round) {
        const double before = score();
        double says = before, gain = kWorthRefitting * calls;
        for (int model = 0; model < kRefits && gain >= kWorthRefitting * calls; ++model) {
            stop_.poll();
            model_.estimate(chains_.parent_of());
            gain = score() - says;
            says += gain;
        }
        chains_.forget();
        nearness_.forget();
        if (says - before <= kWorthScattering * calls) return;
        climb(options_.max_sweeps);
        learn_again();
    }
}

// Scattered, climbed and learned from, again and again: what one model finds is little, and the next one finds more by
// it. So it is the models that have to say more of their own assignments, not the pieces: these gain always where
// requests are in doubt, because another model likes another half of them. And where the first one finds little, there
// is nothing behind it but what a model that was fitted for longer says for that alone, and two searches would agree on.
void Matcher::Search::scatter_on() {
    const auto calls = static_cast<double>(problem_.children.size());
    refit();
    double highest = score();
    const auto gain = [&] {
        attempt(&Search::scatter);
        learn_again();
        return (score() - highest) / calls;
    };
    const double first = gain();
    if (first < kMuchScattered) return;
    highest += first * calls;
    auto best = chains_.parent_of();
    for (int round = 1, in_vain = 0; round < kScatters && in_vain < kInVain; ++round) {
        const double more = gain();
        in_vain = more > kWorthScattering ? 0 : in_vain + 1;
        if (more <= 0) continue;
        highest += more * calls;
        best = chains_.parent_of();
    }
    if (chains_.parent_of() == best) return;
    chains_.restore(best);
    learn_again();
}

// Rings of exchanges, each of which may begin with a loss.
void Matcher::Search::eject() { ejection_.run(chains_, kReach); }

// All leases of all connections at once: where those are held.
void Matcher::Search::lease() { leases_.run(chains_, kWorthAnother); }

// Draws the split of every pair once, by this part of all evidence.
void Matcher::Search::draw_all(float evidence) {
    split_.weigh_evidence(evidence);
    move_.weigh(evidence);
    for_pairs(Nearness::Whom::all, [&](std::int32_t p, std::int32_t q) {
        if (move_.draw()) chains_.take(p, q, split_);
    });
    split_.weigh_evidence(1.0f);
    move_.weigh(1.0f);
}

// A chain that has nothing to exchange with any other, and that content holds where it is, takes no part in attempts:
// all its calls are certain meanwhile. Without such a call three chains may be one place off, and look quiet.
// Returns the calls that are certain by content.
std::vector<std::int32_t> Matcher::Search::settle_quiet() {
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

void Matcher::Search::unsettle(const std::vector<std::int32_t>& certain) {
    candidates_.certain_parent = certain;
    nearness_.widen();
}

// Who waits and what lies idle is told anew, by the assignment as it is now.
void Matcher::Search::rank() {
    const auto ranked = model_.rank(chains_.parent_of());
    if (ranked == Model::Ranked::none) return;
    chains_.forget();
    if (ranked == Model::Ranked::starts_and_ends) nearness_.forget_starts();
}

}  // namespace tapscope::match
