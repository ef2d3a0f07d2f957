// The score of one step of a chain.
#include <algorithm>

#include "model.hpp"

namespace tapscope::match {

Model::Step Model::look(std::int32_t p, const Tip& tip, std::int32_t next) const noexcept {
    const auto n = problem_.children.n_classes;
    const auto latest = tip.latest;
    const auto& parent = parent_[p];
    const auto from = latest == kStart ? n : child_[latest].cls;
    const auto by_the_wall = [](std::int32_t before, std::int32_t after, Time gap, bool parallel) {
        return Step{before, after, gap, parallel, gap, 0.0f};
    };
    const auto by_work = [](std::int32_t before, std::int32_t after, Time gap, Time worked, float log_speed) {
        return Step{before, after, gap, false, std::max<Time>(worked, 0), log_speed};
    };
    if (next == kEnd) {
        const Time answer = parent.response_begin;
        const Time done = latest == kStart ? parent.request_end : child_[latest].end;
        if (answer >= done) {
            if (!work_clock_.tells(kLastStep)) return by_the_wall(from, n, answer - done, false);
            const Time since = latest == kStart ? parent.work_request_end : child_[latest].work_end;
            return by_work(from, n, answer - done, parent.work_response_begin - since, parent.log_speed);
        }
        if (latest == kStart) return by_the_wall(from, n + 2, done - answer, false);
        const Time answered = problem_.children.response_begin[latest];
        if (answer >= answered) return by_the_wall(from, n + 1, answer - answered, false);
        const Time depart = problem_.parents.depart[p];
        if (depart + kSlack >= answered)
            return by_the_wall(from, n + 2, std::max<Time>(depart - done, 0), false);
        return by_the_wall(from, n + 3, std::max<Time>(depart - child_[latest].begin, 0), false);
    }
    const auto& child = child_[next];
    if (latest == kStart) {
        const Time gap = since_arrival(p, next);
        if (!work_clock_.tells(kFirstStep) || parent.request_end > child.begin) {
            return by_the_wall(from, child.cls, gap, false);
        }
        return by_work(from, child.cls, gap, child.work_begin - parent.work_request_end, child.log_speed);
    }
    const auto& before = child_[latest];
    if (before.end > child.begin + kSlack) {
        const auto& last = child_[tip.last];
        return by_the_wall(last.cls, child.cls, child.begin - last.begin, true);
    }
    const Time gap = std::max<Time>(child.begin - before.end, 0);
    if (!work_clock_.tells(kNextStep)) return by_the_wall(from, child.cls, gap, false);
    return by_work(from, child.cls, gap, child.work_begin - before.work_end, child.log_speed);
}

bool Model::choose_clock(const std::vector<std::int32_t>& parent_of) {
    std::vector<TimedStep> steps;
    KeyMap cells;
    const auto note = [&](StepKind kind, std::int32_t p, std::int32_t from, std::int32_t to, Time since,
                          Time until) {
        if (until < since) return;
        steps.push_back({kind, cells.insert(key(parent_[p].cls, from, to, 0)), since, until});
    };
    const auto n = problem_.children.n_classes;
    std::vector<Tip> tip(parent_.size());
    for (std::size_t i = 0; i < std::min(problem_.settled, parent_of.size()); ++i) {
        const auto p = parent_of[i];
        if (p == kNone) continue;
        const auto c = static_cast<std::int32_t>(i);
        const auto latest = tip[p].latest;
        if (i >= problem_.decided()) {
            if (latest == kStart) {
                note(kFirstStep, p, n, child_[c].cls, parent_[p].request_end, child_[c].begin);
            } else {
                note(kNextStep, p, child_[latest].cls, child_[c].cls, child_[latest].end, child_[c].begin);
            }
        }
        advance(p, tip[p], c);
    }
    for (std::size_t i = 0; i < parent_.size(); ++i) {
        const auto p = static_cast<std::int32_t>(i);
        const auto latest = tip[i].latest;
        if (latest == kStart || !parent_[i].answered) continue;
        note(kLastStep, p, child_[latest].cls, n, child_[latest].end, parent_[i].response_begin);
    }
    if (!work_clock_.choose(problem_, steps)) return false;
    read_clock();
    return true;
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
    const auto [from, to, wall, parallel, gap, log_speed] = look(p, tip, next);
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
        out.gap = density(c, parallel)[problem_.gaps.bin(gap)] + log_speed;
    }
    if (next == kEnd) {
        if (previous == kStart) {
            if (!against_none_.empty()) out.rest -= against_none_[static_cast<std::size_t>(parent.cls)];
            return out;
        }
        if (lending_[child_[previous].server].gives_back) return out;
        out.rest += hand_over_.evidence(problem_, p, previous) +
                    temper_.idle_order * idle_order_.evidence(problem_, p, previous);
        return out;
    }
    if (previous == kStart) add_wait(p, next, wall, from_arrival, out);
    if (previous != kStart && c.carried) {
        out.rest += carried_.evidence(c.carried, fans_out(p) ? tip.held : tip.last, next);
    }
    const auto& child = child_[next];
    if (previous != kStart && !parallel) {
        if (child.before_on_conn == previous) {
            float again = child.log_again;  // and nobody waited for it
            if (pool_wait_.later(child.server))
                again += pool_wait_.log_free(child.server, load_before(p, previous));
            out.rest += log_sum(c.log_stay, c.log_leave + again);
            return out;
        }
        out.rest += c.log_leave + hold_.evidence(child_[previous].server,
                                                 child_[previous].used_again < parent.response_begin);
        if (pool_wait_.later(child.server)) {
            const auto ways = pool_wait_.ways(PoolWait::Call::later, p, next, child_[previous].end,
                                              load_before(p, previous));
            out.rest += ways.work;
            out.wait = ways.wait - ways.work;
            out.wait_gap = ways.gap;
        }
    }
    // A new connection is one thing, one of those that are idle another.
    out.rest += child.before_on_conn == kNone ? c.log_fresh : c.log_used + child.log_pick;
    return out;
}

float Model::log_survival(std::int32_t p, std::int32_t previous, Time now) const {
    if (!learned_) return 0.0f;
    const Time from = previous == kStart ? parent_[p].request_end : child_[previous].end;
    const auto state = previous == kStart ? problem_.children.n_classes : child_[previous].cls;
    return survival_[state][problem_.gaps.bin(std::max<Time>(now - from, 0))];
}

}  // namespace tapscope::match
