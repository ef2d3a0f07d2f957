// All leases of all connections at once. Small worlds against the obvious twin, which tries every way to share the calls
// out in leases; larger ones that were shared out at random and improved pair by pair until nothing gains.
#include "leases.hpp"

#include <algorithm>
#include <cmath>
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

constexpr unsigned kSmall = 40, kLarge = 20;
constexpr double kRounding = 0.02;  // nats

Candidates candidates_of(const Problem& problem) {
    Candidates out;
    find_candidates(problem, out);
    return out;
}

// A world with a model that knows its truth.
struct World {
    explicit World(unsigned seed, int requests)
        : rows(held_connections(seed, requests)),
          problem(rows.problem(kClasses)),
          candidates(candidates_of(problem)),
          affinity{1, kClasses, std::vector<double>(kClasses, 1.0)},
          model(problem, candidates, affinity, idle_connections(problem.children)),
          length(problem),
          nearness(problem, candidates, model, length, stop),
          leases(problem, candidates, model, nearness, stop),
          chains(candidates) {
        model.estimate(rows.parent_of);
        length.bind();  // it tells nothing, as nothing was learned
        chains.resize(problem.parents.size(), problem.children.size());
    }
    // As Leases counts: requests without calls are worth nothing.
    double score(const std::vector<std::int32_t>& parent_of) const {
        double out = score_of(problem, model, parent_of);
        for (std::size_t p = 0; p < problem.parents.size(); ++p) {
            out -= static_cast<double>(model.step(static_cast<std::int32_t>(p), kStart, kEnd));
        }
        return out;
    }

    const Stop stop;
    tapscope::test::RequestRows rows;
    Problem problem;
    Candidates candidates;
    Affinity affinity;
    Model model;
    AnswerLength length;
    Nearness nearness;
    Leases leases;
    Chains chains;
};

// Whether each request has one run of calls, on one connection.
bool in_leases(const World& world, const std::vector<std::int32_t>& parent_of) {
    const auto& conn = world.problem.children.conn;
    std::vector<std::int32_t> of(world.problem.parents.size(), kNone), last(16, kNone);
    for (std::size_t c = 0; c < parent_of.size(); ++c) {
        const auto p = parent_of[c];
        auto& before = last[static_cast<std::size_t>(conn[c])];
        if (p != kNone && p != before) {
            auto& mine = of[static_cast<std::size_t>(p)];
            if (mine != kNone) return false;
            mine = conn[c];
        }
        before = p;
    }
    return true;
}

// The best of all ways to share the calls out in leases.
double best_of_all(const World& world) {
    std::vector<std::int32_t> parent_of(world.problem.children.size(), kNone);
    double best = -1e30;
    const auto go_on = [&](const auto& self, std::size_t c) -> void {
        if (c == parent_of.size()) {
            if (in_leases(world, parent_of)) best = std::max(best, world.score(parent_of));
            return;
        }
        for (const auto p : world.candidates.of(c)) {
            parent_of[c] = p;
            self(self, c + 1);
        }
        parent_of[c] = kNone;
        self(self, c + 1);
    };
    go_on(go_on, 0);
    return best;
}

void small_worlds() {
    unsigned reached = 0, tried = 0;
    for (unsigned seed = 1; seed <= kSmall; ++seed) {
        World world(seed, 3);
        double ways = 1;
        for (std::size_t c = 0; c < world.problem.children.size(); ++c) {
            ways *= static_cast<double>(world.candidates.of(c).size() + 1);
        }
        if (ways > 3e5) continue;
        ++tried;
        const double best = best_of_all(world);
        world.chains.restore(std::vector<std::int32_t>(world.problem.children.size(), kNone));
        world.leases.run(world.chains, 0.0);
        const auto& behind = world.chains.parent_of();
        expect(world.leases.bound() > best - kRounding, "no leases are worth more than the bound");
        expect(std::abs(world.leases.behind() - world.score(behind)) < kRounding, "it counts what it found");
        reached += world.leases.behind() > best - kRounding;
    }
    std::printf("leases: the best of all ways in %u of %u small worlds\n", reached, tried);
    expect(tried > kSmall / 4, "small worlds are small");
    expect(10 * reached >= 9 * tried, "nearly always the best is found");
}

void large_worlds() {
    int before = 0, behind = 0;
    double short_of = 0, gained = 0;
    for (unsigned seed = 1; seed <= kLarge; ++seed) {
        World world(seed, 150);
        PairSplit split(world.problem, world.candidates, world.model);
        auto& chains = world.chains;
        chains.restore(anyhow(world.candidates, world.problem.children.size(), seed));
        climb_by_pairs(chains, split);
        before += wrong(chains.parent_of(), world.rows.parent_of);
        expect(world.score(world.rows.parent_of) > world.score(chains.parent_of()),
               "pairs end before the truth");
        world.leases.run(chains, 0.0);
        behind += wrong(chains.parent_of(), world.rows.parent_of);
        expect(world.leases.bound() > world.score(world.rows.parent_of) - kRounding,
               "the truth is in leases");
        expect(world.leases.behind() < world.leases.bound() + kRounding, "nothing exceeds the bound");
        short_of += world.leases.bound() - world.leases.behind();
        gained += world.leases.behind() - world.leases.before();
        const auto again = chains.parent_of();
        world.leases.run(chains, 1e6);
        expect(chains.parent_of() == again, "what cannot gain so much is left alone");
    }
    std::printf("leases: %d links wrong before, %d behind; %.0f nats gained, %.1f below the bound\n", before,
                behind, gained, short_of);
    expect(3 * behind < before, "most links that pairs leave wrong are put right");
    expect(short_of < 0.02 * gained, "hardly anything is left to gain");
}

}  // namespace

int main() {
    small_worlds();
    large_worlds();
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
