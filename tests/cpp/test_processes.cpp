// What is told by worker process: the order of first calls, requests in flight, and connections that lie idle.
#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "expect.hpp"
#include "idle_order.hpp"
#include "order.hpp"
#include "problem.hpp"
#include "request_rows.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::RequestRows;

namespace {

constexpr Time kMs = 1'000'000;

// Requests come every millisecond, to a quick process and to a slow one in turn. Both take them in order; the first
// call comes after half a millisecond in the one and after twenty in the other.
struct Two {
    static constexpr std::int32_t kRequests = 100;
    std::vector<std::int32_t> parent_process, child_process;
    RequestRows rows;
    Problem problem;

    Two() {
        struct Call {
            Time begin;
            std::int32_t parent;
        };
        std::vector<Call> calls;
        for (std::int32_t r = 0; r < kRequests; ++r) {
            parent_process.push_back(r % 2);
            rows.request(r * kMs, r * kMs + (r % 2 == 0 ? kMs : 24 * kMs));
            calls.push_back({r * kMs + (r % 2 == 0 ? kMs / 2 : 20 * kMs + kMs / 4), r});
        }
        std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin < b.begin; });
        for (const auto& call : calls) {
            rows.call(call.parent, 0, call.begin, call.begin + kMs / 8, call.parent % 2);
            child_process.push_back(call.parent % 2);
        }
        problem = rows.problem(1);
    }
    void tell() {
        problem.parents.process = parent_process;
        problem.children.process = child_process;
        problem.processes = 3;
    }
    int displaced() const {
        StartOrder order;
        order.rank(problem, rows.parent_of);
        int out = 0;
        for (std::size_t c = 0; c < rows.parent_of.size(); ++c) {
            out += order.place(rows.parent_of[c], static_cast<std::int32_t>(c)) != StartOrder::kBuckets / 2;
        }
        return out;
    }
};

// A connection that is given back and taken while one of another process, or to another server, lies idle.
void idle_connections_of_another_pool_are_not_looked_at() {
    const std::vector<std::int32_t> apart{0, 1, 1, 0}, before{kNone, kNone, 1, 0};
    RequestRows rows;
    for (const auto& [arrive, depart, conn] : {std::tuple{0, 10, 0}, {5, 20, 1}, {50, 60, 1}, {80, 90, 0}}) {
        rows.call(rows.request(arrive, depart), 0, arrive + 1, arrive + 2, conn);
    }
    auto problem = rows.problem(1);
    IdleOrder idle;
    idle.bind(before);
    idle.rank(problem, rows.parent_of);
    expect(idle.look(problem, 0, 0).nested == 1, "of one pool they are nested");
    const auto alone = [&] {
        idle.rank(problem, rows.parent_of);
        const auto around = idle.look(problem, 0, 0);
        return around.nested == 0 && around.crossed == 0;
    };
    problem.children.server = apart;
    problem.servers = 2;
    expect(alone(), "pools of two servers do not meet");
    problem.servers = 1;
    problem.parents.process = problem.children.process = apart;
    problem.processes = 3;
    expect(alone(), "nor those of two processes");
}

// It looks near the place where it looked last: whatever that was, it says the same as who looks for the first time.
void how_many_are_in_flight_does_not_depend_on_what_was_asked_before(const Problem& problem) {
    const auto& arrive = problem.parents.arrive;
    InFlight asked_often(problem);
    for (std::size_t i = 0; i < 2 * arrive.size(); ++i) {
        const auto p = i % 3 == 0 ? i * 7919 % arrive.size() : i / 2;  // now and then from far away
        for (const Time when : {arrive[p] - 1, arrive[p], problem.parents.depart[p], 2 * arrive[p]}) {
            expect(asked_often.at(0, when) == InFlight(problem).at(0, when), "as many as there are");
        }
    }
}

}  // namespace

int main() {
    Two two;
    expect(two.displaced() > 80, "requests of both processes overtake each other");
    expect(InFlight(two.problem).at(0, 50 * kMs + kMs / 4) == 13, "all that are in flight");
    how_many_are_in_flight_does_not_depend_on_what_was_asked_before(two.problem);
    two.tell();
    expect(two.displaced() == 0, "each process goes in the order of arrival");
    InFlight in_flight(two.problem);
    expect(in_flight.at(0, 50 * kMs + kMs / 4) == 1 && in_flight.at(1, 50 * kMs + kMs / 4) == 12,
           "those in flight at each");
    expect(in_flight.at(2, 50 * kMs) == 1, "never less than one");
    StartOrder order;
    order.rank(two.problem, two.rows.parent_of);
    order.suppose(2.0f);
    // The last call is of the slow process.
    expect(order.evidence(1, Two::kRequests - 1, kMs) < 0, "far from its place in the order");
    expect(order.evidence(0, Two::kRequests - 1, kMs) == 0, "a call of another process has no place in it");
    idle_connections_of_another_pool_are_not_looked_at();
    return tapscope::test::failures > 0;
}
