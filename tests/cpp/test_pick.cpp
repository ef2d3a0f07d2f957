// Which of the idle connections is taken: a pool that is a stack, one that is a queue, and one that lends any.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "expect.hpp"
#include "pick.hpp"
#include "request_rows.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::RequestRows;

namespace {

constexpr Time kMs = 1'000'000;
constexpr std::int32_t kConnections = 6, kCalls = 3000;

enum class Lends { last, first, any };

// Calls of one request each, every one on a connection that is idle; the one before it on the connection; and its place.
struct Pool {
    RequestRows rows;
    Problem problem;
    std::vector<std::int32_t> before;
    std::vector<std::size_t> from_last;
    std::vector<float> idle;

    explicit Pool(Lends lends, std::int32_t calls = kCalls) {
        std::mt19937 random(1);
        std::vector<Time> until(kConnections, 0);
        std::vector<std::int32_t> latest(kConnections, kNone);
        Time now = kMs;
        for (std::int32_t c = 0; c < calls; ++c) {
            now += kMs + static_cast<Time>(random() % (2 * kMs));
            std::vector<std::size_t> free;
            for (std::size_t conn = 0; conn < kConnections; ++conn) {
                if (until[conn] < now) free.push_back(conn);
            }
            if (free.empty()) continue;
            std::sort(free.begin(), free.end(),
                      [&](std::size_t a, std::size_t b) { return until[a] > until[b]; });
            const auto place = lends == Lends::last    ? 0
                               : lends == Lends::first ? free.size() - 1
                                                       : random() % free.size();
            const auto conn = free[place];
            const auto request = static_cast<std::int32_t>(before.size());
            const Time end = now + static_cast<Time>(random() % (4 * kMs)) + 1;
            rows.request(now - kMs / 2, end + kMs);
            rows.call(request, 0, now, end, static_cast<std::int32_t>(conn));
            before.push_back(latest[conn]);
            from_last.push_back(place);
            latest[conn] = request;
            until[conn] = end;
        }
        problem = rows.problem(1);
        idle = idle_connections(problem.children);
    }
};

double chance(const Pool& pool, const Pick& pick, std::size_t c) {
    return std::exp(pick.log_chance(static_cast<std::int32_t>(c), -std::log(pool.idle[c])));
}

void stacks_and_queues_are_told() {
    for (const auto lends : {Lends::last, Lends::first}) {
        Pick pick;
        const Pool pool(lends);
        pick.bind(pool.problem, pool.before);
        expect(pick.strict(0), "they are told");
        double sum = 0;
        for (std::size_t c = kConnections; c < pool.before.size(); ++c) {
            expect(chance(pool, pick, c) < 1 + 1e-6,
                   "a chance, also where connections will not be used again");
            sum += chance(pool, pick, c);
        }
        expect(sum > 0.85 * static_cast<double>(pool.before.size()), "and what was taken is what they lend");
    }
}

void a_pool_without_order_says_nothing() {
    Pick pick;
    const Pool pool(Lends::any);
    pick.bind(pool.problem, pool.before);
    expect(!pick.strict(0), "it has none");
    for (std::size_t c = 0; c < pool.before.size(); ++c) {
        expect(pick.log_chance(static_cast<std::int32_t>(c), -1.5f) == -1.5f, "any is as likely");
    }
}

// A stack says of a pool without order how likely each place would be: those of four are 1 in sum.
void chances_are_one_in_sum() {
    constexpr int kIdle = 4;
    Pick pick;
    const Pool stack(Lends::last);
    pick.bind(stack.problem, stack.before);
    const Pool few(Lends::any, 200);
    pick.bind(few.problem, few.before);
    expect(pick.strict(0), "what was told before is not forgotten at once");
    std::vector<double> at(kIdle, 0);
    for (std::size_t c = kConnections; c < few.before.size() / 2; ++c) {  // all six are used again
        if (static_cast<int>(few.idle[c]) == kIdle && few.before[c] != kNone)
            at[few.from_last[c]] = chance(few, pick, c);
    }
    expect(std::abs(at[0] + at[1] + at[2] + at[3] - 1) < 1e-4, "of four");
    expect(at[0] > at[1] && at[1] > 0, "the last one is the likeliest");
}

}  // namespace

int main() {
    stacks_and_queues_are_told();
    a_pool_without_order_says_nothing();
    chances_are_one_in_sum();
    return tapscope::test::failures > 0;
}
