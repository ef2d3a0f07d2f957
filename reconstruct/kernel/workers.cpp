#include "workers.hpp"

#include <algorithm>

namespace tapscope::match {
namespace {

constexpr int kMostSplits = 63, kMostLeftOut = 15;

}  // namespace

void Workers::Side::resize(std::size_t n) {
    place.assign(n, {});
    group.assign(n, 0);
    leaning.assign(n, 0.0f);
    used.assign(n, 0.0f);
    name.assign(n, 0);
}

void Workers::Side::take_names(const std::vector<std::int32_t>& conns, std::span<const std::int64_t> names) {
    for (std::size_t i = 0; i < names.size(); ++i) {
        name[static_cast<std::size_t>(conns[i])] = static_cast<std::uint64_t>(names[i]) + 1;
    }
}

void Workers::Side::tell(std::size_t conn, std::int32_t process, const std::vector<Place>& of_process) {
    group[conn] = process;
    place[conn] = of_process[static_cast<std::size_t>(process)];
}

void Workers::Side::forget() {
    known_at.clear(64);
    known.clear();
}

void Workers::separate(Problem& problem, Candidates& candidates) {
    problem.processes = 1;
    const bool known = !of_process_.empty(), many = problem.children.size() >= kFewestCalls;
    if (problem.parents.conn.empty() || (!known && (!many || left_out_-- > 0))) return;
    number(problem);
    if (known) {
        recall();
        tell_others(candidates);
    }
    if (!known || !holds(candidates)) {
        forget();
        if (!many) return;
        number(problem);
        find(candidates);
        left_out_ = pause_ = of_process_.empty() ? std::min(2 * pause_ + 1, kMostLeftOut) : 0;
        if (of_process_.empty()) return;
        tell_others(candidates);
    }
    drop(problem, candidates);
    tell(problem);
    remember(problem);
}

// Processes are the groups that cannot be split any more.
void Workers::find(const Candidates& candidates) {
    splits_ = 0;
    const auto groups = split_all(candidates);
    if (splits_ == 0 || bonds(groups)) return;
    std::vector<std::int32_t> number(static_cast<std::size_t>(groups), kNone);
    for (auto* side : {&ahead_, &behind_}) {
        for (std::size_t i = 0; i < side->group.size(); ++i) {
            auto& group = side->group[i];
            if (group == kNone) continue;
            auto& process = number[static_cast<std::size_t>(group)];
            if (process == kNone) {
                process = processes();
                of_process_.push_back(side->place[i]);
            }
            group = process;
        }
    }
}

// Splits groups until none can be; how many numbers of groups there are then.
std::int32_t Workers::split_all(const Candidates& candidates) {
    std::int32_t groups = 1;
    for (std::int32_t group = 0; group < groups && splits_ < kMostSplits; ++group) {
        if (!split(group, candidates)) continue;
        const auto bit = std::uint64_t{1} << splits_++;
        for (auto* side : {&ahead_, &behind_}) {
            for (std::size_t i = 0; i < side->group.size(); ++i) {
                if (side->group[i] != group) continue;
                const float leaning = side->leaning[i];
                if (leaning < 0) side->place[i].left |= bit;
                if (leaning > 0) side->place[i].right |= bit;
                side->group[i] = leaning < 0 ? groups : leaning > 0 ? groups + 1 : kNone;
            }
        }
        groups += 2;
    }
    return groups;
}

void Workers::drop(const Problem& problem, Candidates& candidates) const {
    const auto place_of = [&](std::int64_t i) {
        return ahead_
            .place[static_cast<std::size_t>(ahead_of_[static_cast<std::size_t>(candidates.parent[i])])];
    };
    std::vector<std::uint8_t> keep(candidates.parent.size(), 1);
    for (std::size_t c = problem.decided(); c < problem.children.size(); ++c) {
        const auto own = behind_.place[static_cast<std::size_t>(behind_of_[c])];
        bool any = false;
        for (auto i = candidates.offset[c]; i < candidates.offset[c + 1]; ++i) {
            keep[i] = !own.apart(place_of(i));
            any |= keep[i] != 0;
        }
        if (any) continue;  // the exception: somebody must have made it
        for (auto i = candidates.offset[c]; i < candidates.offset[c + 1]; ++i) keep[i] = 1;
    }
    candidates.retain([&](std::int64_t i) { return keep[i] != 0; });
}

// Of each row: the process that it is of.
void Workers::tell(Problem& problem) {
    const auto of_rows = [&](const std::vector<std::int32_t>& conns, const Side& side,
                             std::vector<std::int32_t>& out) {
        out.clear();
        for (const auto conn : conns) {
            const auto process = side.group[static_cast<std::size_t>(conn)];
            out.push_back(process == kNone ? processes() : process);
        }
    };
    of_rows(ahead_of_, ahead_, parent_process_);
    of_rows(behind_of_, behind_, child_process_);
    problem.parents.process = parent_process_;
    problem.children.process = child_process_;
    problem.processes = processes() + 1;
}

// Dense numbers of connections on both sides. Those of a few requests or calls are not told: where each request opens its
// own there is nothing to look at.
void Workers::number(const Problem& problem) {
    first_ = problem.decided();
    KeyMap names;
    ahead_of_.clear();
    for (const auto conn : problem.parents.conn) {
        ahead_of_.push_back(names.insert(static_cast<std::uint64_t>(conn) + 1));
    }
    behind_of_.assign(problem.children.conn.begin(), problem.children.conn.end());
    std::int32_t behind = 0;
    for (const auto conn : behind_of_) behind = std::max(behind, conn + 1);
    ahead_.resize(static_cast<std::size_t>(names.size()));
    behind_.resize(static_cast<std::size_t>(behind));
    ahead_.take_names(ahead_of_, problem.parents.conn);
    behind_.take_names(behind_of_, problem.children.conn_name);
    const auto leave_out = [](Side& side, const std::vector<std::int32_t>& conns) {
        for (const auto conn : conns) side.used[static_cast<std::size_t>(conn)] += 1;
        for (std::size_t i = 0; i < side.group.size(); ++i) {
            if (side.used[i] < kVotes) side.group[i] = kNone;
        }
    };
    leave_out(ahead_, ahead_of_);
    leave_out(behind_, behind_of_);
}

// Are most groups one connection on either side? Then a middleware keeps a connection behind for each that it is asked
// for. bound.hpp tells that as well, and weighs exceptions.
bool Workers::bonds(std::int32_t groups) const {
    std::vector<int> ahead(static_cast<std::size_t>(groups)), behind = ahead;
    for (const auto group : ahead_.group) {
        if (group != kNone) ++ahead[static_cast<std::size_t>(group)];
    }
    for (const auto group : behind_.group) {
        if (group != kNone) ++behind[static_cast<std::size_t>(group)];
    }
    int all = 0, bonds = 0;
    for (std::size_t group = 0; group < ahead.size(); ++group) {
        all += ahead[group] + behind[group] > 0;
        bonds += ahead[group] == 1 && behind[group] == 1;
    }
    return 2 * bonds > all;
}

}  // namespace tapscope::match
