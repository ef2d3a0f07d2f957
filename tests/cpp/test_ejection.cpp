// Rings of exchanges where no two parents gain by one: worlds are shared out at random, improved pair by pair until
// nothing gains, and then by rings. The obvious twin scores all chains as a whole, before and behind.
#include "ejection.hpp"

#include <cstdio>
#include <cstdlib>

#include "content.hpp"
#include "expect.hpp"
#include "held_connections.hpp"
#include "model.hpp"

using namespace tapscope::match;
using tapscope::test::anyhow;
using tapscope::test::climb_by_pairs;
using tapscope::test::expect;
using tapscope::test::failures;
using tapscope::test::held_connections;
using tapscope::test::kClasses;
using tapscope::test::score_of;
using tapscope::test::wrong;

namespace {

constexpr unsigned kWorlds = 20;

}  // namespace

int main() {
    const Stop stop;
    unsigned gained = 0;
    int wrong_before = 0, wrong_behind = 0;
    for (unsigned seed = 1; seed <= kWorlds; ++seed) {
        const auto world = held_connections(seed, 150);
        const auto problem = world.problem(kClasses);
        Candidates candidates;
        find_candidates(problem, candidates);
        Affinity affinity{1, kClasses, std::vector<double>(kClasses, 1.0)};
        Model model(problem, candidates, affinity, idle_connections(problem.children));
        model.estimate(world.parent_of);
        AnswerLength length(problem);
        length.bind();  // it tells nothing, as nothing was learned
        PairSplit split(problem, candidates, model);
        Nearness nearness(problem, candidates, model, length, stop);
        Ejection ejection(problem, candidates, model, length, nearness, split, stop);

        Chains chains(candidates);
        chains.resize(problem.parents.size(), problem.children.size());
        chains.restore(anyhow(candidates, problem.children.size(), seed));
        climb_by_pairs(chains, split);
        const auto before = chains.parent_of();
        const double score = score_of(problem, model, before);

        ejection.run(chains, 8.0f);
        const auto& behind = chains.parent_of();
        const double gain = score_of(problem, model, behind) - score;
        expect(gain > -0.01, "all chains together score no worse");
        expect(behind == before || gain > 0.4, "what changes gains");
        for (std::size_t c = 0; c < behind.size(); ++c) {
            expect(candidates.find(c, behind[c]) >= 0, "a call stays with one who was there");
        }
        auto held = std::vector<std::int32_t>(behind.size(), kNone);
        for (std::int32_t p = 0; p < chains.parents(); ++p) {
            for (const auto c : chains.held(p)) held[static_cast<std::size_t>(c)] = p;
        }
        expect(held == behind, "chains and parents tell the same");
        gained += gain > 0.4;
        wrong_before += wrong(before, world.parent_of);
        wrong_behind += wrong(behind, world.parent_of);
    }
    std::printf("ejection: %u of %u worlds gained where no pair did; %d links wrong before, %d behind\n",
                gained, kWorlds, wrong_before, wrong_behind);
    expect(gained > kWorlds / 2, "most worlds have rings");
    expect(wrong_behind < wrong_before, "what scores better is more often right");
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
