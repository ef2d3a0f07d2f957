// What a node does with a request, as a first-order grammar with timed steps, learned from an assignment and used to
// score another one.
//
// A parent of class a is a chain START -> c1 -> c2 -> ... -> END over the classes of its child calls. A step has
//   P(next | a, previous)       grammar, backed off to P(next | previous) and P(next)
//   f(gap | a, previous, next, load)  density of the time that the node itself took (work_clock.hpp), a log-spaced
//                               histogram, backed off to the same step at any load, to the same step of any parent,
//                               and to all steps
//   P(parallel | previous, next)  the next call began before the previous one ended. Of requests that make one call
//                               after the other, as a rule (fan_out.hpp): P(piped | previous, next), on the same
//                               connection, and P(beside | a), on another one, which is not asked for each step:
//                               the few that they seem to make are mostly mistakes, and must not vouch for each other
// END comes in four kinds, each with its own grammar and gaps: after the last call ended (gap from there); while it
// was still being answered (a proxy that streams: gap from the first byte of its answer); begun before that (an early
// flush); or over before that (the call was made and forgotten: gap from its begin).
//   P(keeps its connection | previous, next), else one of the idle connections. Kept means that nobody used it in
//                               between: a parent cannot hold a connection that another one is using
// A step that taught the model is scored by what the others taught (leave one out): an assignment must not vouch for
// itself. Where classes are many and each step is seen once or twice, it would do so for any.
// All scores are natural logarithms of densities per ns; sums of them over all parents compare assignments.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "carried.hpp"
#include "content.hpp"
#include "fan_out.hpp"
#include "gaps.hpp"
#include "hand_over.hpp"
#include "hold.hpp"
#include "idle_order.hpp"
#include "key_map.hpp"
#include "lending.hpp"
#include "log_sum.hpp"
#include "order.hpp"
#include "orphans.hpp"
#include "pick.hpp"
#include "pool_wait.hpp"
#include "problem.hpp"
#include "work_clock.hpp"

namespace tapscope::match {

inline constexpr std::int32_t kEnd = -1;  // as next child

// How much evidence counts whose parts are not independent, 0 to 1.
struct Temper {
    float gaps = 1.0f;        // the log density of a gap
    float idle_order = 1.0f;  // idle_order.hpp
    float order = 1.0f;       // order.hpp
};

class Model {
public:
    Model(const Problem& problem, const Candidates& candidates, const Affinity& affinity,
          const std::vector<float>& idle);

    // The rows of the problem have been replaced by those of another stretch. What was learned stays.
    // `lent_once`: a connection serves one parent only (lent.hpp).
    void bind(const std::vector<float>& idle, bool lent_once);

    // Before the first estimate: what is expected of children.
    void expect(const Affinity& affinity) {
        affinity_ = affinity;
        forget_cells();
    }
    // And that half of those who may have waited for a connection did: see PoolWait.
    void expect_waits() noexcept { pool_wait_.expect(); }

    // Re-estimates everything from an assignment (parent of each child, or kNone), after what was known before
    // has been weighed with `keep` (0: forgotten).
    void estimate(const std::vector<std::int32_t>& parent_of, double keep = 0.0);

    // Ranks waiting parents and idle connections by an assignment of the present rows: see StartOrder, IdleOrder.
    // Returns which steps have another score now.
    enum class Ranked : std::uint8_t { none, ends, starts_and_ends };
    Ranked rank(const std::vector<std::int32_t>& parent_of) {
        if (parent_of == ranked_by_) return Ranked::none;
        ranked_by_ = parent_of;
        idle_order_.rank(problem_, parent_of);
        return order_.rank(problem_, parent_of) ? Ranked::starts_and_ends : Ranked::ends;
    }

    // Supposes an order of first calls: see StartOrder. Then rank() must follow.
    void suppose_order(float nats) noexcept {
        order_.suppose(nats);
        ranked_by_.clear();
    }

    // From here on, so many nats, by class, are against a request without calls; empty: none. Until it is said otherwise.
    void suppose_calls(const std::vector<float>& nats) { against_none_ = nats; }
    // The same against a call that is nobody's, by its class.
    void suppose_claimed(const std::vector<float>& nats) { against_nobody_ = nats; }

    // Nats that their order says of each first call of an assignment of the present rows, as they were ranked.
    double order_says(const std::vector<std::int32_t>& parent_of) const {
        return order_.says(problem_, parent_of);
    }

