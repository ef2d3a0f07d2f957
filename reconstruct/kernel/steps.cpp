// The score of one step of a chain.
#include <algorithm>

#include "model.hpp"

namespace tapscope::match {

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

Model::Parts Model::any_parts(std::int32_t p, const Tip& tip, std::int32_t next) const {
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
