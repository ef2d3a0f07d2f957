// What becomes of a call that goes to another parent, against the twin that tries all splits that begin with it.
#include "outlook.hpp"

#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "chains.hpp"
#include "content.hpp"
#include "expect.hpp"
#include "model.hpp"

using namespace tapscope::match;
using tapscope::test::expect;

namespace {

constexpr float kWidth = 6.0f;
int found = 0, refused = 0;

// Two overlapping parents, and children of both with random classes, connections and times.
struct World {
    std::vector<std::int32_t> parent_cls{0, 1};
    std::vector<Time> arrive{0, 300'000}, request_end{1000, 301'000}, response_begin, depart;
    std::vector<std::uint8_t> answered{1, 1};
    std::vector<std::int32_t> child_cls, child_conn;
    std::vector<Time> begin, end;
    std::vector<std::int64_t> no_tokens_p{0, 0, 0}, no_tokens_c;
    Problem problem;

    explicit World(std::mt19937& random) {
        const auto n = 2 + random() % 6;
        Time at = 400'000;
        for (std::size_t i = 0; i < n; ++i) {
            at += 1000 + static_cast<Time>(random() % 400'000);
            child_cls.push_back(static_cast<std::int32_t>(random() % 3));
            child_conn.push_back(static_cast<std::int32_t>(random() % 3));
            begin.push_back(at);
            end.push_back(at + 1000 + static_cast<Time>(random() % 200'000));
        }
        // The second parent may leave early: then the last children are candidates of the first one only.
        const Time early = random() % 2 ? end[n / 2] + 10'000 : at + 900'000;
        response_begin = {at + 2'000'000, std::max<Time>(early, 600'000)};
        depart = {response_begin[0] + 5000, response_begin[1] + 5000};
        no_tokens_c.assign(n + 1, 0);
        problem.parents = {
            parent_cls, {}, arrive, request_end, response_begin, depart, answered, {no_tokens_p, {}, {}}, 2};
        problem.children = {child_cls, child_conn, begin, end, end, {no_tokens_c, {}, {}}, 3};
    }
};

// Whether some split in which c is the first to change sides never falls more than kWidth behind the chains at hand, from
// child to child and at the end, or has become these again. `other` may be nobody.
bool try_all(const World& world, const Model& model, const Candidates& candidates,
             const std::vector<std::int32_t>& parent_of, std::size_t c, std::int32_t other) {
    const auto own = parent_of[c];
    const auto n = world.begin.size();
    const auto step = [&](std::int32_t p, std::int32_t last, std::int32_t next) {
        if (p == kNobody) return next == kEnd ? 0.0f : model.orphan(next);
        const float content =
            next == kEnd ? 0.0f : candidates.content[candidates.find(static_cast<std::size_t>(next), p)];
        return model.step(p, last, next) + content;
    };
    const std::int32_t sides[2] = {own, other};
    for (unsigned split = 0; split < 1u << (n - c - 1); ++split) {
        std::int32_t now[2] = {kStart, kStart}, then[2] = {kStart, kStart};
        double ahead = 0;
        bool possible = true, again = false;
        for (std::size_t i = 0; i < n && possible && !again; ++i) {
            if (parent_of[i] != own && parent_of[i] != other) continue;
            const int side = parent_of[i] == other;
            const bool changes = i == c || (i > c && ((split >> (i - c - 1)) & 1));
            const int goes = changes ? 1 - side : side;
            const auto child = static_cast<std::int32_t>(i);
            if (changes && ((sides[goes] >= 0 && candidates.find(i, sides[goes]) < 0) ||
                            (i != c && candidates.certain(i)))) {
                possible = false;
                break;
            }
            if (i >= c) ahead += step(sides[goes], then[goes], child) - step(sides[side], now[side], child);
            now[side] = child;
            then[goes] = sides[goes] == kNobody ? kStart : child;
            possible = ahead >= -kWidth;
            again = i > c && now[0] == then[0] && now[1] == then[1];
        }
        if (!possible) continue;
        if (again) return true;
        for (int x = 0; x < 2; ++x) ahead += step(sides[x], then[x], kEnd) - step(sides[x], now[x], kEnd);
        if (ahead >= -kWidth) return true;
    }
    return false;
}

void compare_with_twin(unsigned seed) {
    std::mt19937 random(seed);
    const World world(random);
    Candidates candidates;
    find_candidates(world.problem, candidates);
    for (auto& content : candidates.content) content = static_cast<float>(random() % 100) / 10.0f - 5.0f;
    Model model(world.problem, candidates, {2, 3, std::vector<double>(6, 1.0)},
                idle_connections(world.problem.children));
    const auto n = world.begin.size();
    std::vector<std::int32_t> parent_of(n);
    for (std::size_t i = 0; i < n; ++i) parent_of[i] = candidates.find(i, 1) >= 0 && random() % 2;
    if (seed % 2) model.estimate(parent_of);
    candidates.certain_parent.assign(n, kNone);
    for (std::size_t i = 0; i < n; ++i) {
        if (seed % 3 == 0 && random() % 4 == 0) candidates.certain_parent[i] = parent_of[i];
    }
    Chains chains(candidates);
    chains.resize(2, n);
    chains.restore(parent_of);
    AnswerLength length(world.problem);
    length.bind();  // it tells nothing, as nothing was learned
    Outlook outlook(world.problem, candidates, model, length);
    for (std::size_t i = 0; i < n; ++i) {
        const auto c = static_cast<std::int32_t>(i);
        const auto own = parent_of[i];
        for (const auto other : {1 - own, kNobody}) {
            const auto there = other == kNobody ? 0 : candidates.find(i, other);
            if (candidates.certain(i) || there < 0) continue;
            const auto last = [&](std::int32_t p) {
                auto out = kStart;
                for (std::size_t k = 0; k < i; ++k) {
                    if (parent_of[k] == p) out = static_cast<std::int32_t>(k);
                }
                return out;
            };
            const float here = model.step(own, last(own), c) + candidates.content[candidates.find(i, own)];
            const float elsewhere = other == kNobody
                                        ? model.orphan(c)
                                        : model.step(other, last(other), c) + candidates.content[there];
            if (elsewhere - here < -kWidth) continue;
            const bool open = outlook.open(chains, c, own, other, elsewhere - here, kWidth);
            const bool expected = try_all(world, model, candidates, parent_of, i, other);
            (expected ? found : refused) += 1;
            expect(open == expected, "seed " + std::to_string(seed) + ": child " + std::to_string(c) +
                                         (expected ? " may go to " : " may not go to ") +
                                         std::to_string(other));
        }
    }
}

}  // namespace

int main() {
    for (unsigned seed = 0; seed < 1200; ++seed) compare_with_twin(seed);
    expect(found > 200 && refused > 200, "both answers are common");
    std::printf("%d may go, %d may not\n", found, refused);
    return tapscope::test::failures > 0;
}
