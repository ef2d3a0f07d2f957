#include "problem.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace tapscope::match {
namespace {

constexpr int kNear = 12;  // steps from the last place, before it is looked for everywhere

}  // namespace

InFlight::InFlight(const Problem& problem) : of_(static_cast<std::size_t>(problem.processes)) {
    const auto& from = problem.parents.taken.empty() ? problem.parents.arrive : problem.parents.taken;
    for (std::size_t p = 0; p < problem.parents.size(); ++p) {
        auto& times = of_[problem.process_of_parent(p)];
        times.from.push_back(from[p]);
        times.depart.push_back(problem.parents.depart[p]);
    }
    for (auto& times : of_) {
        std::sort(times.from.begin(), times.from.end());
        std::sort(times.depart.begin(), times.depart.end());
    }
}

std::ptrdiff_t InFlight::at(std::int32_t process, Time when) noexcept {
    // Mostly it is asked in about the order of time: the place is near the last one.
    const auto until = [&](const std::vector<Time>& times, std::size_t& near) {
        for (int step = 0; step < kNear; ++step) {
            if (near < times.size() && times[near] <= when) {
                ++near;
            } else if (near > 0 && times[near - 1] > when) {
                --near;
            } else {
                return static_cast<std::ptrdiff_t>(near);
            }
        }
        const auto at = std::upper_bound(times.begin(), times.end(), when) - times.begin();
        near = static_cast<std::size_t>(at);
        return at;
    };
    auto& times = of_[static_cast<std::size_t>(process)];
    const auto arrived = until(times.from, times.near_from);
    return std::max<std::ptrdiff_t>(arrived - until(times.depart, times.near_depart), 1);
}

void find_candidates(const Problem& problem, Candidates& out, std::span<const std::uint8_t> forgotten) {
    const auto& parents = problem.parents;
    const auto& children = problem.children;
    out.offset.assign(1, 0);
    out.offset.reserve(children.size() + 1);
    out.parent.clear();
    out.certain_parent.clear();
    std::vector<std::int32_t> active;  // parents that arrived and may not have left, ascending
    std::size_t next = 0;
    for (std::size_t c = 0; c < children.size(); ++c) {
        if (c < problem.decided()) {
            out.parent.push_back(problem.decided_parent[c]);
            out.offset.push_back(static_cast<std::int64_t>(out.parent.size()));
            continue;
        }
        const Time begin = children.begin[c];
        while (next < parents.size() && parents.arrive[next] <= begin + kSlack) {
            active.push_back(static_cast<std::int32_t>(next++));
        }
        std::erase_if(active, [&](std::int32_t p) { return parents.depart[p] + kSlack < begin; });
        const bool stays = forgotten.empty() || !forgotten[static_cast<std::size_t>(children.cls[c])];
        const Time until = stays ? children.response_begin[c] : begin;
        for (const std::int32_t p : active) {
            if (!children.as_parent.empty() && p == children.as_parent[c]) continue;  // nobody calls itself
            if (!parents.taken.empty() && parents.taken[p] > begin + kSlack) continue;
            if (parents.depart[p] + kSlack >= until) out.parent.push_back(p);
        }
        out.offset.push_back(static_cast<std::int64_t>(out.parent.size()));
    }
    out.content.assign(out.parent.size(), 0.0f);
}

std::vector<float> idle_connections(const Children& children, std::int32_t known) {
    std::int32_t n_conns = 0;
    for (const std::int32_t conn : children.conn) n_conns = std::max(n_conns, conn + 1);
    constexpr Time kUnseen = std::numeric_limits<Time>::max();
    std::vector<Time> first(n_conns, kUnseen), last(n_conns, 0);
    for (std::size_t c = 0; c < children.size(); ++c) {
        const auto conn = children.conn[c];
        first[conn] = std::min(first[conn], children.begin[c]);
        last[conn] = std::max(last[conn], children.end[c]);
    }
    const auto old = static_cast<std::ptrdiff_t>(std::min(known, n_conns));
    std::fill(first.begin(), first.begin() + old, std::numeric_limits<Time>::min());
    std::vector<std::size_t> server_of(first.size(), 0);
    std::size_t servers = 1;
    for (std::size_t c = 0; c < children.server.size(); ++c) {
        const auto server = static_cast<std::size_t>(children.server[c]);
        server_of[static_cast<std::size_t>(children.conn[c])] = server;
        servers = std::max(servers, server + 1);
    }
    // +1/-1 steps of "alive" and of "busy"; children are sorted by begin, so one merge is enough.
    struct Change {
        Time at;
        std::int32_t by;
        std::size_t server;
        bool operator<(const Change& other) const noexcept { return at < other.at; }
    };
    std::vector<Change> changes;
    changes.reserve(2 * first.size() + children.size());
    for (std::size_t conn = 0; conn < first.size(); ++conn) {
        if (first[conn] == kUnseen) continue;
        changes.push_back({first[conn], 1, server_of[conn]});
        changes.push_back({last[conn] + 1, -1, server_of[conn]});
    }
    for (std::size_t c = 0; c < children.size(); ++c) {
        changes.push_back({children.end[c] + 1, 1, server_of[static_cast<std::size_t>(children.conn[c])]});
    }
    std::sort(changes.begin(), changes.end());
    std::vector<float> idle(children.size());
    std::size_t at = 0;
    std::vector<std::int64_t> counts(servers, 0);
    for (std::size_t c = 0; c < children.size(); ++c) {
        for (; at < changes.size() && changes[at].at <= children.begin[c]; ++at) {
            counts[changes[at].server] += changes[at].by;
        }
        auto& count = counts[server_of[static_cast<std::size_t>(children.conn[c])]];
        idle[c] = static_cast<float>(std::max<std::int64_t>(count, 1));
        --count;  // busy from here to its end
    }
    return idle;
}

}  // namespace tapscope::match
