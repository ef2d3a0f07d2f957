// Values that chains hold: learned where loops ask for the rows of a result, or a key goes on from call to call, and not
// where they do not.
#include "carried.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "expect.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

constexpr std::int32_t kList = 0, kRow = 1, kPut = 2;
constexpr Time kMicrosecond = 1000;

// Requests `beside` each other at the same time. Each asks for a list and then for two of its rows by an id that only the list's
// answer had (`own`), that nobody has told, or that all lists tell. Or nothing is answered, and each names one key three
// times: in calls of three classes, beside a word that all name (`passed`; `asked`: the request names it, too), or of one
// class (`repeated`).
struct World {
    enum Kind : std::uint8_t { own, untold, everybodys, passed, asked, repeated };
    std::vector<std::int32_t> cls, conn, parent_of, parent_cls;
    std::vector<Time> begin, end, arrive;
    std::vector<std::int64_t> token_offset{0}, result_offset{0}, parent_offset{0};
    std::vector<std::uint32_t> token_slot, result_slot, parent_slot;
    std::vector<std::uint64_t> token_hash, result_hash, parent_hash;
    Candidates candidates;
    Problem problem;

    World(int groups, Kind kind, int beside = 2) {
        candidates.offset.push_back(0);
        for (int i = 0; i < groups; ++i) {
            const Time at = i * beside * 50 * kMicrosecond;
            const auto first = beside * i;
            for (const int step : {0, 1, 2}) {
                for (int side = 0; side < beside; ++side) {
                    add(first, side, step, at + (beside * step + side) * 5 * kMicrosecond, kind);
                    for (int other = 0; other < beside; ++other) candidates.parent.push_back(first + other);
                    candidates.offset.push_back(static_cast<std::int64_t>(candidates.parent.size()));
                }
            }
            for (int side = 0; side < beside; ++side) {
                arrive.push_back(at);
                parent_cls.push_back(0);
                if (kind == asked) {
                    parent_slot.push_back(1);
                    parent_hash.push_back(key(first + side));
                }
                parent_offset.push_back(static_cast<std::int64_t>(parent_hash.size()));
            }
        }
        problem.parents.cls = parent_cls;
        problem.parents.n_classes = 1;
        problem.parents.arrive = arrive;
        problem.parents.tokens = {parent_offset, parent_slot, parent_hash};
        problem.children.cls = cls;
        problem.children.conn = conn;
        problem.children.begin = begin;
        problem.children.end = end;
        problem.children.tokens = {token_offset, token_slot, token_hash};
        problem.children.results = {result_offset, result_slot, result_hash};
        problem.children.n_classes = 3;
    }

    static std::uint64_t key(int p) { return static_cast<std::uint64_t>(10 * p + 1); }
    void add(int first, int side, int step, Time at, Kind kind) {
        const auto p = first + side;
        const bool rows = kind <= everybodys;
        cls.push_back(kind == repeated ? kRow : rows && step > 0 ? kRow : step);
        conn.push_back(side);
        parent_of.push_back(p);
        begin.push_back(at);
        end.push_back(at + 2 * kMicrosecond);
        const auto id = [&](int row) {
            return static_cast<std::uint64_t>(kind == everybodys ? row : 10 * p + row);
        };
        if (!rows) {
            token_slot.insert(token_slot.end(), {1, 2});
            token_hash.insert(token_hash.end(), {key(p), 7});
        } else if (step > 0) {
            token_slot.push_back(1);
            token_hash.push_back(kind == untold ? 1'000'000 + id(step) : id(step));
        } else {
            for (const int row : {1, 2}) {
                result_slot.push_back(0);
                result_hash.push_back(id(row));
            }
        }
        token_offset.push_back(static_cast<std::int64_t>(token_hash.size()));
        result_offset.push_back(static_cast<std::int64_t>(result_hash.size()));
    }
};

Carried learned(const World& world) {
    Carried out(world.problem, world.candidates);
    out.bind();
    out.estimate(world.parent_of, FanOut(world.problem), 0.0);
    return out;
}

}  // namespace

int main() {
    const World loops(300, World::own), untold(300, World::untold), same(300, World::everybodys);
    const auto carried = learned(loops);
    const auto begins = carried.ratios(kList, kRow), goes_on = carried.ratios(kRow, kRow);
    expect(begins.holds > 0.3f && begins.lacks < -2.0f, "a row is asked for by who has the list");
    expect(goes_on.holds > 0.5f && goes_on.lacks < -2.0f, "and so is the next one, behind the first");
    expect(!carried.ratios(kRow, kList), "lists are asked for by anybody");
    // The lists of the first two requests are 0 and 1, their first rows 2 and 3, their second ones 4 and 5.
    expect(carried.evidence(goes_on, 2, 4) > 0, "both rows go back to one list");
    expect(carried.evidence(goes_on, 3, 4) < 0, "these go back to two");
    // Calls side by side: what a chain has at hand is its own list, whatever else it is given.
    expect(carried.at_hand(kStart, 0) == 0 && carried.at_hand(0, 2) == 2, "a list, and then a row of it");
    expect(carried.at_hand(0, 3) == 0, "a row of another list takes nothing along");
    expect(carried.evidence(goes_on, carried.at_hand(0, 3), 4) > 0, "the next one is still of the own list");
    expect(carried.at_hand(kStart, 2) == kStart, "nor is a row at home where no list is");
    expect(carried.evidence(goes_on, carried.at_hand(kStart, 2), 4) < 0, "and all others are as far from it");
    // Where 200 are there at once the next call of one is 200 calls behind. What is asked is remembered, if it is near.
    const World many(2, World::own, 200);
    const auto crowd = learned(many);
    const auto to_row = crowd.ratios(kList, kRow);
    expect(to_row.holds > 0.3f && to_row.lacks < -2.0f, "also where many are there at once");
    for (int asked_before = 0; asked_before < 2; ++asked_before) {
        for (const int row : {207, 407}) {
            expect(crowd.evidence(to_row, 7, row) > 0, "who has the list far behind");
            for (const int other : {8, 71, 190}) {
                expect(crowd.evidence(to_row, other, row) < 0, "and who has another");
            }
        }
    }
    expect(!learned(untold).ratios(kList, kRow), "what no answer had says nothing");
    expect(std::abs(learned(same).ratios(kList, kRow).holds) < 0.3f, "nor does what all answers have");

    const World passed(300, World::passed), asked(300, World::asked), repeated(300, World::repeated);
    const auto handed = learned(passed);
    const auto get = handed.ratios(kList, kRow), put = handed.ratios(kRow, kPut);
    expect(get.holds > 1.0f && get.lacks < -2.0f, "a key goes on to the next call, whatever all name");
    expect(put.holds > 1.0f && put.lacks < -2.0f, "and to the one behind it");
    expect(handed.evidence(put, 2, 4) > 0 && handed.evidence(put, 3, 4) < 0, "of the same request");
    // Families move in memory as they become more, at times while one is made out of another (told by make sanitize).
    const World alone(40, World::passed, 1);
    const auto families = learned(alone);
    for (int last = 2; last < 120; last += 3) {
        expect(families.evidence(put, last - 1, last) > 0, "each goes back to its own");
    }
    expect(!learned(asked).ratios(kList, kRow), "what the request names is not for this to tell");
    expect(!learned(repeated).ratios(kRow, kRow), "nor is the same question");
    std::printf("carried: %d differences\n", failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
