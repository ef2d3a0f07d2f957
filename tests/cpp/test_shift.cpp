// Calls of one class that are all one request off: in a world where all is right, the first calls of some requests in a row
// go to the one behind each, and the last of them to nobody or to somebody who has his own, too. The obvious twin scores
// all chains as a whole, before and behind.
#include "shift.hpp"

#include <cstdio>
#include <cstdlib>
#include <random>

#include "content.hpp"
#include "expect.hpp"
#include "held_connections.hpp"
#include "model.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;
using tapscope::test::RequestRows;
using tapscope::test::score_of;
using tapscope::test::wrong;

namespace {

constexpr unsigned kWorlds = 20;
constexpr int kRequests = 300;
constexpr std::int32_t kClasses = 5;  // of which the first is that of all first calls

// Requests that overlap, and ask for their session before anything else.
RequestRows sessions_first(unsigned seed) {
    struct Call {
        Time begin, end;
        std::int32_t parent, cls;
    };
    std::mt19937 random(seed);
    std::exponential_distribution<double> apart(1.0 / 1e6);
    std::lognormal_distribution<double> first(0.0, 0.1), gap(0.0, 0.3);
    RequestRows out;
    std::vector<Call> calls;
    double now = 0;
    for (int k = 0; k < kRequests; ++k) {
        now += apart(random);
        Time at = static_cast<Time>(now);
        const auto arrive = at;
        const auto parent = static_cast<std::int32_t>(out.parent_cls.size());
        const int count = 2 + static_cast<int>(random() % 4);
        for (int call = 0; call < count; ++call) {
            const auto cls = call == 0 ? 0 : 1 + static_cast<std::int32_t>(random() % (kClasses - 1));
            const Time begin = at + static_cast<Time>(call == 0 ? first(random) * 2e6 : gap(random) * 3e5);
            at = begin + static_cast<Time>(gap(random) * 3e5);
            calls.push_back({begin, at, parent, cls});
        }
        out.request(arrive, at + static_cast<Time>(gap(random) * 3e5));
    }
    std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin < b.begin; });
    std::int32_t conn = 0;
    for (const auto& call : calls) out.call(call.parent, call.cls, call.begin, call.end, conn++ % 40);
    return out;
}

// Runs of requests whose first calls are those of the one before. Returns how many runs there are.
int move_some(const Candidates& candidates, const RequestRows& world, std::mt19937& random,
              std::vector<std::int32_t>& parent_of) {
    std::vector<std::int32_t> first(world.parent_cls.size(), kNone);
    for (std::size_t c = 0; c < parent_of.size(); ++c) {
        if (world.child_cls[c] == 0)
            first[static_cast<std::size_t>(parent_of[c])] = static_cast<std::int32_t>(c);
    }
    int runs = 0;
    for (std::size_t p = 0; p + 40 < first.size(); p += 40) {
        const auto last = p + 2 + random() % 4;
        bool fits = true;
        for (auto q = p; q < last; ++q) {
            fits = fits &&
                   candidates.find(static_cast<std::size_t>(first[q]), static_cast<std::int32_t>(q + 1)) >= 0;
        }
        if (!fits) continue;
        for (auto q = p; q < last; ++q)
            parent_of[static_cast<std::size_t>(first[q])] = static_cast<std::int32_t>(q + 1);
        // Of every other run the last request keeps its own call, too.
        if (runs++ % 2 == 0) parent_of[static_cast<std::size_t>(first[last])] = kNone;
    }
    return runs;
}

}  // namespace

int main() {
    const Stop stop;
    int runs = 0, moved = 0, left = 0;
    double lost = 0, regained = 0;
    for (unsigned seed = 1; seed <= kWorlds; ++seed) {
        const auto world = sessions_first(seed);
        const auto problem = world.problem(kClasses);
        Candidates candidates;
        find_candidates(problem, candidates);
        Affinity affinity{1, kClasses, std::vector<double>(kClasses, 1.0)};
        Model model(problem, candidates, affinity, idle_connections(problem.children));
        model.estimate(world.parent_of);
        AnswerLength length(problem);
        length.bind();  // it tells nothing, as nothing was learned
        Shift shift(problem, candidates, model, length, stop);

        std::mt19937 random(seed);
        auto parent_of = world.parent_of;
        runs += move_some(candidates, world, random, parent_of);
        Chains chains(candidates);
        chains.resize(problem.parents.size(), problem.children.size());
        chains.restore(parent_of);
        const bool changed = shift.run(chains);
        const auto& behind = chains.parent_of();
        expect(changed == (behind != parent_of), "it is told whether anything changed");
        const double gain = score_of(problem, model, behind) - score_of(problem, model, parent_of);
        expect(changed ? gain > 0.4 : gain == 0, "what changes gains");
        auto held = std::vector<std::int32_t>(behind.size(), kNone);
        for (std::int32_t p = 0; p < chains.parents(); ++p) {
            for (const auto c : chains.held(p)) held[static_cast<std::size_t>(c)] = p;
        }
        expect(held == behind, "chains and parents tell the same");
        lost += score_of(problem, model, world.parent_of) - score_of(problem, model, parent_of);
        regained += gain;
        moved += wrong(parent_of, world.parent_of);
        left += wrong(behind, world.parent_of);

        Shift again(problem, candidates, model, length, stop);
        chains.restore(world.parent_of);
        const double best = score_of(problem, model, world.parent_of);
        if (again.run(chains)) {
            expect(score_of(problem, model, chains.parent_of()) > best,
                   "what is right is left for what scores better");
        }
    }
    std::printf("shift: %d runs, %d calls moved, %d are wrong behind it; %.0f of %.0f nats regained\n", runs,
                moved, left, regained, lost);
    expect(runs > 60, "calls fit the request behind their own as a rule");
    expect(regained > 0.8 * lost, "most of what was lost by it is regained");
    expect(left < moved * 2 / 3, "many are put back");
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
