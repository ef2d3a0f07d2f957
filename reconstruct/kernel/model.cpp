#include "model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tapscope::match {
namespace {

// Absolute discount: an event that was seen once may be the very mistake that is being judged, and must not vouch for
// itself. What is taken away goes to the coarser estimate.
constexpr double kDiscount = 0.9;
constexpr double kGrammarBackoff2 = 1.0;  // pseudo-counts that (previous, next) lends to (a, previous, next)
constexpr double kGrammarBackoff1 = 0.5;  // pseudo-counts that (next) lends to (previous, next)
constexpr double kGapBackoff4 = 40.0;     // pseudo-gaps that any load lends to one load
constexpr double kGapBackoff3 = 8.0;      // pseudo-gaps that (previous, next) lends to (a, previous, next)
constexpr double kGapBackoff2 = 3.0;      // pseudo-gaps that all gaps lend to (previous, next)
constexpr std::size_t kDenseCells = 1 << 22;       // 16 MB
constexpr double kEndPrior[] = {0.85, 0.1, 0.05};  // of the three kinds of END, before anything is learned
constexpr double kParallelPrior = 0.01, kStayPrior = 0.7, kUsedPrior = 0.5, kPriorWeight = 2.0;
constexpr float kAnothers = -25.0f;  // nats for a connection that is another's

// Share of an event among n, given the share that a coarser estimate expects.
double discounted(double events, double n, double expected) {
    return (std::max(events - kDiscount, 0.0) + kPriorWeight * expected) / (n + kPriorWeight);
}

}  // namespace

Model::Model(const Problem& problem, const Candidates& candidates, const Affinity& affinity,
             const std::vector<float>& idle)
    : problem_(problem),
      candidates_(candidates),
      affinity_(affinity),
      fan_out_(problem),
      pool_wait_(problem, order_) {
    const auto n = static_cast<std::size_t>(n_states());
    from3_.assign(static_cast<std::size_t>(problem.parents.n_classes) * n, 0.0);
    from2_.assign(n, 0.0);
    to1_.assign(n, 0.0);
    // Before anything is learned: a gap is shorter rather than longer, with no scale (density ~ 1/gap).
    for (int b = 0; b < kGapBins; ++b) {
        first_guess_[b] = static_cast<float>(std::log(1.0 / kGapBins / gap_bin_width_ns(b)));
    }
    orphan_.assign(static_cast<std::size_t>(problem.children.n_classes), -40.0f);
    survival_.assign(n, Histogram{});
    fade(0);
    forget_cells();
    bind(idle, false);
}

void Model::bind(const std::vector<float>& idle, bool lent_once) {
    const auto& children = problem_.children;
    bind_rows(idle);
    order_.forget_ranks();
    lent_once_ = lent_once;
    std::vector<std::int32_t> latest;
    for (std::size_t c = 0; c < children.size(); ++c) {
        if (!children.before_on_conn.empty()) {
            child_[c].before_on_conn = children.before_on_conn[c];
            continue;
        }
        const auto conn = static_cast<std::size_t>(children.conn[c]);
        if (conn >= latest.size()) latest.resize(conn + 1, kNone);
        child_[c].before_on_conn = latest[conn];
        latest[conn] = static_cast<std::int32_t>(c);
    }
    bind_waits();
}

void Model::bind_rows(const std::vector<float>& idle) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    auto arrive = std::vector<Time>(parents.arrive.begin(), parents.arrive.end());
    auto depart = std::vector<Time>(parents.depart.begin(), parents.depart.end());
    std::sort(arrive.begin(), arrive.end());
    std::sort(depart.begin(), depart.end());
    auto octave = [&](Time at) {
        const auto in = std::upper_bound(arrive.begin(), arrive.end(), at) - arrive.begin();
        const auto out = std::upper_bound(depart.begin(), depart.end(), at) - depart.begin();
        return static_cast<std::uint8_t>(std::min(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(
                                                      std::max<std::ptrdiff_t>(in - out, 1)))),
                                                  kLoads - 1));
    };
    parent_.clear();
    for (std::size_t p = 0; p < parents.size(); ++p) {
        parent_.push_back({parents.arrive[p], parents.request_end[p], parents.response_begin[p],
                           parents.cls[p], octave(parents.arrive[p]), parents.answered[p] != 0});
    }
    child_.clear();
    for (std::size_t c = 0; c < idle.size(); ++c) {
        child_.push_back({children.begin[c], children.end[c], children.cls[c], kNone, std::log(idle[c]),
                          octave(children.end[c])});
    }
}

