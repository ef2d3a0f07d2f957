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
            expect(workers.splits() == processes - 1, "every process is found");
            expect(node.lost() == 0, "a call keeps its own request");
            expect(node.foreign() < 0.02 * static_cast<double>(node.before), "hardly any other is left");
        }
        for (const bool bursts : {false, true}) {
            Node node(1, mean, bursts);
            Workers workers;
            workers.separate(node.problem, node.candidates);
            expect(workers.splits() == 0 && node.left() == 1.0, "one process is not taken apart");
        }
    }
    {
        Node node(2, 5, true);
        Workers workers;
        workers.separate(node.problem, node.candidates);
        expect(workers.splits() == 1 && node.lost() == 0, "bursts do not hide two processes");
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
        expect(workers.splits() == 0, "where connections are shared now and then nobody is told apart");
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
        expect(workers.splits() == 0 && node.left() == 1.0, "bonds are left to what tells of bonds");
    }
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