    // Decides by an assignment of the present rows which clock tells the gaps best: see WorkClock. Returns whether it is
    // another one than before; then an estimate must follow.
    bool choose_clock(const std::vector<std::int32_t>& parent_of);

    // Whether a request nearly always keeps the connection that it was lent. One that a stack has lent it again is not kept.
    bool keeps_connections() const noexcept;

    // How much the evidence counts from now on.
    void temper(const Temper& temper) noexcept { temper_ = temper; }
    const Temper& temper() const noexcept { return temper_; }

    // From here on it is asked how sure this assignment is, in which what is nobody's is so at the usual rate: the higher
    // one is there to doubt links. Or again which one is best.
    void doubt(const std::vector<std::int32_t>& parent_of) {
        doubts_ = true;
        nobodys_.resize(parent_of.size());
        for (std::size_t c = 0; c < parent_of.size(); ++c) nobodys_[c] = parent_of[c] == kNone;
    }
    void decide() noexcept { doubts_ = false; }

    // Whether calls of nobody need a connection, too.
    void lend_to_nobody(bool lends) noexcept { lends_ = lends; }

    // Log score of a step of parent p from child `previous` (kStart: its arrival) to child `next` (kEnd: its departure).
    // The content of `next` is not in it.
    float step(std::int32_t p, std::int32_t previous, std::int32_t next) const {
        if (plain(p, previous, next)) {
            auto parts = plain_parts(p, previous, next);
            leave_out(p, previous, next, parts);
            return parts.rest + temper_.gaps * parts.gap;
        }
        return step(p, Tip{previous, previous, 0}, next);
    }
    // The same where `p` may fan out; the tip of its chain says what went before.
    float step(std::int32_t p, const Tip& tip, std::int32_t next) const {
        return tempered(parts(p, tip, next));
    }

    // The score before its gap, and the order of a first call, are tempered, so that it may be kept when the temper
    // changes.
    struct Parts {
        float rest = 0, gap = 0, order = 0;
        // Of a call that may have waited (pool_wait.hpp): what that way says in excess of `rest`, and in place of `gap`
        // and `order`.
        float wait = -std::numeric_limits<float>::infinity(), wait_gap = 0;
    };
    Parts parts(std::int32_t p, const Tip& tip, std::int32_t next) const {
        auto out = plain(p, tip.latest, next) ? plain_parts(p, tip.latest, next) : any_parts(p, tip, next);
        leave_out(p, tip.latest, next, out);
        return out;
    }
    float tempered(const Parts& parts) const noexcept {
        return parts.rest + log_sum(temper_.gaps * parts.gap + temper_.order * parts.order,
                                    parts.wait + temper_.gaps * parts.wait_gap);
    }
    // The chain of p goes on with child c.
    void advance(std::int32_t p, Tip& tip, std::int32_t c) const noexcept {
        tip.last = c;
        if (!fans_out(p)) {
            tip.latest = c;
            return;
        }
        const auto& children = problem_.children;
        if (tip.latest == kStart || children.end[c] >= children.end[tip.latest]) tip.latest = c;
        tip.called |= fan_out_.bit(problem_.parents.cls[p], children.cls[c]);
        tip.held = carried_.at_hand(tip.held, c);
    }
    // Whether the calls of p may run side by side: then a step needs the whole tip, not the last child alone.
    bool fans_out(std::int32_t p) const noexcept {
        return fan_out_.any() && fan_out_.fans_out(problem_.parents.cls[p]);
    }

    // Log score of child c having been made by no candidate parent. A child that a parent makes adds a gap to its chain:
    // what the temper takes from a usual one is taken here, too, or whoever makes a call would gain by that alone.
    float orphan(std::int32_t child) const noexcept {
        const auto cls = problem_.children.cls[child];
        const bool in_doubt = doubts_ && !nobodys_[static_cast<std::size_t>(child)];
        float nats = in_doubt ? orphans_.log_rate_in_doubt(cls) : orphans_.log_rate(cls);
        if (!against_nobody_.empty()) nats -= against_nobody_[static_cast<std::size_t>(cls)];
        // On one of the connections that were idle, as everybody's calls. Where links are doubted, or such calls are known,
        // timers may have their own.
        const auto& row = child_[static_cast<std::size_t>(child)];
        if (lends_ && !in_doubt && row.before_on_conn != kNone) nats += orphans_.supposed(cls) * row.log_pick;
        return nats + (temper_.gaps - 1) * usual_gap_;
    }
    // How many calls of a class are expected to be nobody's.
    double expected_orphans(std::int32_t cls) const noexcept { return orphans_.expected(cls); }

