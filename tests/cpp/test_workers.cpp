// Worker processes: told apart by their connections, at light load and at a high one; not where one pool lends all of
// them, not even where its last connections are used in bursts alone.
#include "workers.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "expect.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

struct Chance {
    std::uint64_t state = 7;
    std::uint64_t next(std::uint64_t below) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return (state >> 33) % below;
    }
};

// The connections of each process, as a stack: the one that was given back last is taken next.
struct Pools {
    struct Use {
        Time until;
        std::int32_t process, conn;
    };
    std::vector<std::vector<std::int32_t>> idle;
    std::vector<Use> taken;
    std::int32_t made = 0;
    explicit Pools(std::int32_t processes) : idle(static_cast<std::size_t>(processes)) {}
    std::int32_t take(std::int32_t process, Time now, Time until) {
        std::erase_if(taken, [&](const Use& use) {
            if (use.until >= now) return false;
            idle[static_cast<std::size_t>(use.process)].push_back(use.conn);
            return true;
        });
        auto& own = idle[static_cast<std::size_t>(process)];
        std::int32_t out = made;
        if (own.empty()) {
            ++made;
        } else {
            out = own.back();
            own.pop_back();
        }
        taken.push_back({until, process, out});
        return out;
    }
};

// Requests of 10 units of time with three calls each, which take a connection for themselves alone, served by so many
// processes; `mean` units between two requests, a tenth of that in a burst. Of `stray` in a thousand the calls go out by
// any process.
struct Node {
    std::vector<std::int64_t> ahead, conn_name;
    std::vector<std::int32_t> conn, parent_cls, child_cls, parent_of, process;
    std::vector<Time> arrive, depart, begin, end;
    std::vector<std::uint8_t> answered;
    Problem problem;
    Candidates candidates;
    std::int64_t before = 0;  // candidates that were there

