#include "model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tapscope::match {
namespace {

constexpr double kMostly = 0.5;  // share of the steps

}  // namespace

Model::Model(const Problem& problem, const Candidates& candidates, const Affinity& affinity,
             const std::vector<float>& idle)
    : problem_(problem),
      candidates_(candidates),
      affinity_(affinity),
      fan_out_(problem),
      carried_(problem, candidates),
      pool_wait_(problem, order_),
      orphans_(problem, candidates) {
    const auto n = static_cast<std::size_t>(n_states());
    from3_.assign(static_cast<std::size_t>(problem.parents.n_classes) * n, 0.0);
    from2_.assign(n, 0.0);
    to1_.assign(n, 0.0);
    survival_.assign(n, Histogram{});
    fade(0);
    forget_cells();
    bind(idle, false);
}

void Model::bind(const std::vector<float>& idle, bool lent_once) {
    const auto& children = problem_.children;
    bind_rows(idle);
    forget_taught();
    order_.forget_ranks();
    ranked_by_.clear();
    lent_once_ = lent_once;
    // Before anything is learned: a gap is shorter rather than longer, with no scale (density ~ 1/gap).
    for (int b = 0; b < kGapBins; ++b) {
        first_guess_[b] = static_cast<float>(std::log(1.0 / kGapBins / problem_.gaps.width_ns(b)));
    }
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
    for (const auto& child : child_) {
        if (child.before_on_conn != kNone) child_[child.before_on_conn].used_again = child.begin;
    }
    carried_.bind();
    bind_waits();
    orphans_.bind();
    work_clock_.bind(problem_);
    read_clock();
}

void Model::bind_rows(const std::vector<float>& idle) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    InFlight in_flight(problem_);
    const auto octave = [&](std::int32_t process, Time at) {
        const int width = std::bit_width(static_cast<std::uint64_t>(in_flight.at(process, at)));
        return static_cast<std::uint8_t>(std::min(width, kLoads - 1));
    };
    parent_.clear();
    for (std::size_t p = 0; p < parents.size(); ++p) {
        parent_.push_back({parents.arrive[p], parents.request_end[p], parents.response_begin[p], 0, 0, 0.0f,
                           parents.cls[p], octave(problem_.process_of_parent(p), parents.arrive[p]),
                           parents.answered[p] != 0});
    }
    child_.clear();
    for (std::size_t c = 0; c < idle.size(); ++c) {
        child_.push_back({children.begin[c], children.end[c], kNotAgain, 0, 0, 0.0f, children.cls[c], kNone,
                          -std::log(idle[c]), octave(problem_.process_of_child(c), children.end[c])});
    }
}

// What the work clock shows at the times of the rows.
void Model::read_clock() {
    for (auto& parent : parent_) {
        const auto answer = work_clock_.read(parent.response_begin);
        parent.work_request_end = work_clock_.read(parent.request_end).at;
        parent.work_response_begin = answer.at;
        parent.log_speed = answer.log_speed;
    }
    for (auto& child : child_) {
        const auto begin = work_clock_.read(child.begin);
        child.work_begin = begin.at;
        child.log_speed = begin.log_speed;
        child.work_end = work_clock_.read(child.end).at;
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
        follow_.assign(static_cast<std::size_t>(problem_.parents.n_classes), 0.0);
        beside_ = follow_;
    }
    auto fade_counts = [&](Counts& counts) {
        for (double* x : {&counts.n, &counts.parallel, &counts.piped, &counts.stay, &counts.chance_to_stay,
                          &counts.fresh, &counts.chance_of_fresh})
            *x *= keep;
    };
    auto fade_gaps = [&](Histogram& gaps) {
        for (float& x : gaps) x *= static_cast<float>(keep);
    };
    for (auto* counts : {&count3_, &count2_}) std::for_each(counts->begin(), counts->end(), fade_counts);
    for (auto* gaps : {&gap4_, &gap3_, &gap2_, &leave_, &parallel3_, &parallel2_})
        std::for_each(gaps->begin(), gaps->end(), fade_gaps);
    for (auto* totals : {&from3_, &from2_, &to1_, &follow_, &beside_}) {
        for (double& x : *totals) x *= keep;
    }
    fade_counts(all_);
    for (auto& lending : lending_) lending.fade(keep);
    fade_gaps(gap_all_);
    fade_gaps(parallel_all_);
    fan_out_.fade(keep);
}

