// What is told by the server that a connection leads to: each server has a pool of its own, with habits of its own.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "expect.hpp"
#include "hold.hpp"
#include "pick.hpp"
#include "problem.hpp"
#include "request_rows.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::RequestRows;

namespace {

constexpr Time kMs = 1'000'000;
constexpr std::int32_t kConnections = 6, kCalls = 4000;

// Calls to two servers in turn or as chance has it, one of each request. Both pools are stacks, or one is, and the other
// lends any.
struct Servers {
    RequestRows rows;
    std::vector<std::int32_t> server, before;
    Problem problem;

    explicit Servers(bool second_is_a_stack) {
        std::mt19937 random(7);
        std::array<std::vector<Time>, 2> until;
        std::array<std::vector<std::int32_t>, 2> latest;
        for (auto& each : until) each.assign(kConnections, 0);
        for (auto& each : latest) each.assign(kConnections, kNone);
        Time now = kMs;
        for (std::int32_t c = 0; c < kCalls; ++c) {
            now += kMs / 2 + static_cast<Time>(random() % kMs);
            const auto s = random() % 2;
            std::vector<std::size_t> free;
            for (std::size_t conn = 0; conn < kConnections; ++conn) {
                if (until[s][conn] < now) free.push_back(conn);
            }
            if (free.empty()) continue;
            std::sort(free.begin(), free.end(),
                      [&](std::size_t a, std::size_t b) { return until[s][a] > until[s][b]; });
            const auto conn = free[s == 0 || second_is_a_stack ? 0 : random() % free.size()];
            const Time end = now + static_cast<Time>(random() % (4 * kMs)) + 1;
            const auto call = static_cast<std::int32_t>(before.size());
            rows.request(now - kMs / 2, end + kMs);
            rows.call(call, static_cast<std::int32_t>(s), now, end,
                      static_cast<std::int32_t>(conn) + (s == 0 ? 0 : kConnections));
            server.push_back(static_cast<std::int32_t>(s));
            before.push_back(latest[s][conn]);
            latest[s][conn] = call;
            until[s][conn] = end;
        }
        problem = rows.problem(2);
    }
    void tell() {
        problem.children.server = server;
        problem.servers = 2;
    }
};

void stacks_beside_each_other_are_told() {
    Servers both(true), one(false);
    Pick mixed;
    mixed.bind(both.problem, both.before);
    expect(!mixed.strict(0), "two stacks that are taken for one pool have no order");
    both.tell();
    one.tell();
    Pick of_both, of_one;
    of_both.bind(both.problem, both.before);
    expect(of_both.strict(0) && of_both.strict(1), "each is a stack");
    of_one.bind(one.problem, one.before);
    expect(of_one.strict(0) && !of_one.strict(1), "and one that is none is not taken for one");
    for (std::size_t c = 0; c < one.before.size(); ++c) {
        if (one.server[c] == 1) {
            expect(of_one.log_chance(static_cast<std::int32_t>(c), -1.5f) == -1.5f, "it lends any");
        }
    }
}

// As many as an obvious twin counts: connections of that server which were used before, will be again, and are not now.
void idle_connections_are_those_of_the_server() {
    Servers servers(true);
    servers.tell();
    const auto& rows = servers.rows;
    const auto found = idle_connections(servers.problem.children);
    for (std::size_t c = 0; c < found.size(); c += 37) {
        std::set<std::int32_t> known, again, busy;
        for (std::size_t k = 0; k < found.size(); ++k) {
            if (servers.server[k] != servers.server[c]) continue;
            if (rows.begin[k] <= rows.begin[c]) known.insert(rows.child_conn[k]);
            if (rows.end[k] >= rows.begin[c]) again.insert(rows.child_conn[k]);
            if (k < c && rows.end[k] >= rows.begin[c]) busy.insert(rows.child_conn[k]);
        }
        int idle = 0;
        for (const auto conn : known) idle += again.contains(conn) && !busy.contains(conn);
        expect(static_cast<int>(found[c]) == std::max(idle, 1), "as many as the twin counts");
    }
}

// Two requests, either of which may have made both calls. Connections to the first server are held until the answer.
void each_server_has_a_habit_of_holding() {
    constexpr Time kAgain = 100;
    const std::vector<Time> answers = {50, 150};
    const std::vector<std::int32_t> server = {0, 1};
    Problem problem;
    problem.parents.response_begin = answers;
    problem.children.server = server;
    problem.servers = 2;
    Candidates candidates;
    candidates.offset = {0, 2, 4};
    candidates.parent = {0, 1, 0, 1};
    Hold hold;
    for (int i = 0; i < 1000; ++i) {
        hold.observe(problem, candidates, i < 990 ? 0 : 1, 0, kAgain);
        hold.observe(problem, candidates, i % 2, 1, kAgain);
    }
    hold.finish();
    expect(hold.evidence(0, true) < -1.5f, "who has not answered did not have the one");
    expect(std::abs(hold.evidence(1, true)) < 0.05f, "of the other it says nothing");
    expect(hold.evidence(2, true) == 0.0f, "nor of a server that was never asked");
}

}  // namespace

int main() {
    stacks_beside_each_other_are_told();
    idle_connections_are_those_of_the_server();
    each_server_has_a_habit_of_holding();
    return tapscope::test::failures > 0;
}