// `load` 0: any load; `a` -1: any parent class.
std::uint64_t Model::key(std::int32_t a, std::int32_t previous_cls, std::int32_t next_cls,
                         int load) const noexcept {
    const auto n = static_cast<std::uint64_t>(n_states());
    const auto step = (static_cast<std::uint64_t>(a + 1) * n + static_cast<std::uint64_t>(previous_cls)) * n +
                      static_cast<std::uint64_t>(next_cls);
    return (step << 6 | static_cast<std::uint64_t>(load)) + 1;
}

Model::Step Model::look(std::int32_t p, const Tip& tip, std::int32_t next) const noexcept {
    const auto n = problem_.children.n_classes;
    const auto latest = tip.latest;
    Step out;
    out.from = latest == kStart ? n : child_[latest].cls;
    if (next == kEnd) {
        const Time answer = parent_[p].response_begin;
        const Time done = latest == kStart ? parent_[p].request_end : child_[latest].end;
        if (answer >= done) return {out.from, n, answer - done, false};
        if (latest == kStart) return {out.from, n + 2, done - answer, false};
        const Time answered = problem_.children.response_begin[latest];
        if (answer >= answered) return {out.from, n + 1, answer - answered, false};
        return {out.from, n + 2, std::max<Time>(problem_.parents.depart[p] - done, 0), false};
    }
    out.to = child_[next].cls;
    const Time to = child_[next].begin;
    if (latest == kStart) {
        out.gap = since_arrival(p, next);
    } else if (child_[latest].end <= to + kSlack) {
        out.gap = std::max<Time>(to - child_[latest].end, 0);
    } else {
        out.from = child_[tip.last].cls;
        out.parallel = true;
        out.gap = to - child_[tip.last].begin;
    }
    return out;
}

Time Model::since_arrival(std::int32_t p, std::int32_t next) const noexcept {
    const Time to = child_[next].begin;
    const Time from = parent_[p].request_end <= to ? parent_[p].request_end : parent_[p].arrive;
    return std::max<Time>(to - from, 0);
}

// What was counted so far counts `keep` times as much from now on.
void Model::fade(double keep) {
    if (keep <= 0) {
        for (auto* keys : {&key4_, &key3_, &key2_}) keys->clear(1024);
        for (auto* counts : {&count3_, &count2_}) counts->clear();
        for (auto* gaps : {&gap4_, &gap3_, &gap2_}) gaps->clear();
        for (auto* keys : {&parallel_key3_, &parallel_key2_}) keys->clear(64);
        for (auto* gaps : {&parallel3_, &parallel2_}) gaps->clear();
        kinds3_.assign(from3_.size(), 0.0);
        kinds2_.assign(from2_.size(), 0.0);
        leave_.assign(static_cast<std::size_t>(n_states()), Histogram{});
        orphans_.assign(static_cast<std::size_t>(problem_.children.n_classes), 0.0);
        made_ = orphans_;
    }
    auto fade_counts = [&](Counts& counts) {
        for (double* x : {&counts.n, &counts.parallel, &counts.stay, &counts.chance_to_stay, &counts.fresh,
                          &counts.chance_of_fresh})
            *x *= keep;
    };
    auto fade_gaps = [&](Histogram& gaps) {
        for (float& x : gaps) x *= static_cast<float>(keep);
    };
    for (auto* counts : {&count3_, &count2_}) std::for_each(counts->begin(), counts->end(), fade_counts);
    for (auto* gaps : {&gap4_, &gap3_, &gap2_, &leave_, &parallel3_, &parallel2_})
        std::for_each(gaps->begin(), gaps->end(), fade_gaps);
    for (auto* totals : {&from3_, &from2_, &to1_, &orphans_, &made_}) {
        for (double& x : *totals) x *= keep;
    }
    fade_counts(all_);
    fade_gaps(gap_all_);
    fade_gaps(parallel_all_);
    fan_out_.fade(keep);
    span_ns_ *= keep;
}

