// Splits of a pair when the lengths of answers count, against their obvious twin: all 2^n splits are scored as a whole.
// Also what is learned of lengths: known weights are found again, though some chains are wrong.
#include "pair_move.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include "answer_fit.hpp"
#include "content.hpp"
#include "expect.hpp"
#include "model.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

constexpr std::int32_t kPairs = 60;

// Pairs of overlapping parents, one after the other; their answers are written from those of their children.
struct World {
    std::vector<std::int32_t> parent_cls, child_cls, child_conn, parent_of;
    std::vector<Time> arrive, depart, begin, end;
    std::vector<float> answer, child_answer;
    std::vector<std::uint8_t> answered;
    std::vector<std::int64_t> no_tokens_p, no_tokens_c;
    Problem problem;

    explicit World(std::mt19937& random) {
        for (std::int32_t pair = 0; pair < kPairs; ++pair) {
            const Time from = pair * 20'000'000;
            float written[2] = {900, 900};
            for (int i = 0; i < 5; ++i) {
                const auto side = static_cast<std::int32_t>(random() % 2);
                parent_of.push_back(2 * pair + side);
                begin.push_back(from + 1'000'000 + i * 1'500'000 + static_cast<Time>(random() % 1'000'000));
                end.push_back(begin.back() + 1000 + static_cast<Time>(random() % 400'000));
                child_cls.push_back(static_cast<std::int32_t>(random() % 2));
                child_conn.push_back(static_cast<std::int32_t>(random() % 4));
                child_answer.push_back(static_cast<float>(100 + random() % 900));
                written[side] += 0.8f * child_answer.back() + 30;
            }
            for (int side = 0; side < 2; ++side) {
                parent_cls.push_back(0);
                arrive.push_back(from + side * 200'000);
                depart.push_back(from + 12'000'000 + side * 100'000);
                answer.push_back(std::round(written[side]) + static_cast<float>(random() % 4));
            }
        }
        answered.assign(parent_cls.size(), 1);
        no_tokens_p.assign(parent_cls.size() + 1, 0);
        no_tokens_c.assign(child_cls.size() + 1, 0);
        problem.parents = {parent_cls, {},    arrive, arrive, depart, depart, answered, {no_tokens_p, {}, {}},
                           1,          answer};
        problem.children = {child_cls, child_conn, begin, end, end, {no_tokens_c, {}, {}}, 2};
        problem.children.answer_bytes = child_answer;
    }
};

struct Twin {
    std::map<unsigned, double> score;
    double top = -INFINITY;
};

unsigned bits(const std::vector<std::uint8_t>& side) {
    unsigned out = 0;
    for (std::size_t i = 0; i < side.size(); ++i) out |= static_cast<unsigned>(side[i]) << i;
    return out;
}

Twin all_splits(const World& world, const Model& model, const Candidates& candidates,
                const AnswerLength& length, std::int32_t p, std::size_t first, std::size_t n) {
    (void)world;
    Twin out;
    for (unsigned split = 0; split < 1u << n; ++split) {
        Tip tip[2];
        std::vector<std::int32_t> chain[2];
        double score = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const int side = (split >> i) & 1;
            const auto c = static_cast<std::int32_t>(first + i);
            score += model.step(p + side, tip[side], c) +
                     candidates.content[static_cast<std::size_t>(candidates.find(first + i, p + side))];
            model.advance(p + side, tip[side], c);
            chain[side].push_back(c);
        }
        for (int side = 0; side < 2; ++side) {
            score += model.step(p + side, tip[side], kEnd) + length.score(p + side, chain[side]);
        }
        out.score[split] = score;
        out.top = std::max(out.top, score);
    }
    return out;
}

void compare_with_twin(unsigned seed) {
    std::mt19937 random(seed);
    World world(random);
    Candidates candidates;
    find_candidates(world.problem, candidates);
    const auto idle = idle_connections(world.problem.children);
    Affinity affinity{1, 2, std::vector<double>(2, 1.0)};
    Model model(world.problem, candidates, affinity, idle);
    AnswerLength length(world.problem);
    length.bind();
    length.estimate(world.parent_of, true);
    PairSplit split(world.problem, candidates, model);
    Random draws;
    PairMove move(split, length, draws);
    int found = 0, asked = 0;
    double off = 0, weighed = 0;
    for (std::int32_t pair = 0; pair < kPairs; ++pair) {
        const std::int32_t p = 2 * pair;
        expect(length.judges(p) && length.judges(p + 1), "lengths judge every answer");
        std::vector<std::int32_t> held[2];
        for (std::int32_t c = 5 * pair; c < 5 * pair + 5; ++c) held[random() % 2].push_back(c);
        if (!split.load(p, p + 1, held[0], held[1])) continue;
        const auto twin =
            all_splits(world, model, candidates, length, p, static_cast<std::size_t>(5 * pair), 5);
        const auto loaded = bits(split.held_by());
        const double gain = move.best();
        const double reached = twin.score.at(bits(split.side()));
        expect(std::abs(reached - twin.score.at(loaded) - gain) < 2e-2, "the gain is what the twin says");
        expect(gain >= 0, "a split is never taken for a worse one");
        ++asked;
        found += reached > twin.top - 1e-2;

        // Marginals around the best split, as the matcher asks for them.
        const auto at_best = split.side();
        for (auto& side : held) side.clear();
        for (std::size_t i = 0; i < 5; ++i) {
            held[at_best[i]].push_back(5 * pair + static_cast<std::int32_t>(i));
        }
        split.load(p, p + 1, held[0], held[1]);
        std::vector<double> marginal;
        move.marginals(marginal);
        double all = 0;
        std::vector<double> second(5, 0.0);
        for (const auto& [each, score] : twin.score) {
            const double weight = std::exp(score - twin.top);
            all += weight;
            for (std::size_t i = 0; i < 5; ++i) second[i] += (each >> i) & 1 ? weight : 0.0;
        }
        for (std::size_t i = 0; i < 5; ++i) {
            off += std::abs(marginal[i] - second[i] / all);
            weighed += 1;
        }
        if (pair >= 3) continue;

        // Draws from where the last one left, as often as their share.
        std::map<unsigned, int> drawn;
        constexpr int kDraws = 4000;
        for (int k = 0; k < kDraws; ++k) {
            split.load(p, p + 1, held[0], held[1]);
            if (move.draw()) {
                const auto side = split.side();
                for (auto& each : held) each.clear();
                for (std::size_t i = 0; i < 5; ++i) {
                    held[side[i]].push_back(5 * pair + static_cast<std::int32_t>(i));
                }
                split.load(p, p + 1, held[0], held[1]);
            }
            ++drawn[bits(split.held_by())];
        }
        for (const auto& [each, score] : twin.score) {
            const double share = std::exp(score - twin.top) / all;
            expect(std::abs(drawn[each] / static_cast<double>(kDraws) - share) < 0.06,
                   "splits are drawn as often as they are likely");
        }
    }
    // The best is looked for among a few proposals only.
    expect(found > 0.8 * asked, "the best split is mostly found");
    expect(off / weighed < 0.04, "marginals are near the exact ones");
}

void find_weights_again(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<AnswerFit::Example> examples;
    for (int i = 0; i < 300; ++i) {
        AnswerFit::Example example;
        const auto calls = static_cast<float>(1 + random() % 4);
        const auto bytes = calls * static_cast<float>(100 + random() % 50);
        const auto list = static_cast<float>(500 + random() % 3000);
        example.called = {{7, list, 1}, {9, bytes, calls}};
        // What changes slowly for all, and one chain in ten that is another's.
        example.answer = 4000 + 0.5f * list + 1.5f * bytes + 20 * calls + static_cast<float>(i / 10);
        if (random() % 10 == 0) example.answer += static_cast<float>(random() % 2000);
        examples.push_back(std::move(example));
    }
    AnswerFit fit;
    fit.learn(examples);
    expect(fit.tells(), "lengths tell");
    expect(std::abs(fit.part(7, 2000) - fit.part(7, 1000) - 500) < 10,
           "bytes of the list are passed on by half");
    expect(std::abs(fit.part(9, 300) - fit.part(9, 200) - 150) < 10,
           "and those of the others one and a half times");
    expect(fit.score(1) > fit.score(300) + 4, "an answer that is far off is unlikely");
    expect(fit.score(1) > 2 && fit.score(1e6f) < -2,
           "what an answer says is held against answers by themselves, so that models can be compared");
    for (auto& example : examples) example.answer = static_cast<float>(2000 + random() % 500);
    fit.learn(examples);
    expect(!fit.tells(), "lengths that have nothing to do with the calls tell nothing");
}

// Three chains in five are other ones', as in the assignments that a search begins with: lengths tell little then, and must
// tell enough for it to find the others.
void tell_of_a_few(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> around(0.0f, 1.0f);
    std::vector<AnswerFit::Example> examples;
    for (int i = 0; i < 400; ++i) {
        AnswerFit::Example example;
        const float list = 1000 + 300 * around(random), other = 1000 + 300 * around(random);
        example.called = {{7, random() % 5 < 2 ? list : other, 1}};
        example.answer = 4000 + list + 40 * around(random);
        examples.push_back(std::move(example));
    }
    AnswerFit fit;
    fit.learn(examples);
    expect(fit.tells(), "lengths tell by the chains that are right");
}

}  // namespace

int main() {
    for (unsigned seed = 1; seed <= 20; ++seed) compare_with_twin(seed);
    for (unsigned seed = 1; seed <= 20; ++seed) find_weights_again(seed);
    for (unsigned seed = 1; seed <= 20; ++seed) tell_of_a_few(seed);
    std::printf("pair move: 20 worlds of %d pairs, %d failures\n", kPairs, failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
