// Calls that overlap by exception: on one connection they are learned for each kind of step, side by side on two they
// are an exception of the request's class, however often one kind of step seems to do so.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "content.hpp"
#include "expect.hpp"
#include "model.hpp"
#include "request_rows.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;
using tapscope::test::RequestRows;

namespace {

constexpr Time kMs = 1'000'000;
constexpr std::int32_t kUsual = 0, kLater = 1, kBeside = 2, kPiped = 3, kClasses = 4;

// Requests one after the other, each with a usual call and another one behind it, on four connections in turn.
struct World : RequestRows {
    // The second call, which begins in the middle of the first or a while after it; on its connection or another one.
    std::int32_t add(std::int32_t second, bool overlaps, bool same_connection) {
        const Time at = static_cast<Time>(parent_cls.size()) * 20 * kMs;
        const auto p = request(at, at + 10 * kMs);
        const std::int32_t own = p % 4, other = (p + 1) % 4;
        call(p, kUsual, at + kMs, at + 3 * kMs, own);
        const Time begins = at + (overlaps ? 2 : 4) * kMs;
        call(p, second, begins, begins + 2 * kMs, same_connection ? own : other);
        return p;
    }
};

}  // namespace

int main() {
    World world;
    std::int32_t later = 0, beside = 0, piped = 0;
    for (int i = 0; i < 600; ++i) {
        // As often as each other; the others follow as a rule.
        const int kind = i % 60;
        if (kind == 0) {
            later = world.add(kLater, false, false);
        } else if (kind == 1) {
            beside = world.add(kBeside, true, false);
        } else if (kind == 2) {
            piped = world.add(kPiped, true, true);
        } else {
            world.add(kUsual, false, true);
        }
    }
    const auto problem = world.problem(kClasses);
    Candidates candidates;
    find_candidates(problem, candidates);
    candidates.content.assign(candidates.parent.size(), 0.0f);
    const Affinity affinity{1, kClasses, std::vector<double>(kClasses, 0.5)};
    Model model(problem, candidates, affinity, idle_connections(problem.children));
    for (int round = 0; round < 2; ++round) model.estimate(world.parent_of);

    // What the second call of p says, but for its gap.
    const auto second = [&](std::int32_t p) {
        const std::int32_t first = 2 * p;
        return model.parts(p, Tip{first, first, 0}, first + 1).rest;
    };
    expect(second(beside) < second(later) - 3.0f, "calls side by side stay an exception");
    expect(second(piped) > second(later) - 1.5f, "calls piped into one connection are learned");
    std::printf("overlaps: %d differences\n", failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