    // log S(gap): that a step out of this state has not happened yet. Turns a density into a hazard.
    float log_survival(std::int32_t p, std::int32_t previous, Time now) const;

private:
    // One (parent class, previous class, next class, load), in one line of the cache: cells are asked for in no order.
    struct alignas(64) Cell {
        float log_p = 0;  // grammar
        float log_serial = 0, log_parallel = 0, log_piped = 0;
        float log_stay = 0, log_leave = 0;  // of its connection being kept, and given back
        // Whole sums for a step from a call to a call that follows it, on its connection or another one.
        float serial_stays = 0, serial_leaves = 0;
        float log_fresh = 0, log_used = 0;  // of a connection that is not kept: new, or used by others before
        std::int32_t gaps = kNone, parallel_gaps = kNone;  // indices into gap_tables_, parallel_tables_
        Carried::Ratios carried;
    };
    const Histogram& density(const Cell& cell, bool parallel) const noexcept {
        const auto table = parallel ? cell.parallel_gaps : cell.gaps;
        if (table == kNone) return first_guess_;
        return (parallel ? parallel_tables_ : gap_tables_)[static_cast<std::size_t>(table)];
    }
    std::uint64_t key(std::int32_t a, std::int32_t previous_cls, std::int32_t next_cls,
                      int load) const noexcept;
    const Cell& cell(std::int32_t a, std::int32_t previous_cls, std::int32_t next_cls, int load) const {
        if (!dense_.empty()) {
            const auto n = static_cast<std::size_t>(n_states());
            const auto block =
                dense_[(static_cast<std::size_t>(a) * n + static_cast<std::size_t>(next_cls)) * n +
                       static_cast<std::size_t>(previous_cls)];
            if (block != kNone) {
                const auto at = blocks_[static_cast<std::size_t>(block)][static_cast<std::size_t>(load)];
                if (at != kNone) return cells_[static_cast<std::size_t>(at)];
            }
        }
        return new_cell(a, previous_cls, next_cls, load);
    }
    const Cell& new_cell(std::int32_t a, std::int32_t previous_cls, std::int32_t next_cls, int load) const;
    double leave_at_large() const noexcept;
    // That a step leads from and to; kNone: no call from a call to the same.
    std::int32_t server_of_steps(std::int32_t previous_cls, std::int32_t next_cls) const noexcept;
    Cell make_cell(std::int32_t a, std::int32_t previous_cls, std::int32_t next_cls, int load) const;
    Histogram gap_counts(std::int32_t a, std::int32_t previous_cls, std::int32_t next_cls, int load) const;
    std::int32_t gap_table(std::int32_t a, std::int32_t previous_cls, std::int32_t next_cls, int load) const;
    void forget_cells();
    struct Counts;
    double to_anything(std::int32_t to, double less) const noexcept;
    double grammar(std::size_t a_from, std::int32_t from, std::int32_t to, const Counts& c3, const Counts& c2,
                   double less) const noexcept;
    struct Taught;
    void find_taught(const std::vector<Taught>& taught);
    void forget_taught();
    void find_survival();
    void find_beside();
    void bind_rows(const std::vector<float>& idle);
    void read_clock();
    void fade(double keep);
    int load_before(std::int32_t p, std::int32_t previous) const noexcept {
        return previous == kStart ? parent_[p].load : child_[previous].load;
    }
    // Classes of children are followed by START, as previous, and by the kinds of END, as next.
    std::int32_t n_states() const noexcept { return problem_.children.n_classes + 4; }
    bool ends(std::int32_t next_cls) const noexcept { return next_cls >= problem_.children.n_classes; }
    struct Step {
        std::int32_t from = 0, to = 0;  // states
        Time wall = 0;                  // ns that it took
        bool parallel = false;
        Time gap = 0;         // the same, by the clock that tells it best,
        float log_speed = 0;  // and how fast that went at its end
    };
    Step look(std::int32_t p, const Tip& tip, std::int32_t next) const noexcept;
    // Nearly all steps: from call to call, of a parent that does one thing after the other and does not wait to do it.
    bool plain(std::int32_t p, std::int32_t previous, std::int32_t next) const noexcept {
        return previous >= 0 && next >= 0 && !fans_out(p) && !pool_wait_.later();
    }
    Parts plain_parts(std::int32_t p, std::int32_t previous, std::int32_t next) const {
        const auto& before = child_[static_cast<std::size_t>(previous)];
        const auto& child = child_[static_cast<std::size_t>(next)];
        const Cell& c = cell(parent_[static_cast<std::size_t>(p)].cls, before.cls, child.cls, before.load);
        Parts out;
        if (before.end <= child.begin + kSlack) {
            const auto& gaps = density(c, false);
            if (work_clock_.tells(kNextStep)) {
                const Time worked = child.work_begin - before.work_end;
                out.gap = gaps[problem_.gaps.bin(std::max<Time>(worked, 0))] + child.log_speed;
            } else {
                out.gap = gaps[problem_.gaps.bin(std::max<Time>(child.begin - before.end, 0))];
            }
            if (child.before_on_conn == previous) {
                out.rest = log_sum(c.serial_stays, c.serial_leaves + child.log_again);
                if (c.carried) out.rest += carried_.evidence(c.carried, previous, next);
                return out;
            }
            const bool before_answer =
                before.used_again < parent_[static_cast<std::size_t>(p)].response_begin;
            out.rest = c.serial_leaves + hold_.evidence(before.server, before_answer);
        } else {
            out.gap = density(c, true)[problem_.gaps.bin(child.begin - before.begin)];
            if (child.before_on_conn == previous) {
                out.rest = c.log_p + c.log_piped;
                if (c.carried) out.rest += carried_.evidence(c.carried, previous, next);
                return out;
            }
            out.rest = c.log_p + c.log_parallel;
        }
        out.rest += child.before_on_conn == kNone ? c.log_fresh : c.log_used + child.log_pick;
        if (c.carried) out.rest += carried_.evidence(c.carried, previous, next);
        return out;
    }
    Parts any_parts(std::int32_t p, const Tip& tip, std::int32_t next) const;
    // Takes back what the step itself has taught. Two calls in a row would be so in any parent's chain: what they taught
    // is taken back there, too, or moving them to another parent would look like a gain. So is a call of a class that was
    // hardly ever seen, from whomever and behind whatever.
    void leave_out(std::int32_t p, std::int32_t previous, std::int32_t next, Parts& parts) const noexcept {
        const auto& own = next != kEnd         ? taught_[static_cast<std::size_t>(next)]
                          : previous == kStart ? taught_empty_[static_cast<std::size_t>(p)]
                                               : taught_end_[static_cast<std::size_t>(previous)];
        if (own.parent == kNone) return;
        if (own.previous != previous ||
            (own.parent != p &&
             parent_[static_cast<std::size_t>(own.parent)].cls != parent_[static_cast<std::size_t>(p)].cls)) {
            parts.rest -= own.rare;
            return;
        }
        parts.rest -= own.grammar;
        if (own.parent == p || (previous != kStart && next != kEnd)) parts.gap -= own.gap;
    }
    Time since_arrival(std::int32_t p, std::int32_t next) const noexcept;
    // Both ways in which c may have become the first call of p, this long after its arrival.
    // A beginning that is told from the arrival alone has one way only.
    void add_wait(std::int32_t p, std::int32_t c, Time gap, bool from_arrival, Parts& parts) const noexcept;
    void bind_waits();
    // Whether c, behind this tip, may have waited for its connection: one that the parent does not hold.
    bool may_have_waited(const Tip& tip, std::int32_t c) const noexcept;
    // By child: the probability that its parent waited for its connection, in the model as it is.
    std::vector<float> find_waits(const std::vector<std::int32_t>& parent_of) const;
    void learn_begins(const std::vector<std::int32_t>& parent_of);