    Node(std::int32_t processes, std::uint64_t mean, bool bursts, std::uint64_t stray = 0) {
        constexpr std::int32_t kRequests = 4000;
        constexpr Time kUnit = 1'000'000;
        Chance chance;
        Pools in(processes), out(processes);
        const auto any = [&] {
            return static_cast<std::int32_t>(chance.next(static_cast<std::uint64_t>(processes)));
        };
        struct Call {
            Time begin, end;
            std::int32_t process, parent;
        };
        std::vector<Call> calls;
        Time now = 0;
        for (std::int32_t r = 0; r < kRequests; ++r) {
            const bool burst = bursts && r / 200 % 2 == 1;
            now += static_cast<Time>(1 + chance.next(2 * mean * (burst ? 100 : 1000))) * kUnit / 1000;
            const auto own = any();
            process.push_back(own);
            arrive.push_back(now);
            depart.push_back(now + 10 * kUnit);
            ahead.push_back(in.take(own, now, depart.back()));
            const bool astray = chance.next(1000) < stray;
            for (int call = 0; call < 3; ++call) {
                const Time from = now + (1 + 3 * call) * kUnit + static_cast<Time>(chance.next(500'000));
                const Time until = from + kUnit / 4 + static_cast<Time>(chance.next(1'500'000));
                calls.push_back({from, until, astray ? any() : own, r});
            }
        }
        std::stable_sort(calls.begin(), calls.end(),
                         [](const Call& a, const Call& b) { return a.begin < b.begin; });
        for (const auto& call : calls) {
            conn.push_back(out.take(call.process, call.begin, call.end));
            conn_name.push_back(conn.back());
            begin.push_back(call.begin);
            end.push_back(call.end);
            parent_of.push_back(call.parent);
        }
        parent_cls.assign(ahead.size(), 0);
        child_cls.assign(conn.size(), 0);
        answered.assign(ahead.size(), 1);
        problem.parents = {parent_cls, ahead, arrive, arrive, depart, depart, answered, {}, 1};
        problem.children.cls = child_cls;
        problem.children.conn = conn;
        problem.children.conn_name = conn_name;
        problem.children.begin = begin;
        problem.children.response_begin = problem.children.end = end;
        problem.children.n_classes = 1;
        find_candidates(problem, candidates);
        before = candidates.offset.back();
    }
    // Share of the candidates that are left.
    double left() const {
        return static_cast<double>(candidates.offset.back()) / static_cast<double>(before);
    }
    // Calls whose own request is no candidate any more.
    int lost() const {
        int out = 0;
        for (std::size_t c = 0; c < conn.size(); ++c) out += candidates.find(c, parent_of[c]) < 0;
        return out;
    }
    // The calls that begin while requests [from, until) come, without the requests in flight before.
    Problem stretch(std::size_t from, std::size_t until) {
        const auto at = [&](std::size_t r) {
            return std::lower_bound(begin.begin(), begin.end(), arrive[r]) - begin.begin();
        };
        const auto first = static_cast<std::size_t>(at(from)),
                   count = static_cast<std::size_t>(at(until)) - first;
        const auto early = from < 40 ? 0 : from - 40;
        Problem out = problem;
        const auto cut = [&](auto& column) { column = column.subspan(early, until - early); };
        cut(out.parents.cls), cut(out.parents.conn), cut(out.parents.arrive), cut(out.parents.request_end);
        cut(out.parents.response_begin), cut(out.parents.depart), cut(out.parents.answered);
        const auto cut_calls = [&](auto& column) { column = column.subspan(first, count); };
        cut_calls(out.children.cls), cut_calls(out.children.conn), cut_calls(out.children.conn_name);
        cut_calls(out.children.begin), cut_calls(out.children.response_begin), cut_calls(out.children.end);
        return out;
    }
    // Candidates of another process than their call's own request.
    int foreign() const {
        int out = 0;
        for (std::size_t c = 0; c < conn.size(); ++c) {
            const auto own = process[static_cast<std::size_t>(parent_of[c])];
            for (const auto p : candidates.of(c)) out += process[static_cast<std::size_t>(p)] != own;
        }
        return out;
    }
};

}  // namespace

int main() {
    for (const std::uint64_t mean : {20, 5, 2}) {  // in units: half a request, two, five in flight
        for (const std::int32_t processes : {2, 3, 4}) {
            Node node(processes, mean, false);
            Workers workers;
            workers.separate(node.problem, node.candidates);
            expect(workers.processes() == processes, "every process is found");
            expect(node.lost() == 0, "a call keeps its own request");
            expect(node.foreign() < 0.02 * static_cast<double>(node.before), "hardly any other is left");
        }
        for (const bool bursts : {false, true}) {
            Node node(1, mean, bursts);
            Workers workers;
            workers.separate(node.problem, node.candidates);
            expect(workers.processes() == 0 && node.left() == 1.0, "one process is not taken apart");
        }
    }
    {
        Node node(2, 5, true);
        Workers workers;
        workers.separate(node.problem, node.candidates);
        expect(workers.processes() == 2 && node.lost() == 0, "bursts do not hide two processes");
    }
    {
        Node node(2, 5, false, 10);
        Workers workers;
        workers.separate(node.problem, node.candidates);
        expect(node.lost() < 150, "calls that go astray do not take others with them");
    }
    {
        Node node(2, 5, false, 200);
        Workers workers;
        workers.separate(node.problem, node.candidates);
        expect(workers.processes() == 0, "where connections are shared now and then nobody is told apart");
    }
    {
        // Each process has one connection on either side: those are bonds.
        Node node(3, 40, false);
        for (std::size_t r = 0; r < node.ahead.size(); ++r) node.ahead[r] = node.process[r];
        for (std::size_t c = 0; c < node.conn.size(); ++c) {
            node.conn[c] = node.process[static_cast<std::size_t>(node.parent_of[c])];
        }
        Workers workers;
        workers.separate(node.problem, node.candidates);
        expect(workers.processes() == 0 && node.left() == 1.0, "bonds are left to what tells of bonds");
    }
    {
        // Connections are known in later stretches, which are too short, and too busy, to tell them from.
        Node node(2, 2, false);
        Workers workers, fresh;
        workers.separate(node.problem, node.candidates);
        auto stretch = node.stretch(2000, 2050);
        Candidates all, candidates;
        find_candidates(stretch, all);
        candidates = all;
        fresh.separate(stretch, candidates);
        expect(fresh.processes() == 0 && stretch.processes == 1, "nobody could tell them from so few calls");
        workers.separate(stretch, candidates);
        expect(workers.processes() == 2 && stretch.processes == 3, "but they are remembered");
        expect(candidates.offset.back() < 0.7 * static_cast<double>(all.offset.back()), "and help");
        bool right = true;
        for (std::size_t c = 0; c < stretch.children.size(); ++c) {
            for (const auto p : candidates.of(c)) {
                const auto own = stretch.process_of_parent(static_cast<std::size_t>(p));
                right = right && own == stretch.process_of_child(c);
            }
        }
        expect(right, "each row is told its process");
    }
    {
        // The same names mean other processes from one stretch to the next.
        Node node(2, 5, false), other(2, 4, false);
        Workers workers;
        workers.separate(node.problem, node.candidates);
        for (auto* names : {&other.ahead, &other.conn_name}) {
            for (auto& name : *names) name ^= 1;
        }
        workers.separate(other.problem, other.candidates);
        expect(other.lost() == 0, "what is remembered is not believed against what is seen");
    }
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
