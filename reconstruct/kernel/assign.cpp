#include <algorithm>
#include <cmath>
#include <utility>

#include "search.hpp"

namespace tapscope::match {
namespace {

// Of the first round of learning: to its poor model everybody is near, and most gains are between the nearest.
constexpr float kFirstReach = 3.0f;
constexpr int kBurnIn = 4;  // draws that are not counted, where the model is known already
// Draws that do not hear the order of first calls; nats a choice that it says there, from which on it counts wholly.
constexpr int kUnheard = 2;
constexpr double kOrdered = 0.3;
// Attempts to queue requests up, by leases, and by rings of exchanges, at most.
constexpr int kQueues = 6, kLeases = 6, kRings = 6;
constexpr double kRestless = 0.01;  // share of children that moved since the model was taught: too early

Problem without_rows(std::int32_t parent_classes, std::int32_t child_classes) {
    Problem out;
    out.parents.n_classes = parent_classes;
    out.children.n_classes = child_classes;
    return out;
}

}  // namespace

Matcher::Search::Search(std::int32_t parent_classes, std::int32_t child_classes, const Options& options,
                        const Stop& stop, Course course)
    : problem_(without_rows(parent_classes, child_classes)),
      options_(options),
      stop_(stop),
      course_(course),
      content_(problem_, candidates_),
      bound_(problem_, candidates_),
      model_(problem_, candidates_, {}, {}),
      length_(problem_),
      split_(problem_, candidates_, model_),
      move_(split_, length_, random_),
      exchange_(problem_, candidates_, model_, length_),
      nearness_(problem_, candidates_, model_, length_, stop_),
      forward_(problem_, candidates_, model_, lent_, nearness_, stop_),
      guess_(problem_, candidates_),
      pieces_(problem_, candidates_, model_, length_),
      ejection_(problem_, candidates_, model_, length_, nearness_, split_, stop_),
      leases_(problem_, candidates_, model_, nearness_, stop_),
      cut_off_(problem_, candidates_, model_, length_, split_, stop_),
      shift_(problem_, candidates_, model_, length_, stop_),
      chains_(candidates_),
      probabilities_(problem_, candidates_, chains_, nearness_, split_, move_, exchange_, options_.draws,
                     stop_) {}

double Matcher::Search::bind(const Problem& stretch, const std::vector<float>& idle) {
    problem_ = stretch;
    const auto settled = std::min(problem_.settled, problem_.children.size());
    const double keep =
        learned_ ? std::exp(-static_cast<double>(settled - problem_.decided()) / options_.memory) : 0.0;
    forgotten_.count(problem_, keep);
    find_candidates(problem_, candidates_, forgotten_.classes());
    lent_.find(problem_);
    whole_connections_ = lent_.once() && !mostly_silent();
    to_decide_ = whole_connections_ ? kToDecideWhole : kToDecide;
    model_.temper(to_decide_);
    model_.decide();
    model_.lend_to_nobody(false);
    if (lent_.once()) {
        lent_.keep_whole(problem_, candidates_);
    } else {
        workers_.separate(problem_, candidates_);
    }
    chains_.resize(problem_.parents.size(), problem_.children.size());
    nearness_.forget();
    content_.bind(keep);
    bound_.bind();
    model_.bind(idle, lent_.once());
    length_.bind();
    return keep;
}

void Matcher::Search::begin(const Problem& stretch, const std::vector<float>& idle) {
    bind(stretch, idle);
    expected_ = content_.learn(options_.content_rounds);
    if (course_ == Course::sharp) {
        sharpen(expected_, problem_, candidates_, stop_);
        model_.expect_waits();
    }
    model_.expect(expected_);
    learn();
}

Assignment Matcher::Search::settle() {
    move_on();
    soften();
    learned_ = true;
    improve(true);
    restless_ = changed() > kRestless;
    says_ = score();
    return weigh(draws());
}

Assignment Matcher::Search::follow(const Problem& stretch, const std::vector<float>& idle) {
    const double keep = bind(stretch, idle);
    content_.apply();
    bound_.score();
    place();
    // Where many requests wait, a quarter of the links are wrong in the place to set out from. A model that is taught by it
    // learns that, too, and sets out from a worse one in the next stretch.
    if (restless_) improve(false);
    taught_by_ = chains_.parent_of();
    content_.relearn(chains_.parent_of(), keep);
    bound_.estimate(chains_.parent_of(), keep);
    model_.estimate(chains_.parent_of(), keep);
    length_.estimate(chains_.parent_of(), false);
    content_.score_all();
    bound_.score();
    chains_.forget();
    nearness_.forget();
    improve(false);
    restless_ = changed() > kRestless;
    return weigh(draws());
}

void Matcher::Search::learn() {
    for (int round = 0; round < options_.learn_rounds; ++round) {
        if (round < options_.forward_rounds) {
            if (round > 0) {
                content_.apply();
                bound_.score();
            }
            nearness_.forget();
            forward_.run(chains_);
        }
        climb(2, round == 0 ? kFirstReach : kReachWhileLearning);
        if (changed() <= kConverged) break;
        if (round % 2 == 0) model_.choose_clock(chains_.parent_of());
        reestimate();
    }
    climb(options_.max_sweeps);
}

// Other places than the one where the rounds of learning have ended.
void Matcher::Search::move_on() {
    feed();
    claim();
    start_elsewhere();
    attempt(&Search::set_out);
    const double worth_another = kWorthAnother * static_cast<double>(problem_.children.size());
    const auto repeat = [&](Way leave, int most) {
        int gained = 0;
        while (gained < most) {
            const double gain = attempt(leave);
            learn_again();
            if (gain <= worth_another) break;
            ++gained;
        }
        return gained;
    };
    repeat(&Search::queue_up, kQueues);
    const bool in_leases = lent_.once() ? whole_connections_ : model_.keeps_connections();
    by_lease_ = in_leases && repeat(&Search::lease, kLeases) > 0;
    scatter_on();
    repeat(&Search::eject, kRings);
}

void Matcher::Search::place() {
    set_out();
    // A request that has no call yet has no place among those that wait, and moves all behind it: so first calls are ranked
    // once more when all have theirs.
    for (int again = 0; again < 2; ++again) {
        rank();
        climb(options_.max_sweeps);
    }
    find_live_pairs();
    for (int round = 0; round < kBurnIn; ++round) draw();
}

void Matcher::Search::soften() {
    find_live_pairs();
    for (int round = 0; round < options_.soften_rounds; ++round) {
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

// To the best assignment near the last estimate. Where it is not that of the `first` stretch, which was learned from again
// and again, what was ranked first may be far from what is found.
void Matcher::Search::improve(bool first) {
    model_.lend_to_nobody(false);
    climb(options_.max_sweeps);
    rank();
    climb(options_.max_sweeps);
    // A connection that serves one request is a chain that nobody has a part of: what looks quiet may be one place off.
    if (whole_connections_) attempt(&Search::lease);
    const auto certain = settle_quiet();
    double gain = 0;
    const auto moved = [&] { return gain > kWorthAnother * static_cast<double>(problem_.children.size()); };
    const auto rank_if_moved = [&] {
        if (first || !moved()) return;
        rank();
        climb(options_.max_sweeps);
    };
    // Where chains climb to nothing better from two other places, they do so from any.
    gain = attempt(&Search::scatter);
    if (gain > 0) gain += attempt(&Search::scatter);
    rank_if_moved();
    gain += attempt(&Search::set_out);
    if (gain > 0 && attempt(&Search::anneal) > 0) attempt(&Search::anneal);
    rank_if_moved();
    if (by_lease_) attempt(&Search::lease);
    attempt(&Search::eject);
    unsettle(certain);
    if (!first && moved()) nearness_.forget_starts();  // also of those who took no part
    if (cut_off_.run(chains_)) climb(options_.max_sweeps);
    if (shift_.run(chains_)) climb(options_.max_sweeps);
    // Calls that are left to nobody for a while make room for others. So it comes last that they take a connection, too.
    model_.lend_to_nobody(true);
    const auto& parent_of = chains_.parent_of();
    if (std::find(parent_of.begin(), parent_of.end(), kNone) == parent_of.end()) return;
    chains_.forget();
    climb(options_.max_sweeps);
    if (shift_.run(chains_)) climb(options_.max_sweeps);
}

// What the order of first calls says of the best assignment, it says of itself: that was found by it. An order that is
// there shows as well in draws that do not hear it; one that was found in what has none hardly does. So of how sure the
// assignment is, it says by the share that is left in these; by more, where what is left is much.
float Matcher::Search::order_unheard(const std::vector<std::int32_t>& best) {
    const double says = model_.order_says(best);
    if (says <= 0) return 1.0f;
    Temper without = to_decide_;
    without.order = 0;
    model_.temper(without);
    double unheard = 0;
    for (int round = 0; round < kUnheard; ++round) {
        draw();
        unheard += model_.order_says(chains_.parent_of()) / kUnheard;
    }
    chains_.restore(best);
    const double share = std::clamp(unheard / says, 0.0, 1.0);
    return static_cast<float>(share + (1 - share) * std::clamp(unheard / kOrdered, 0.0, 1.0));
}

// How often each choice is drawn, over options_.draws draws from the best assignment.
Draws Matcher::Search::draws() {
    const auto best = chains_.parent_of();
    model_.temper(kToDoubt);
    model_.doubt(best);
    find_live_pairs();
    Temper temper = kToDoubt;
    temper.order = order_unheard(best);
    model_.temper(temper);
    Draws drawn(candidates_, chains_, live_);
    for (int round = 0; round < options_.draws; ++round) {
        draw();
        drawn.count(chains_);
    }
    chains_.restore(best);
    return drawn;
}

Assignment Matcher::Search::weigh(const Draws& drawn) {
    nearness_.find(chains_, kReach, Nearness::Whom::open);
    auto out = probabilities_.weigh(drawn);
    if (lent_.once()) lent_.keep_to_the_end(problem_, out);
    trust(out);
    out.not_remembered = content_.not_remembered();
    out.no_longer_remembered = content_.no_longer_remembered();
    return out;
}

// Share of the children whose parent is another than when the model was learned last; or than in that assignment.
double Matcher::Search::changed() const { return moved_since(taught_by_); }

double Matcher::Search::moved_since(const std::vector<std::int32_t>& before) const {
    const auto& parent_of = chains_.parent_of();
    if (before.size() != parent_of.size()) return 1;
    std::size_t count = 0;
    for (std::size_t c = 0; c < parent_of.size(); ++c) count += parent_of[c] != before[c];
    return static_cast<double>(count) / static_cast<double>(parent_of.size());
}

// From another assignment than the last one, or by another clock.
void Matcher::Search::learn_again() {
    if (model_.choose_clock(chains_.parent_of()) || changed() > 0) reestimate();
}

void Matcher::Search::reestimate() {
    taught_by_ = chains_.parent_of();
    relearn();
    model_.estimate(chains_.parent_of());
    chains_.forget();
    nearness_.forget();
}

// What tells of single calls.
void Matcher::Search::relearn() {
    content_.relearn(chains_.parent_of());
    bound_.estimate(chains_.parent_of(), 0);
    bound_.score();
    length_.estimate(chains_.parent_of(), true);
}

Matcher::Matcher(std::int32_t parent_classes, std::int32_t child_classes, const Options& options,
                 const Stop& stop)
    : parent_classes_(parent_classes), child_classes_(child_classes), options_(options), stop_(stop) {}

Matcher::~Matcher() = default;

std::unique_ptr<Matcher::Search> Matcher::begun(Course course, const Problem& stretch,
                                                const std::vector<float>& idle) const {
    auto out = std::make_unique<Search>(parent_classes_, child_classes_, options_, stop_, course);
    out->begin(stretch, idle);
    return out;
}

// The first stretch as the search has it that goes on: as it came, or as workers took its requests.
Problem Matcher::begin(const Problem& as_it_came, const std::vector<float>& idle) {
    search_ = begun(Course::plain, as_it_came, idle);
    auto queue = std::make_unique<WorkerQueue>(as_it_came);
    const auto served = queue->serve(as_it_came);
    if (!queue->plausible()) return as_it_came;
    auto other = begun(Course::plain, served, idle);
    const double ahead = other->score() - search_->score();
    if (ahead <= kWorthMoving * static_cast<double>(as_it_came.children.size())) return as_it_came;
    search_ = std::move(other);
    queue_ = std::move(queue);
    return served;
}

// A later stretch. There may be more workers by now.
Problem Matcher::as_taken(const Problem& as_it_came) {
    if (!queue_) return as_it_came;
    const auto served = queue_->serve(as_it_came);
    return queue_->in_step() ? served : as_it_came;
}

Assignment Matcher::match(const Problem& as_it_came, const std::vector<float>& idle) {
    if (as_it_came.children.size() == 0) return {};
    if (search_) return search_->follow(as_taken(as_it_came), idle);
    const auto stretch = begin(as_it_came, idle);
    std::unique_ptr<Search> other;
    if (search_->mostly_starved()) {
        other = begun(Course::sharp, stretch, idle);
        search_->expect_calls();
        other->expect_calls();
        if (other->score() > search_->score()) std::swap(search_, other);
    }
    auto out = search_->settle();
    if (!search_->in_doubt(out)) return out;
    if (!other) other = begun(Course::sharp, stretch, idle);
    auto second = other->settle();
    const double apart = std::abs(search_->says() - other->says());
    const bool second_leads = other->says() > search_->says();
    if (second_leads) {
        std::swap(search_, other);
        std::swap(out, second);
    }
    if (search_->worth_hearing(apart, second_leads, out)) search_->hear(second, out);
    return out;
}

}  // namespace tapscope::match