void Model::estimate(const std::vector<std::int32_t>& parent_of, double keep) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    order_.rank(problem_, parent_of);
    const auto waited = find_waits(parent_of);
    fade(keep);
    pool_wait_.forget(keep);
    hold_.forget(keep);
    // The first assignment mixes requests up: calls overlap in it that never do.
    if (learned_) fan_out_.find(parent_of);
    const auto n = static_cast<std::size_t>(n_states());
    std::vector<Taught> taught;
    taught.reserve(parents.size() + children.size());
    auto observe = [&](std::int32_t p, const Tip& tip, std::int32_t next) {
        const auto a = parents.cls[p];
        const auto previous = tip.latest;
        const auto [from, to, wall, parallel, gap, log_speed] = look(p, tip, next);
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
        const bool piped = parallel && child_[next].before_on_conn == previous;
        if (previous != kStart && next != kEnd) {
            follow_[a] += 1;
            beside_[a] += parallel && !piped;
        }
        for (auto* counts : {&count3_[i3], &count2_[i2], &all_}) {
            counts->n += 1;
            if (next == kEnd) continue;
            counts->parallel += parallel;
            counts->piped += piped;
            const bool stays = previous != kStart && !parallel && child_[next].before_on_conn == previous;
            if (!stays) {
                counts->chance_of_fresh += 1;
                counts->fresh += child_[next].before_on_conn == kNone;
            }
            if (previous == kStart || parallel) continue;
            counts->chance_to_stay += 1;
            counts->stay += stays;
        }
        if (previous != kStart && next != kEnd && !parallel &&
            child_[previous].server == child_[next].server) {
            auto& lending = lending_[child_[next].server];
            const bool stays = child_[next].before_on_conn == previous;
            lending.chance_to_stay += 1;
            lending.stay += stays;
            if (stays) lending.again += std::exp(child_[next].log_again);
        }
        const bool done =
            next == kEnd ? parents.answered[p] != 0 : !parallel && child_[next].before_on_conn != previous;
        if (previous != kStart && done && child_[previous].used_again != kNotAgain) {
            hold_.observe(problem_, candidates_, p, previous, child_[previous].used_again);
        }
        const int bin = problem_.gaps.bin(gap);
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
        if (next != kEnd && may_have_waited(tip, next)) {
            const auto call = previous == kStart ? PoolWait::Call::first : PoolWait::Call::later;
            pool_wait_.observe(call, candidates_, p, next, load_before(p, previous), waited[next]);
            work -= waited[next];
        }
        taught.push_back({p, previous, next, from, to, i4, i3, i2, bin, work});
        gap4_[i4][bin] += work;
        gap3_[i3][bin] += work;
        gap2_[i2][bin] += work;
        leave_[from][problem_.gaps.bin(wall)] += 1;
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
        if (p == kNone) continue;
        observe(p, tip[p], static_cast<std::int32_t>(c));
        advance(p, tip[p], static_cast<std::int32_t>(c));
    }
    for (std::size_t p = 0; p < parents.size(); ++p) {
        const Time depart = parents.depart[p];
        if (!parents.answered[p] || depart < problem_.from || depart >= problem_.until) continue;
        observe(static_cast<std::int32_t>(p), tip[p], kEnd);
    }

    orphans_.estimate(keep);
    find_survival();
    find_beside();
    for (std::size_t server = 0; server < lending_.size(); ++server) {
        auto& lending = lending_[server];
        lending.gives_back = pick_.strict(server) && lending.give_back(lending.leave()) > kMostly;
    }
    order_.estimate(problem_, candidates_, parent_of, keep);
    pool_wait_.finish();
    hold_.finish();
    carried_.estimate(parent_of, fan_out_, keep);
    hand_over_.estimate(problem_, candidates_, parent_of, keep);
    idle_order_.estimate(problem_, candidates_, parent_of, keep);
    ranked_by_ = parent_of;
    learned_ = true;
    forget_cells();
    find_taught(taught);
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
        const auto [from, to, wall, parallel, gap, log_speed] = look(p, tip[p], c);
        const Cell& chain = cell(parents.cls[p], from, to, load_before(p, tip[p].latest));
        fan_out_.compare_begin(parents.cls[p], to, since_arrival(p, c),
                               density(chain, parallel)[problem_.gaps.bin(gap)] + log_speed +
                                   (parallel ? chain.log_parallel : chain.log_serial));
        advance(p, tip[p], c);
    }
    fan_out_.finish_begins();
}

}  // namespace tapscope::match
