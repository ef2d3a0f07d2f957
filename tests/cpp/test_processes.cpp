// What is told by worker process: the order of first calls, requests in flight, and connections that lie idle.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "expect.hpp"
#include "idle_order.hpp"
#include "order.hpp"
#include "problem.hpp"

using namespace tapscope::match;
using tapscope::test::expect;

namespace {

constexpr Time kMs = 1'000'000;

// Requests come every millisecond, to a quick process and to a slow one in turn. Both take them in order; the first
// call comes after half a millisecond in the one and after twenty in the other.
struct Two {
    static constexpr std::int32_t kRequests = 100;
    std::vector<std::int32_t> parent_process, child_process, parent_of, cls, conn, before;
    std::vector<Time> arrive, depart, begin, end;
    std::vector<std::uint8_t> answered;
    Problem problem;

    Two() {
        struct Call {
            Time begin;
            std::int32_t parent;
        };
        std::vector<Call> calls;
        for (std::int32_t r = 0; r < kRequests; ++r) {
            parent_process.push_back(r % 2);
            arrive.push_back(r * kMs);
            depart.push_back(r * kMs + (r % 2 == 0 ? kMs : 24 * kMs));
            calls.push_back({r * kMs + (r % 2 == 0 ? kMs / 2 : 20 * kMs + kMs / 4), r});
        }
        std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin < b.begin; });
        for (const auto& call : calls) {
            parent_of.push_back(call.parent);
            child_process.push_back(call.parent % 2);
            conn.push_back(call.parent % 2);
            begin.push_back(call.begin);
            end.push_back(call.begin + kMs / 8);
        }
        cls.assign(kRequests, 0);
        answered.assign(kRequests, 1);
        problem.parents = {cls, {}, arrive, arrive, depart, depart, answered, {}, 1};
        problem.children.cls = cls;
        problem.children.conn = conn;
        problem.children.begin = begin;
        problem.children.response_begin = problem.children.end = end;
        problem.children.n_classes = 1;
    }
    void tell() {
        problem.parents.process = parent_process;
        problem.children.process = child_process;
        problem.processes = 3;
    }
    int displaced() const {
        StartOrder order;
        order.rank(problem, parent_of);
        int out = 0;
        for (std::size_t c = 0; c < parent_of.size(); ++c) {
            out += order.place(parent_of[c], static_cast<std::int32_t>(c)) != StartOrder::kBuckets / 2;
        }
        return out;
    }
};

// A connection that is given back and taken while one of another process lies idle.
void idle_connections_of_another_process_are_not_looked_at() {
    const std::vector<std::int32_t> cls(4, 0), process{0, 1, 1, 0}, parent_of{0, 1, 2, 3}, conn{0, 1, 1, 0};
    const std::vector<std::int32_t> before{kNone, kNone, 1, 0};
    const std::vector<Time> arrive{0, 5, 50, 80}, depart{10, 20, 60, 90}, begin{1, 6, 51, 81},
        end{2, 7, 52, 82};
    const std::vector<std::uint8_t> answered(4, 1);
    Problem problem;
    problem.parents = {cls, {}, arrive, arrive, depart, depart, answered, {}, 1};
    problem.children.cls = cls;
    problem.children.conn = conn;
    problem.children.begin = begin;
    problem.children.response_begin = problem.children.end = end;
    problem.children.n_classes = 1;
    IdleOrder idle;
    idle.bind(before);
    idle.rank(problem, parent_of);
    expect(idle.look(problem, 0, 0).nested == 1, "of one pool they are nested");
    problem.parents.process = problem.children.process = process;
    problem.processes = 3;
    idle.rank(problem, parent_of);
    const auto around = idle.look(problem, 0, 0);
    expect(around.nested == 0 && around.crossed == 0, "pools of two processes do not meet");
}

}  // namespace

int main() {
    Two two;
    expect(two.displaced() > 80, "requests of both processes overtake each other");
    expect(InFlight(two.problem).at(0, 50 * kMs + kMs / 4) == 13, "all that are in flight");
    two.tell();
    expect(two.displaced() == 0, "each process goes in the order of arrival");
    const InFlight in_flight(two.problem);
    expect(in_flight.at(0, 50 * kMs + kMs / 4) == 1 && in_flight.at(1, 50 * kMs + kMs / 4) == 12,
           "those in flight at each");
    expect(in_flight.at(2, 50 * kMs) == 1, "never less than one");
    StartOrder order;
    order.rank(two.problem, two.parent_of);
    order.suppose(2.0f);
    // The last call is of the slow process.
    expect(order.evidence(1, Two::kRequests - 1, kMs) < 0, "far from its place in the order");
    expect(order.evidence(0, Two::kRequests - 1, kMs) == 0, "a call of another process has no place in it");
    idle_connections_of_another_process_are_not_looked_at();
    return tapscope::test::failures > 0;
}