void Model::estimate(const std::vector<std::int32_t>& parent_of, double keep) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    order_.rank(problem_, parent_of);
    const auto waited = find_waits(parent_of);
    fade(keep);
    pool_wait_.forget(keep);
    fan_out_.find(parent_of);
    const auto n = static_cast<std::size_t>(n_states());
    auto observe = [&](std::int32_t p, const Tip& tip, std::int32_t next) {
        const auto a = parents.cls[p];
        const auto previous = tip.latest;
        const auto [from, to, gap, parallel] = look(p, tip, next);
        if (fans_out(p)) {
            fan_out_.observe(a, tip.called, to);
            if (next != kEnd) fan_out_.observe_begin(a, to, since_arrival(p, next));
        }
        const auto i4 = key4_.insert(key(a, from, to, load_before(p, previous)));
        const auto i3 = key3_.insert(key(a, from, to, 0)), i2 = key2_.insert(key(-1, from, to, 0));
        if (i4 == static_cast<std::int32_t>(gap4_.size())) gap4_.push_back({});
        if (i3 == static_cast<std::int32_t>(count3_.size())) {
            count3_.push_back({});
            gap3_.push_back({});
            kinds3_[static_cast<std::size_t>(a) * n + from] += 1;
        }
        if (i2 == static_cast<std::int32_t>(count2_.size())) {
            count2_.push_back({});
            gap2_.push_back({});
            kinds2_[from] += 1;
        }
        from3_[static_cast<std::size_t>(a) * n + from] += 1;
        from2_[from] += 1;
        to1_[to] += 1;
        for (auto* counts : {&count3_[i3], &count2_[i2], &all_}) {
            counts->n += 1;
            if (next == kEnd) continue;
            counts->parallel += parallel;
            const bool stays = previous != kStart && !parallel && child_[next].before_on_conn == previous;
            if (!stays) {
                counts->chance_of_fresh += 1;
                counts->fresh += child_[next].before_on_conn == kNone;
            }
            if (previous == kStart || parallel) continue;
            counts->chance_to_stay += 1;
            counts->stay += stays;
        }
        const int bin = gap_bin(gap);
        if (parallel) {
            const auto j3 = parallel_key3_.insert(key(a, from, to, 0)),
                       j2 = parallel_key2_.insert(key(-1, from, to, 0));
            if (j3 == static_cast<std::int32_t>(parallel3_.size())) parallel3_.push_back({});
            if (j2 == static_cast<std::int32_t>(parallel2_.size())) parallel2_.push_back({});
            parallel3_[j3][bin] += 1;
            parallel2_[j2][bin] += 1;
            parallel_all_[bin] += 1;
            return;
        }
        float work = 1;  // share of the gap that is the node's own
        if (previous == kStart && next != kEnd) {
            pool_wait_.observe(candidates_, p, next, load_before(p, kStart), waited[p]);
            work -= waited[p];
        }
        gap4_[i4][bin] += work;
        gap3_[i3][bin] += work;
        gap2_[i2][bin] += work;
        leave_[from][bin] += 1;
        gap_all_[bin] += 1;
    };

    std::vector<Tip> tip(parents.size());
    const auto settled = std::min(problem_.settled, children.size());
    for (std::size_t c = 0; c < settled; ++c) {
        const auto p = parent_of[c];
        if (c < problem_.decided()) {
            if (p != kNone) advance(p, tip[p], static_cast<std::int32_t>(c));
            continue;
        }
        made_[children.cls[c]] += 1;
        if (p == kNone) {
            orphans_[children.cls[c]] += candidates_.of(c).empty();
            continue;
        }
        observe(p, tip[p], static_cast<std::int32_t>(c));
        advance(p, tip[p], static_cast<std::int32_t>(c));
    }
    for (std::size_t p = 0; p < parents.size(); ++p) {
        const Time depart = parents.depart[p];
        if (!parents.answered[p] || depart < problem_.from || depart >= problem_.until) continue;
        observe(static_cast<std::int32_t>(p), tip[p], kEnd);
    }

    // Orphans come as a Poisson stream. Only those that nobody could have made teach its rate: a rate learned from
    // the others would feed itself, as every child that it takes away from its parent makes it look larger.
    if (problem_.decided() < settled) {
        span_ns_ += static_cast<double>(children.begin[settled - 1] - children.begin[problem_.decided()]);
    }
    const double span_ns = 1e9 + span_ns_;
    for (std::int32_t k = 0; k < children.n_classes; ++k) {
        orphan_[k] = static_cast<float>(std::log((orphans_[k] + 0.002 * made_[k] + 0.01) / span_ns));
    }

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
    order_.estimate(problem_, candidates_, parent_of, keep);
    pool_wait_.finish();
    hand_over_.estimate(problem_, candidates_, parent_of, keep);
    learned_ = true;
    forget_cells();
    if (fan_out_.any()) learn_begins(parent_of);
}

