// Rings of exchanges where no two parents gain by one: worlds are shared out at random, improved pair by pair until
// nothing gains, and then by rings. The obvious twin scores all chains as a whole, before and behind.
#include "ejection.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "content.hpp"
#include "expect.hpp"
#include "model.hpp"
#include "request_rows.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;
using tapscope::test::RequestRows;

namespace {

constexpr std::int32_t kClasses = 12;
constexpr unsigned kWorlds = 20;

// Requests that each hold one of ten connections and ask one to six statements, in any order.
RequestRows rows(unsigned seed, int requests) {
    struct Call {
        Time begin, end;
        std::int32_t parent, cls, conn;
    };
    std::mt19937 random(seed);
    std::exponential_distribution<double> apart(1.0 / 2.5e6);
    std::lognormal_distribution<double> own(0.0, 0.8), answered(0.5, 0.6);
    RequestRows out;
    std::vector<Call> calls;
    std::vector<Time> free_at(10, 0);
    double now = 0;
    for (int k = 0; k < requests; ++k) {
        now += apart(random);
        const auto arrive = static_cast<Time>(now);
        std::vector<std::int32_t> idle;
        for (std::int32_t conn = 0; conn < 10; ++conn) {
            if (free_at[static_cast<std::size_t>(conn)] < arrive) idle.push_back(conn);
        }
        if (idle.empty()) continue;
        const auto conn = idle[random() % idle.size()];
        const auto parent = static_cast<std::int32_t>(out.parent_cls.size());
        Time at = arrive;
        for (unsigned left = 1 + random() % 6; left > 0; --left) {
            const Time begin = at + static_cast<Time>(own(random) * 1e6);
            at = begin + static_cast<Time>(answered(random) * 1e6);
            calls.push_back({begin, at, parent, static_cast<std::int32_t>(random() % kClasses), conn});
        }
        at += static_cast<Time>(own(random) * 1e6);
        free_at[static_cast<std::size_t>(conn)] = at;
        out.request(arrive, at);
    }
    std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin < b.begin; });
    for (const auto& call : calls) out.call(call.parent, call.cls, call.begin, call.end, call.conn);
    return out;
}

double score_of(const Problem& problem, const Model& model, const std::vector<std::int32_t>& parent_of) {
    std::vector<Tip> tip(problem.parents.size());
    double score = 0;
    for (std::size_t c = 0; c < parent_of.size(); ++c) {
        const auto p = parent_of[c];
        const auto child = static_cast<std::int32_t>(c);
        score += model.step(p, tip[static_cast<std::size_t>(p)], child);
        model.advance(p, tip[static_cast<std::size_t>(p)], child);
    }
    for (std::size_t p = 0; p < tip.size(); ++p) {
        score += model.step(static_cast<std::int32_t>(p), tip[p], kEnd);
    }
    return score;
}

// Shares children out between all pairs until none gains.
void climb_by_pairs(Chains& chains, PairSplit& split) {
    for (bool improved = true; improved;) {
        improved = false;
        for (std::int32_t p = 0; p < chains.parents(); ++p) {
            for (std::int32_t q = p + 1; q < chains.parents(); ++q) {
                if (!split.load(p, q, chains.held(p), chains.held(q)) || split.best() < 1e-3f) continue;
                chains.take(p, q, split);
                improved = true;
            }
        }
    }
}

int wrong(const std::vector<std::int32_t>& found, const std::vector<std::int32_t>& truth) {
    int out = 0;
    for (std::size_t c = 0; c < truth.size(); ++c) out += found[c] != truth[c];
    return out;
}

}  // namespace

int main() {
    const Stop stop;
    unsigned gained = 0;
    int wrong_before = 0, wrong_behind = 0;
    for (unsigned seed = 1; seed <= kWorlds; ++seed) {
        const auto world = rows(seed, 150);
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

        std::mt19937 random(seed);
        auto anyhow = world.parent_of;
        for (std::size_t c = 0; c < anyhow.size(); ++c) {
            const auto here = candidates.of(c);
            anyhow[c] = here[random() % here.size()];
        }
        Chains chains(candidates);
        chains.resize(problem.parents.size(), problem.children.size());
        chains.restore(anyhow);
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
