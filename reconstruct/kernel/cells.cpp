// What the counts of a model say of each step: made when it is first asked for, and kept until they change.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "model.hpp"

namespace tapscope::match {
namespace {

// Absolute discount: what was seen once or twice may be a mistake, made again where it was judged by the first. What is
// taken away goes to the coarser estimate.
constexpr double kDiscount = 1.5;
// Steps to a class, up to which no discounted count of a finer kind says anything of it.
constexpr double kRare = 2;
constexpr double kGrammarBackoff2 = 1.0;  // pseudo-counts that (previous, next) lends to (a, previous, next)
constexpr double kGrammarBackoff1 = 0.5;  // pseudo-counts that (next) lends to (previous, next)
constexpr double kGapBackoff4 = 40.0;     // pseudo-gaps that any load lends to one load
constexpr double kGapBackoff3 = 8.0;      // pseudo-gaps that (previous, next) lends to (a, previous, next)
constexpr double kGapBackoff2 = 3.0;      // pseudo-gaps that all gaps lend to (previous, next)
constexpr std::size_t kDenseCells = 1 << 22;             // 16 MB
constexpr double kEndPrior[] = {0.85, 0.1, 0.04, 0.01};  // of the kinds of END, before anything is learned
constexpr double kParallelPrior = 0.01, kStayPrior = 0.7, kUsedPrior = 0.5, kPriorWeight = 2.0;
// Steps that say of one class of requests what all that do not fan out say together.
constexpr double kStepsAtLarge = 5000.0;
// Of the steps that stay on a connection, expected of those who give it back.
constexpr double kMostAgain = 0.98;
constexpr float kAnothers = -25.0f;  // nats for a connection that is another's

// Share of an event among n, given the share that a coarser estimate expects.
double discounted(double events, double n, double expected) {
    return (std::max(events - kDiscount, 0.0) + kPriorWeight * expected) / (n + kPriorWeight);
}

}  // namespace

double Model::leave_at_large() const noexcept {
    return discounted(all_.chance_to_stay - all_.stay, all_.chance_to_stay, 1 - kStayPrior);
}

double Lending::leave() const noexcept {
    return discounted(chance_to_stay - stay, chance_to_stay, 1 - kStayPrior);
}

double Lending::give_back(double leave) const noexcept {
    const double kept = stay > 0 ? std::min(again / stay, kMostAgain) : 0.0;
    return std::min(leave / (1 - kept), 1.0);
}

bool Model::keeps_connections() const noexcept {
    return learned_ && leave_at_large() < kSeldom &&
           std::all_of(
               lending_.begin(), lending_.end(),
               [](const Lending& lending) {
                   return lending.chance_to_stay <= 0 || lending.give_back(lending.leave()) < kSeldom;
               });
}

std::int32_t Model::server_of_steps(std::int32_t previous_cls, std::int32_t next_cls) const noexcept {
    const auto n = problem_.children.n_classes;
    if (previous_cls >= n || next_cls >= n) return kNone;
    const auto from = server_of_class_[static_cast<std::size_t>(previous_cls)];
    return from == server_of_class_[static_cast<std::size_t>(next_cls)] ? from : kNone;
}

Histogram Model::gap_counts(std::int32_t a, std::int32_t previous_cls, std::int32_t next_cls,
                            int load) const {
    Histogram counts{};
    if (const auto i2 = key2_.find(key(-1, previous_cls, next_cls, 0)); i2 != kNone) counts = gap2_[i2];
    add(counts, gap_all_, kGapBackoff2);
    if (const auto i3 = key3_.find(key(a, previous_cls, next_cls, 0)); i3 != kNone) {
        Histogram own = gap3_[i3];
        add(own, counts, kGapBackoff3);
        counts = own;
    }
    if (const auto i4 = key4_.find(key(a, previous_cls, next_cls, load)); i4 != kNone) {
        Histogram own = gap4_[i4];
        add(own, counts, kGapBackoff4);
        counts = own;
    }
    return counts;
}

// Steps without gaps of their own share the table of a coarser step.
std::int32_t Model::gap_table(std::int32_t a, std::int32_t previous_cls, std::int32_t next_cls,
                              int load) const {
    auto name = key(a, previous_cls, next_cls, load);
    if (key4_.find(name) == kNone) name = key(a, previous_cls, next_cls, 0);
    if (key4_.find(name) == kNone && key3_.find(name) == kNone) name = key(-1, previous_cls, next_cls, 0);
    const auto at = gap_tables_key_.insert(name);
    if (at == static_cast<std::int32_t>(gap_tables_.size())) {
        gap_tables_.push_back(problem_.gaps.log_density(gap_counts(a, previous_cls, next_cls, load)));
    }
    return at;
}

Model::Cell Model::make_cell(std::int32_t a, std::int32_t previous_cls, std::int32_t next_cls,
                             int load) const {
    Cell out;
    const auto n = static_cast<std::size_t>(n_states());
    if (!learned_) {
        double per_parent = 1.0;  // expected steps of a parent, for P(next)
        for (std::int32_t k = 0; k < problem_.children.n_classes; ++k) per_parent += affinity_(a, k);
        out.log_p = static_cast<float>(std::log(
            (ends(next_cls) ? kEndPrior[next_cls - problem_.children.n_classes] : affinity_(a, next_cls)) /
                per_parent +
            1e-9));
        out.log_serial = static_cast<float>(std::log(1 - kParallelPrior));
        out.log_parallel = out.log_piped = static_cast<float>(std::log(kParallelPrior));
        out.log_stay = static_cast<float>(std::log(kStayPrior));
        out.log_leave = static_cast<float>(std::log(1 - kStayPrior));
        out.log_used = lent_once_ ? kAnothers : static_cast<float>(std::log(kUsedPrior));
        out.log_fresh = static_cast<float>(std::log(1 - kUsedPrior));
        return out;
    }
    const auto i3 = key3_.find(key(a, previous_cls, next_cls, 0)),
               i2 = key2_.find(key(-1, previous_cls, next_cls, 0));
    const Counts none{};
    const Counts& c3 = i3 == kNone ? none : count3_[i3];
    const Counts& c2 = i2 == kNone ? none : count2_[i2];

    const auto a_from = static_cast<std::size_t>(a) * n + previous_cls;
    out.log_p = static_cast<float>(std::log(grammar(a_from, previous_cls, next_cls, c3, c2, 0)));

    const auto share = [](double x) { return std::clamp(x, 1e-6, 0.5 - 1e-6); };
    if (fan_out_.fans_out(a)) {
        const double par1 = discounted(all_.parallel, all_.n, kParallelPrior);
        const double parallel = std::clamp(discounted(c2.parallel, c2.n, par1), 1e-6, 1 - 1e-6);
        out.log_parallel = out.log_piped = static_cast<float>(std::log(parallel));
        out.log_serial = static_cast<float>(std::log(1 - parallel));
    } else {
        const auto of = static_cast<std::size_t>(a);
        const double beside =
            share((std::max(beside_[of] - kDiscount, 0.0) + kStepsAtLarge * beside_at_large_) /
                  (follow_[of] + kStepsAtLarge));
        const double piped1 = discounted(all_.piped, all_.n, kParallelPrior);
        const double piped = share(discounted(c2.piped, c2.n, piped1));
        out.log_parallel = static_cast<float>(std::log(beside));
        out.log_piped = static_cast<float>(std::log(piped));
        out.log_serial = static_cast<float>(std::log(1 - beside - piped));
    }
    if (ends(next_cls)) out.log_serial = 0.0f;

    double gives_back = 1;  // a call to another server cannot stay on the connection
    if (const auto server = server_of_steps(previous_cls, next_cls); server != kNone) {
        const auto& lending = lending_[static_cast<std::size_t>(server)];
        const double leave2 = discounted(c2.chance_to_stay - c2.stay, c2.chance_to_stay, lending.leave());
        const double leave3 = discounted(c3.chance_to_stay - c3.stay, c3.chance_to_stay, leave2);
        gives_back = lending.give_back(leave3);
    }
    const double stay = std::clamp(1 - gives_back, 1e-5, 1 - 1e-5);
    out.log_stay = static_cast<float>(std::log(stay));
    out.log_leave = static_cast<float>(std::log(1 - stay));

    // Where every request opens a connection of its own, one that was used before is another's.
    const double used1 = discounted(all_.chance_of_fresh - all_.fresh, all_.chance_of_fresh, kUsedPrior);
    const double used2 = discounted(c2.chance_of_fresh - c2.fresh, c2.chance_of_fresh, used1);
    const double used = std::clamp(used2, 1e-4, 1 - 1e-4);
    out.log_used = lent_once_ ? kAnothers : static_cast<float>(std::log(used));
    out.log_fresh = static_cast<float>(std::log(1 - used));

    out.gaps = gap_table(a, previous_cls, next_cls, load);
    if (previous_cls < problem_.children.n_classes && !ends(next_cls)) {
        out.carried = carried_.ratios(previous_cls, next_cls);
    }
    // Where calls follow one another, the few that overlap are mistakes, which must not vouch for each other.
    if (ends(next_cls) || !fan_out_.fans_out(a)) return out;
    Histogram counts{};
    if (const auto j2 = parallel_key2_.find(key(-1, previous_cls, next_cls, 0)); j2 != kNone) {
        counts = parallel2_[j2];
    }
    add(counts, parallel_all_, kGapBackoff2);
    if (const auto j3 = parallel_key3_.find(key(a, previous_cls, next_cls, 0)); j3 != kNone) {
        Histogram own = parallel3_[j3];
        add(own, counts, kGapBackoff3);
        counts = own;
    }
    out.parallel_gaps = static_cast<std::int32_t>(parallel_tables_.size());
    parallel_tables_.push_back(problem_.gaps.log_density(counts));
    return out;
}

// P(to) by all steps but `less` of its own.
double Model::to_anything(std::int32_t to, double less) const noexcept {
    return (to1_[to] - less + 0.1) / (all_.n - less + 0.1 * static_cast<double>(n_states()));
}

// P(to | from) by all steps but `less` of its own.
double Model::grammar(std::size_t a_from, std::int32_t from, std::int32_t to, const Counts& c3,
                      const Counts& c2, double less) const noexcept {
    const auto kinds = [&](double all, double of_this) { return all - (less > 0 && of_this <= less); };
    const double p1 = to_anything(to, less);
    const double lent2 = kDiscount * kinds(kinds2_[from], c2.n) + kGrammarBackoff1;
    const double p2 =
        (std::max(c2.n - less - kDiscount, 0.0) + lent2 * p1) / (from2_[from] - less + kGrammarBackoff1);
    const double lent3 = kDiscount * kinds(kinds3_[a_from], c3.n) + kGrammarBackoff2;
    return (std::max(c3.n - less - kDiscount, 0.0) + lent3 * p2) / (from3_[a_from] - less + kGrammarBackoff2);
}

void Model::forget_taught() {
    taught_.assign(problem_.children.size(), Own{});
    taught_end_.assign(problem_.children.size(), Own{});
    taught_empty_.assign(problem_.parents.size(), Own{});
}

// What each step that was counted says of itself by its own counts: what all say of it, less what the others say.
void Model::find_taught(const std::vector<Taught>& taught) {
    forget_taught();
    const auto total = [](const Histogram& gaps) { return std::accumulate(gaps.begin(), gaps.end(), 0.0); };
    const auto totals = [&](const std::vector<Histogram>& gaps) {
        std::vector<double> out(gaps.size());
        std::transform(gaps.begin(), gaps.end(), out.begin(), total);
        return out;
    };
    const auto n4 = totals(gap4_), n3 = totals(gap3_), n2 = totals(gap2_);
    const double n1 = total(gap_all_);
    const auto states = static_cast<std::size_t>(n_states());
    double log_densities = 0;
    for (const auto& step : taught) {
        const auto [i4, i3, i2, bin] = std::tie(step.i4, step.i3, step.i2, step.bin);
        const auto a_from = static_cast<std::size_t>(problem_.parents.cls[step.parent]) * states + step.from;
        const auto says = [&](double less) {
            return grammar(a_from, step.from, step.to, count3_[i3], count2_[i2], less);
        };
        // As gap_counts() and GapScale::log_density() have it, for one bin.
        const auto lasts = [&](double less) {
            const auto share = [&](const Histogram& gaps, double n, double lent, double coarser) {
                const double here = std::max(problem_.gaps.smoothed(gaps, bin) - kOwnShare * less, 0.0);
                return (here + lent * coarser) / std::max(n - less + lent, 1e-9);
            };
            const double q2 = share(gap2_[i2], n2[i2], kGapBackoff2, share(gap_all_, n1, 0, 0));
            return evened(share(gap4_[i4], n4[i4], kGapBackoff4, share(gap3_[i3], n3[i3], kGapBackoff3, q2)));
        };
        const double others = lasts(step.work);
        log_densities += std::log(others / problem_.gaps.width_ns(bin));
        Own own{step.parent, step.previous, static_cast<float>(std::log(says(0) / says(1))),
                static_cast<float>(std::log(lasts(0) / others))};
        if (step.next != kEnd) {
            if (to1_[step.to] <= kRare) {
                own.rare = static_cast<float>(std::log(to_anything(step.to, 0) / to_anything(step.to, 1)));
            }
            taught_[step.next] = own;
        } else if (step.previous != kStart) {
            taught_end_[step.previous] = own;
        } else {
            taught_empty_[step.parent] = own;
        }
    }
    if (!taught.empty()) usual_gap_ = static_cast<float>(log_densities / static_cast<double>(taught.size()));
}

const Model::Cell& Model::new_cell(std::int32_t a, std::int32_t previous_cls, std::int32_t next_cls,
                                   int load) const {
    const auto make = [&]() -> const Cell& {
        auto& made = cells_.emplace_back(make_cell(a, previous_cls, next_cls, load));
        made.serial_stays = made.log_p + made.log_serial + made.log_stay;
        made.serial_leaves = made.log_p + made.log_serial + made.log_leave;
        return made;
    };
    if (dense_.empty()) {
        const auto at = cells_key_.insert(key(a, previous_cls, next_cls, load));
        return at == static_cast<std::int32_t>(cells_.size()) ? make() : cells_[at];
    }
    const auto n = static_cast<std::size_t>(n_states());
    auto& block = dense_[(static_cast<std::size_t>(a) * n + next_cls) * n + previous_cls];
    if (block == kNone) {
        block = static_cast<std::int32_t>(blocks_.size());
        blocks_.emplace_back().fill(kNone);
    }
    blocks_[static_cast<std::size_t>(block)][static_cast<std::size_t>(load)] =
        static_cast<std::int32_t>(cells_.size());
    return make();
}

void Model::forget_cells() {
    const auto n = static_cast<std::size_t>(n_states());
    const auto size = static_cast<std::size_t>(problem_.parents.n_classes) * n * n;
    blocks_.clear();
    dense_.assign(size <= kDenseCells ? size : 0, kNone);
    cells_key_.clear(2048);
    cells_.clear();
    gap_tables_key_.clear(256);
    gap_tables_.clear();
    parallel_tables_.clear();
}

// How often do requests make calls side by side that do so by exception?
void Model::find_beside() {
    double follow = 0, beside = 0;
    for (std::int32_t a = 0; a < problem_.parents.n_classes; ++a) {
        if (fan_out_.fans_out(a)) continue;
        follow += follow_[static_cast<std::size_t>(a)];
        beside += beside_[static_cast<std::size_t>(a)];
    }
    beside_at_large_ = discounted(beside, follow, kParallelPrior);
}

// How long steps out of each state take, whatever comes next.
void Model::find_survival() {
    const auto n = static_cast<std::size_t>(n_states());
    survival_.assign(n, Histogram{});
    for (std::size_t from = 0; from < n; ++from) {
        Histogram leave = leave_[from];
        add(leave, gap_all_, kGapBackoff2);
        double total = 1e-9, beyond = 0;
        for (const float x : leave) total += x;
        for (int b = kGapBins - 1; b >= 0; --b) {
            beyond += leave[b];
            survival_[from][b] = static_cast<float>(std::log(std::max(beyond / total, 1e-3)));
        }
    }
}

}  // namespace tapscope::match