    const Problem& problem_;
    const Candidates& candidates_;
    Affinity affinity_;
    bool learned_ = false;
    bool lent_once_ = false;
    bool doubts_ = false, lends_ = false;
    std::vector<std::uint8_t> nobodys_;  // by child: in the assignment of which it is asked how sure it is
    Temper temper_;
    std::vector<float> against_none_, against_nobody_;

    // What a step asks of either row, side by side: it is asked for in no order.
    struct ParentRow {
        Time arrive = 0, request_end = 0, response_begin = 0;
        Time work_request_end = 0, work_response_begin = 0;  // by the work clock, as its speed at the answer
        float log_speed = 0;
        std::int32_t cls = 0;
        std::uint8_t load = 0;  // octave of the number of parents in flight when it arrived
        bool answered = false;
    };
    static constexpr double kSeldom = 0.05;  // share of the steps that could keep their connection
    static constexpr Time kNotAgain = std::numeric_limits<Time>::max();
    struct ChildRow {
        Time begin = 0, end = 0;
        Time used_again = kNotAgain;        // its connection
        Time work_begin = 0, work_end = 0;  // by the work clock, as its speed at the begin
        float log_speed = 0;
        std::int32_t cls = 0;
        std::int32_t before_on_conn = kNone;  // previous child on the same connection
        float log_pick = 0;                   // of its connection being taken, of those that are idle
        std::uint8_t load = 0;                // octave of the number of parents in flight when it ended
        std::uint8_t server = 0;
        // Of the pool lending it to who used it last and gave it back: in a stack or a queue as to anybody.
        float log_again = -std::numeric_limits<float>::infinity();
    };
    std::vector<ParentRow> parent_;
    std::vector<ChildRow> child_;

