// Whether the order of arrivals counts: where requests wait in a queue, and where each goes at its own pace.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "expect.hpp"
#include "model.hpp"
#include "problem.hpp"
#include "request_rows.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::RequestRows;

namespace {

constexpr Time kMs = 1'000'000;
constexpr int kRequests = 2000;

enum class Waits { in_a_queue, for_itself };

// Requests of one call each, as they were made. In a queue one after the other takes 2 ms, in order; else each takes as
// long as chance has it.
RequestRows requests(Waits waits, unsigned seed) {
    std::mt19937 random(seed);
    std::exponential_distribution<double> drawn(1.0);
    const auto after = [&](double mean_ms) { return static_cast<Time>(mean_ms * kMs * drawn(random)) + 1; };
    RequestRows rows;
    std::vector<Time> arrive;
    Time now = 0;
    for (int r = 0; r < kRequests; ++r) arrive.push_back(now += after(2.3));
    struct Call {
        Time begin;
        std::int32_t parent;
    };
    std::vector<Call> calls;
    Time free = 0;
    for (std::int32_t r = 0; waits == Waits::in_a_queue && r < kRequests; ++r) {
        free = std::max(free, arrive[static_cast<std::size_t>(r)]) + after(2.0);
        calls.push_back({free, r});
    }
    for (std::int32_t r = 0; waits == Waits::for_itself && r < kRequests; ++r) {
        calls.push_back({arrive[static_cast<std::size_t>(r)] + after(6.0), r});
    }
    std::vector<Time> depart(kRequests);
    std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin < b.begin; });
    for (const auto& call : calls) depart[static_cast<std::size_t>(call.parent)] = call.begin + 3 * kMs;
    for (std::size_t r = 0; r < kRequests; ++r) rows.request(arrive[r], depart[r]);
    std::int32_t conn = 0;
    for (const auto& call : calls) rows.call(call.parent, 0, call.begin, call.begin + kMs, conn++);
    return rows;
}

bool tells(Waits waits, unsigned seed) {
    const auto rows = requests(waits, seed);
    const auto problem = rows.problem(1);
    Candidates candidates;
    find_candidates(problem, candidates);
    Affinity affinity;
    affinity.n_parent = affinity.n_child = 1;
    affinity.weight = {1.0};
    Model model(problem, candidates, affinity, idle_connections(problem.children));
    for (int round = 0; round < 2; ++round) model.estimate(rows.parent_of);
    return model.order_tells(rows.parent_of);
}

}  // namespace

int main() {
    constexpr int kSeeds = 20;
    int in_a_queue = 0, for_itself = 0;
    for (unsigned seed = 1; seed <= kSeeds; ++seed) {
        in_a_queue += tells(Waits::in_a_queue, seed);
        for_itself += tells(Waits::for_itself, seed);
    }
    std::printf("order: told in %d queues, and of requests by themselves in %d of %d\n", in_a_queue,
                for_itself, kSeeds);
    expect(in_a_queue == kSeeds, "in a queue the order tells who is next");
    expect(for_itself <= 2, "where each goes at its own pace it tells nothing, but for chance");
    return tapscope::test::failures > 0;
}