// Where requests fan out: from what are the beginnings of each class told best?
void Model::learn_begins(const std::vector<std::int32_t>& parent_of) {
    const auto& parents = problem_.parents;
    std::vector<Tip> tip(parents.size());
    for (std::size_t i = 0; i < std::min(problem_.settled, parent_of.size()); ++i) {
        const auto p = parent_of[i];
        if (p == kNone || !fans_out(p)) continue;
        const auto c = static_cast<std::int32_t>(i);
        if (i < problem_.decided()) {
            advance(p, tip[p], c);
            continue;
        }
        const auto [from, to, gap, parallel] = look(p, tip[p], c);
        const Cell& chain = cell(parents.cls[p], from, to, load_before(p, tip[p].latest));
        fan_out_.compare_begin(
            parents.cls[p], to, since_arrival(p, c),
            density(chain, parallel)[gap_bin(gap)] + (parallel ? chain.log_parallel : chain.log_serial));
        advance(p, tip[p], c);
    }
    fan_out_.finish_begins();
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
        gap_tables_.push_back(log_density(gap_counts(a, previous_cls, next_cls, load)));
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
        out.log_parallel = static_cast<float>(std::log(kParallelPrior));
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

    const double p1 = (to1_[next_cls] + 0.1) / (all_.n + 0.1 * static_cast<double>(n));
    const auto a_from = static_cast<std::size_t>(a) * n + previous_cls;
    const double lent2 = kDiscount * kinds2_[previous_cls] + kGrammarBackoff1;
    const double p2 =
        (std::max(c2.n - kDiscount, 0.0) + lent2 * p1) / (from2_[previous_cls] + kGrammarBackoff1);
    const double lent3 = kDiscount * kinds3_[a_from] + kGrammarBackoff2;
    const double p3 = (std::max(c3.n - kDiscount, 0.0) + lent3 * p2) / (from3_[a_from] + kGrammarBackoff2);
    out.log_p = static_cast<float>(std::log(p3));

    const double par1 = discounted(all_.parallel, all_.n, kParallelPrior);
    const double par2 = discounted(c2.parallel, c2.n, par1);
    const double parallel = std::clamp(par2, 1e-6, 1 - 1e-6);
    out.log_parallel = static_cast<float>(std::log(parallel));
    out.log_serial = ends(next_cls) ? 0.0f : static_cast<float>(std::log(1 - parallel));

    const double leave1 = discounted(all_.chance_to_stay - all_.stay, all_.chance_to_stay, 1 - kStayPrior);
    const double leave2 = discounted(c2.chance_to_stay - c2.stay, c2.chance_to_stay, leave1);
    const double leave3 = discounted(c3.chance_to_stay - c3.stay, c3.chance_to_stay, leave2);
    const double stay = std::clamp(1 - leave3, 1e-5, 1 - 1e-5);
    out.log_stay = static_cast<float>(std::log(stay));
    out.log_leave = static_cast<float>(std::log(1 - stay));

    // Where every request opens a connection of its own, one that was used before is another's.
    const double used1 = discounted(all_.chance_of_fresh - all_.fresh, all_.chance_of_fresh, kUsedPrior);
    const double used2 = discounted(c2.chance_of_fresh - c2.fresh, c2.chance_of_fresh, used1);
    const double used = std::clamp(used2, 1e-4, 1 - 1e-4);
    out.log_used = lent_once_ ? kAnothers : static_cast<float>(std::log(used));
    out.log_fresh = static_cast<float>(std::log(1 - used));

    out.gaps = gap_table(a, previous_cls, next_cls, load);
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
    parallel_tables_.push_back(log_density(counts));
    return out;
}

