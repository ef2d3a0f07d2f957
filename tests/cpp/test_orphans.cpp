// Calls that no request made: how many are expected of what is seen where no request is there.
#include "orphans.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "expect.hpp"
#include "request_rows.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::RequestRows;

namespace {

constexpr Time kMs = 1'000'000;
constexpr int kRequests = 2000;
constexpr std::int32_t kOwn = 0, kTimers = 1;

// A request every 10 ms, there for `stays`, that makes one call; and calls of 1 ms that a timer makes, at any time between.
struct Node {
    RequestRows rows;
    Problem problem;
    Candidates candidates;

    explicit Node(int timer_calls, Time from = 0, Time until = kRequests * 10 * kMs, Time stays = 6 * kMs) {
        std::mt19937 random(1);
        struct Call {
            Time begin;
            std::int32_t parent;
        };
        std::vector<Call> calls;
        for (int r = 0; r < kRequests; ++r) {
            rows.request(r * 10 * kMs, r * 10 * kMs + stays);
            calls.push_back({r * 10 * kMs + 2 * kMs, r});
        }
        std::uniform_int_distribution<Time> any(from, until);
        for (int i = 0; i < timer_calls; ++i) calls.push_back({any(random), kNone});
        std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin < b.begin; });
        for (const auto& [begin, parent] : calls) {
            rows.call(parent, parent == kNone ? kTimers : kOwn, begin, begin + kMs, 0);
        }
        problem = rows.problem(2);
        find_candidates(problem, candidates, {});
    }
};

double rate_per_second(const Node& node, std::int32_t cls, bool in_doubt = false) {
    Orphans orphans(node.problem, node.candidates);
    orphans.bind();
    orphans.estimate(0);
    return std::exp(in_doubt ? orphans.log_rate_in_doubt(cls) : orphans.log_rate(cls)) * 1e9;
}

void those_that_no_request_could_have_made_stand_for_all() {
    const Node node(1000);  // 50 a second, of which half find nobody for as long as they take
    expect(std::abs(rate_per_second(node, kTimers) - 50) < 7, "as many as there are");
}

void requests_own_calls_are_none() {
    const Node node(0);
    expect(rate_per_second(node, kOwn) < 0.01, "nobody makes them");
}

// A pool that is filled before the first request comes says nothing of later times.
void what_came_while_nobody_was_there_yet_stands_for_itself() {
    const Node node(200, -20'000 * kMs, -10'000 * kMs);
    expect(std::abs(rate_per_second(node, kTimers) - 200.0 / 41) < 1,
           "so many in 40 s, and one more in which nothing was seen");
}

// 100 of their own calls a second.
void where_somebody_is_always_there_a_few_may_be_nobodys() {
    const Node always(0, 0, kRequests * 10 * kMs, 25 * kMs);
    expect(rate_per_second(always, kOwn) < 0.01, "none is expected");
    const double hidden = rate_per_second(always, kOwn, true);
    expect(hidden > 0.25 && hidden < 0.31, "and three of a thousand are not excluded");
    const Node often(0);
    expect(rate_per_second(often, kOwn, true) < 0.3 * hidden, "where they would show, fewer are");
}

}  // namespace

int main() {
    those_that_no_request_could_have_made_stand_for_all();
    requests_own_calls_are_none();
    what_came_while_nobody_was_there_yet_stands_for_itself();
    where_somebody_is_always_there_a_few_may_be_nobodys();
    return tapscope::test::failures > 0;
}
