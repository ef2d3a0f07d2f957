// The pairwise split against its obvious twin: all 2^n ways to share n children between two parents.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <vector>

#include "content.hpp"
#include "model.hpp"
#include "pair.hpp"

using namespace tapscope::match;

namespace {

int failures = 0;
int fanned_out = 0;  // worlds in which the calls of one of the parents run side by side

void expect_near(double actual, double expected, double tolerance, const char* what, unsigned seed) {
    if (std::abs(actual - expected) <= tolerance) return;
    std::fprintf(stderr, "seed %u: %s is %.9g, expected %.9g\n", seed, what, actual, expected);
    ++failures;
}

// Two overlapping parents and a few children with random classes, connections and times.
struct World {
    std::vector<std::int32_t> parent_cls{0, 1};
    std::vector<Time> arrive{0, 300'000}, request_end{1000, 301'000}, response_begin, depart;
    std::vector<std::uint8_t> answered{1, 1};
    std::vector<std::int32_t> child_cls, child_conn;
    std::vector<Time> begin, end;
    std::vector<std::int64_t> no_tokens_p{0, 0, 0}, no_tokens_c;
    Problem problem;

    explicit World(std::mt19937& random) {
        const int n = 2 + static_cast<int>(random() % 7);
        Time at = 400'000;
        for (int i = 0; i < n; ++i) {
            at += 1000 + static_cast<Time>(random() % 400'000);
            child_cls.push_back(static_cast<std::int32_t>(random() % 3));
            child_conn.push_back(static_cast<std::int32_t>(random() % 3));
            begin.push_back(at);
            end.push_back(at + 1000 + static_cast<Time>(random() % 500'000));
        }
        // The second parent may leave early: then the last children are candidates of the first one only.
        const Time early = random() % 2 ? end[static_cast<std::size_t>(n) / 2] + 10'000 : at + 900'000;
        response_begin = {at + 2'000'000, std::max<Time>(early, 600'000)};
        depart = {response_begin[0] + 5000, response_begin[1] + 5000};
        no_tokens_c.assign(static_cast<std::size_t>(n) + 1, 0);
        problem.parents = {
            parent_cls, {}, arrive, request_end, response_begin, depart, answered, {no_tokens_p, {}, {}}, 2};
        problem.children = {child_cls, child_conn, begin, end, end, {no_tokens_c, {}, {}}, 3};
    }
};

double score_of(const World& world, const Model& model, const Candidates& candidates, unsigned split) {
    Tip tip[2];
    double score = 0;
    for (std::size_t i = 0; i < world.begin.size(); ++i) {
        const int side = (split >> i) & 1;
        const auto c = static_cast<std::int32_t>(i);
        const auto where = candidates.find(i, side);
        if (where < 0 || (candidates.certain(i) && candidates.certain_parent[i] != side)) return -INFINITY;
        score += model.step(side, tip[side], c) + candidates.content[where];
        model.advance(side, tip[side], c);
    }
    return score + model.step(0, tip[0], kEnd) + model.step(1, tip[1], kEnd);
}

void compare_with_twin(unsigned seed) {
    std::mt19937 random(seed);
    World world(random);
    Candidates candidates;
    find_candidates(world.problem, candidates);
    const auto idle = idle_connections(world.problem.children);
    for (auto& content : candidates.content) content = static_cast<float>(random() % 100) / 25.0f - 2.0f;
    Affinity affinity{2, 3, std::vector<double>(6, 1.0)};
    Model model(world.problem, candidates, affinity, idle);

    const std::size_t n = world.begin.size();
    std::vector<std::int32_t> held[2], parent_of(n);
    unsigned loaded = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const bool second = candidates.find(i, 1) >= 0 && random() % 2;
        held[second].push_back(static_cast<std::int32_t>(i));
        parent_of[i] = second;
        loaded |= static_cast<unsigned>(second) << i;
    }
    // Untaught and taught models; only a second estimate asks who fans out.
    for (unsigned round = 0; round < 2 * (seed % 2); ++round) model.estimate(parent_of);
    fanned_out += model.fans_out(0) || model.fans_out(1);
    // In every third world some children are certain: no split moves them.
    std::mt19937 others(seed);
    if (seed % 3 == 0) candidates.certain_parent.assign(n, kNone);
    for (std::size_t i = 0; i < candidates.certain_parent.size(); ++i) {
        if (others() % 4 == 0) candidates.certain_parent[i] = parent_of[i];
    }

    double top = -INFINITY, total = 0;
    std::vector<double> to_second(n, 0.0);
    std::map<unsigned, double> probability;
    std::vector<double> scores;
    for (unsigned split = 0; split < 1u << n; ++split) {
        scores.push_back(score_of(world, model, candidates, split));
        top = std::max(top, scores.back());
    }
    for (unsigned split = 0; split < 1u << n; ++split) {
        const double weight = std::exp(scores[split] - top);
        total += weight;
        probability[split] = weight;
        for (std::size_t i = 0; i < n; ++i) to_second[i] += (split >> i) & 1 ? weight : 0.0;
    }

    PairSplit pair(world.problem, candidates, model);
    if (!pair.load(0, 1, held[0], held[1])) {
        expect_near(total, 1.0, 1e-9, "number of possible splits of a pair that cannot exchange", seed);
        return;
    }
    const double gain = pair.best();
    unsigned best = 0;
    for (std::size_t i = 0; i < n; ++i) best |= static_cast<unsigned>(pair.side()[i]) << i;
    expect_near(score_of(world, model, candidates, best), top, 2e-3, "score of the best split", seed);
    expect_near(gain, top - score_of(world, model, candidates, loaded), 2e-3, "gain over the loaded split",
                seed);

    std::vector<double> marginal;
    pair.marginals(marginal);
    for (std::size_t i = 0; i < n; ++i)
        expect_near(marginal[i], to_second[i] / total, 1e-3, "marginal", seed);

    // With all evidence, and with a part of it, which makes the draws bolder.
    for (const float counts : {1.0f, 0.4f}) {
        pair.weigh_evidence(counts);
        pair.load(0, 1, held[0], held[1]);
        std::map<unsigned, int> drawn;
        constexpr int kDraws = 1500;
        for (int k = 0; k < kDraws; ++k) {
            pair.draw([&] { return std::uniform_real_distribution<double>()(random); });
            unsigned split = 0;
            for (std::size_t i = 0; i < n; ++i) split |= static_cast<unsigned>(pair.side()[i]) << i;
            ++drawn[split];
        }
        double all = 0;
        for (const auto& [split, weight] : probability) all += std::pow(weight, counts);
        for (const auto& [split, weight] : probability) {
            const double p = std::pow(weight, counts) / all;
            const double bound = 5 * std::sqrt(p * (1 - p) / kDraws) + 1e-3;
            expect_near(drawn[split] / static_cast<double>(kDraws), p, bound,
                        "share of a split among the draws", seed);
        }
    }
}

}  // namespace

int main() {
    for (unsigned seed = 1; seed <= 300; ++seed) compare_with_twin(seed);
    std::printf("pair split: 300 worlds, %d of them fan out, %d differences\n", fanned_out, failures);
    return failures == 0 && fanned_out > 50 ? EXIT_SUCCESS : EXIT_FAILURE;
}
