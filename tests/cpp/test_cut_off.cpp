// Calls that were cut off from those that they follow: in a world where all is right, pairs of requests are given each
// other's calls, and those that do not fit are left to nobody. The obvious twin scores all chains as a whole, before and
// behind.
#include "cut_off.hpp"

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
using tapscope::test::held_connections;
using tapscope::test::kClasses;
using tapscope::test::score_of;

namespace {

constexpr unsigned kWorlds = 20;

// By child: the one before it on its connection.
std::vector<std::int32_t> before_on_conn(const std::vector<std::int32_t>& conn) {
    std::vector<std::int32_t> out, latest(conn.size(), kNone);
    for (std::size_t c = 0; c < conn.size(); ++c) {
        auto& last = latest[static_cast<std::size_t>(conn[c])];
        out.push_back(last);
        last = static_cast<std::int32_t>(c);
    }
    return out;
}

// Exchanges the calls of some pairs, no request twice. Where one of a pair can make none of the other's, nothing is done.
void exchange_some(const Candidates& candidates, std::size_t parents, std::mt19937& random,
                   std::vector<std::int32_t>& parent_of) {
    std::vector<std::int32_t> other(parents, kNone);
    std::vector<std::uint8_t> fits(parents, 0);
    for (std::size_t p = 0; p + 1 < parents; p += 4) {
        const auto q = p + 1 + random() % 3;
        if (q >= parents) continue;
        other[p] = static_cast<std::int32_t>(q);
        other[q] = static_cast<std::int32_t>(p);
    }
    for (std::size_t c = 0; c < parent_of.size(); ++c) {
        const auto p = static_cast<std::size_t>(parent_of[c]);
        if (other[p] != kNone && candidates.find(c, other[p]) >= 0) fits[p] = 1;
    }
    for (std::size_t c = 0; c < parent_of.size(); ++c) {
        const auto p = static_cast<std::size_t>(parent_of[c]), q = static_cast<std::size_t>(other[p]);
        if (other[p] == kNone || !fits[p] || !fits[q]) continue;
        parent_of[c] = candidates.find(c, other[p]) >= 0 ? other[p] : kNone;
    }
}

int nobodys(const std::vector<std::int32_t>& parent_of) {
    int out = 0;
    for (const auto p : parent_of) out += p == kNone;
    return out;
}

}  // namespace

int main() {
    const Stop stop;
    int cut_off = 0, left = 0;
    for (unsigned seed = 1; seed <= kWorlds; ++seed) {
        const auto world = held_connections(seed, 150);
        auto problem = world.problem(kClasses);
        const auto before_on = before_on_conn(world.child_conn);
        problem.children.before_on_conn = before_on;
        Candidates candidates;
        find_candidates(problem, candidates);
        Affinity affinity{1, kClasses, std::vector<double>(kClasses, 1.0)};
        Model model(problem, candidates, affinity, idle_connections(problem.children));
        model.estimate(world.parent_of);
        AnswerLength length(problem);
        length.bind();  // it tells nothing, as nothing was learned
        PairSplit split(problem, candidates, model);
        CutOff repair(problem, candidates, model, length, split, stop);

        std::mt19937 random(seed);
        auto parent_of = world.parent_of;
        exchange_some(candidates, problem.parents.size(), random, parent_of);
        Chains chains(candidates);
        chains.resize(problem.parents.size(), problem.children.size());
        chains.restore(parent_of);
        const bool changed = repair.run(chains);
        const auto& behind = chains.parent_of();
        expect(changed == (behind != parent_of), "it is told whether anything changed");
        const double gain = score_of(problem, model, behind) - score_of(problem, model, parent_of);
        expect(changed ? gain > 0.4 : gain == 0, "what changes gains");
        auto held = std::vector<std::int32_t>(behind.size(), kNone);
        for (std::int32_t p = 0; p < chains.parents(); ++p) {
            for (const auto c : chains.held(p)) held[static_cast<std::size_t>(c)] = p;
        }
        expect(held == behind, "chains and parents tell the same");
        cut_off += nobodys(parent_of);
        left += nobodys(behind);
    }
    std::printf("cut_off: %d calls of %u worlds were cut off, %d are still nobody's\n", cut_off, kWorlds,
                left);
    expect(cut_off > 100, "exchanged chains do not fit as a rule");
    expect(left < cut_off / 10, "nearly all go back to those that they follow");
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