const Model::Cell& Model::cell(std::int32_t a, std::int32_t previous_cls, std::int32_t next_cls,
                               int load) const {
    if (dense_.empty()) {
        const auto at = cells_key_.insert(key(a, previous_cls, next_cls, load));
        if (at == static_cast<std::int32_t>(cells_.size()))
            cells_.push_back(make_cell(a, previous_cls, next_cls, load));
        return cells_[at];
    }
    const auto n = static_cast<std::size_t>(n_states());
    auto& block = dense_[(static_cast<std::size_t>(a) * n + previous_cls) * n + next_cls];
    if (block == kNone) {
        block = static_cast<std::int32_t>(blocks_.size());
        blocks_.emplace_back().fill(kNone);
    }
    auto& at = blocks_[static_cast<std::size_t>(block)][static_cast<std::size_t>(load)];
    if (at == kNone) {
        at = static_cast<std::int32_t>(cells_.size());
        cells_.push_back(make_cell(a, previous_cls, next_cls, load));
    }
    return cells_[at];
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

Model::Parts Model::parts(std::int32_t p, const Tip& tip, std::int32_t next) const {
    const auto& parent = parent_[p];
    if (next == kEnd && !parent.answered) return {};  // it may still go on: nothing is known about its end
    const auto previous = tip.latest;
    const auto [from, to, gap, parallel] = look(p, tip, next);
    const Cell& c = cell(parent.cls, from, to, load_before(p, previous));
    Parts out{c.log_p, 0.0f};
    bool from_arrival = false;
    if (fans_out(p)) {
        out.rest = fan_out_.log_p(parent.cls, tip.called, to, c.log_p);
        from_arrival = next != kEnd && fan_out_.from_arrival(parent.cls, to);
    }
    if (from_arrival) {
        out.gap = fan_out_.begin_density(parent.cls, to, since_arrival(p, next));
    } else {
        out.rest += parallel ? c.log_parallel : c.log_serial;
        out.gap = density(c, parallel)[gap_bin(gap)];
    }
    if (next == kEnd) {
        if (previous != kStart) out.rest += hand_over_.evidence(problem_, p, previous);
        return out;
    }
    if (previous == kStart) add_wait(p, next, gap, from_arrival, out);
    const auto& child = child_[next];
    if (previous != kStart && !parallel) {
        if (child.before_on_conn == previous) {
            out.rest += c.log_stay;
            return out;
        }
        out.rest += c.log_leave;
    }
    // A new connection is one thing, one of those that are idle another.
    out.rest += child.before_on_conn == kNone ? c.log_fresh : c.log_used - child.log_idle;
    return out;
}

float Model::log_survival(std::int32_t p, std::int32_t previous, Time now) const {
    if (!learned_) return 0.0f;
    const Time from = previous == kStart ? parent_[p].request_end : child_[previous].end;
    const auto state = previous == kStart ? problem_.children.n_classes : child_[previous].cls;
    return survival_[state][gap_bin(std::max<Time>(now - from, 0))];
}

}  // namespace tapscope::match