    // A step of the assignment that taught the model: where it was counted.
    struct Taught {
        std::int32_t parent, previous, next;
        std::int32_t from, to;    // states
        std::int32_t i4, i3, i2;  // into the counts
        std::int32_t bin;         // of its gap,
        float work;               // and its share that was the node's own
    };
    // Nats that it scores more by its own counts.
    struct Own {
        std::int32_t parent = kNone, previous = kStart;
        float grammar = 0, gap = 0;
        // In any other step to a class of which few were counted: these are all that is known of it there.
        float rare = 0;
    };
    std::vector<Own> taught_, taught_end_, taught_empty_;  // by next, by previous (END), by parent (no call)
    float usual_gap_ = 0;  // mean log density of their gaps, by what others taught

    // Counts of the last estimate. "3": (a, previous, next); "2": (previous, next); "1": (next) or (previous).
    struct Counts {
        double n = 0, parallel = 0, piped = 0, stay = 0, chance_to_stay = 0;
        double fresh = 0, chance_of_fresh = 0;  // of those that did not stay: on a connection that is new
    };
    KeyMap key4_, key3_, key2_;
    std::vector<Counts> count3_, count2_;
    std::vector<double> from3_, from2_, to1_;  // totals by (a, previous), by previous, by next
    std::vector<double> kinds3_, kinds2_;      // different next by (a, previous), by previous
    Counts all_;
    std::vector<Lending> lending_;               // by server
    std::vector<std::uint8_t> server_of_class_;  // of children
    // By parent class: steps from call to call, and those on another connection before the call had ended.
    std::vector<double> follow_, beside_;
    double beside_at_large_ = 0;                 // share of the latter among classes that do not fan out
    std::vector<Histogram> gap4_, gap3_, gap2_;  // raw counts; "4" has the load, too
    Histogram gap_all_{};
    // Gaps of parallel steps, from beginning to beginning: by (a, previous, next), by (previous, next), all.
    KeyMap parallel_key3_, parallel_key2_;
    std::vector<Histogram> parallel3_, parallel2_;
    Histogram parallel_all_{};
    FanOut fan_out_;
    std::vector<Histogram> leave_;         // gaps out of each state, whatever comes next
    std::vector<std::int32_t> ranked_by_;  // the assignment that order_ and idle_order_ were ranked by last
    StartOrder order_;
    HandOver hand_over_;
    Hold hold_;
    Carried carried_;
    IdleOrder idle_order_;
    PoolWait pool_wait_;
    Pick pick_;
    WorkClock work_clock_;
    Orphans orphans_;

    // Memo of make_cell: a dense table of positions in cells_ where the node has few classes, else a map.
    mutable std::vector<std::int32_t> dense_;                       // by step, into blocks_
    mutable std::vector<std::array<std::int32_t, kLoads>> blocks_;  // by load, into cells_
    mutable KeyMap cells_key_;
    mutable std::vector<Cell> cells_;
    mutable KeyMap gap_tables_key_;  // by the finest step that has gaps of its own
    mutable std::vector<Histogram> gap_tables_, parallel_tables_;  // log density per ns
    Histogram first_guess_{};
    std::vector<Histogram> survival_;  // log S by (previous class), from gap2_ mixed over next
};

}  // namespace tapscope::match
