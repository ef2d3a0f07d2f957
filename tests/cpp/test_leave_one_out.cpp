// A step that taught the model scores what a model says that it did not teach.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
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
constexpr std::int32_t kRequests = 400;

// Requests one after the other, each with two calls of any classes.
struct World : RequestRows {
    std::int32_t classes;

    World(std::int32_t n_classes, unsigned seed) : classes(n_classes) {
        std::mt19937 draw(seed);
        std::lognormal_distribution<> gap(0.0, 1.0);
        std::uniform_int_distribution<std::int32_t> cls(0, classes - 1);
        const auto later = [&](Time at) { return at + static_cast<Time>(gap(draw) * kMs); };
        for (std::int32_t p = 0; p < kRequests; ++p) {
            const Time came = static_cast<Time>(p) * 100 * kMs;
            const Time first = later(came), second = later(first + kMs);
            request(came, later(second + kMs));
            for (const Time at : {first, second}) call(p, cls(draw), at, at + kMs, 0);
        }
    }
};

// The step from the first to the second call of request p. `taught`: p is one of those that teach.
Model::Parts second_call(const World& world, std::int32_t p, bool taught) {
    auto problem = world.problem(world.classes);
    auto answered = world.answered;
    auto parent_of = world.parent_of;
    const std::int32_t first = 2 * p;
    if (!taught) {
        parent_of[first] = parent_of[first + 1] = kNone;
        answered[p] = 0;  // nothing is known about its end
        problem.parents.answered = answered;
    }
    Candidates candidates;
    find_candidates(problem, candidates);
    candidates.content.assign(candidates.parent.size(), 0.0f);
    const Affinity affinity{1, world.classes, std::vector<double>(world.classes, 0.5)};
    Model model(problem, candidates, affinity, idle_connections(problem.children));
    model.estimate(parent_of);
    return model.parts(p, Tip{first, first, 0}, first + 1);
}

void compare(std::int32_t classes) {
    const World world(classes, 7);
    double furthest = 0;
    for (std::int32_t p = 3; p < kRequests; p += 13) {
        const auto own = second_call(world, p, true), others = second_call(world, p, false);
        furthest = std::max({furthest, std::abs(static_cast<double>(own.rest - others.rest)),
                             std::abs(static_cast<double>(own.gap - others.gap))});
    }
    std::printf("%d classes: %.3f nats at most\n", classes, furthest);
    expect(furthest < 0.1, "a step does not vouch for itself");
}

}  // namespace

int main() {
    compare(2);
    compare(40);
    std::printf("leave one out: %d differences\n", failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
