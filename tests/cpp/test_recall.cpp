// What the calls of a user named before: it is remembered at all places, as far as there is room, and told at those that
// a request is asked about.
#include "recall.hpp"

#include <cstdint>
#include <random>
#include <vector>

#include "expect.hpp"
#include "problem.hpp"

using namespace tapscope::match;
using tapscope::test::expect;

namespace {

constexpr int kUsers = 5, kPlaces = 300, kRequests = 3000;
constexpr Time kMs = 1'000'000;
constexpr double kBackground = 1e-3;

std::uint64_t row_of(std::uint64_t user, std::int32_t place) {
    return 1000 * (user + 1) + static_cast<std::uint64_t>(place);
}

// A request each ms, which stays for four. It says whose it is, beside a number of its own, and makes one call, which
// names that user's row at one of 300 places. One call in ten names another user's, and one link in twenty is wrong.
struct Board {
    std::vector<std::int32_t> parent_cls, child_cls, parent_of;
    std::vector<Time> arrive, depart, begin, end;
    std::vector<std::int64_t> parent_offset{0}, child_offset{0};
    std::vector<std::uint32_t> parent_slot, child_slot;
    std::vector<std::uint64_t> parent_hash, child_hash;

    // `slots`: of the names that requests have, one of so many says whose it is. With one there are users; else all are
    // strangers, who never come again. Each `town` has users of its own.
    explicit Board(unsigned seed, std::uint32_t slots = 1, unsigned town = 0) {
        std::mt19937 random(seed);
        for (int i = 0; i < kRequests; ++i) {
            const auto user = town * kUsers + random() % kUsers, other = town * kUsers + random() % kUsers;
            const auto place = static_cast<std::int32_t>(random() % kPlaces);
            parent_cls.push_back(0);
            arrive.push_back(i * kMs);
            depart.push_back((i + 4) * kMs);
            const auto number = 1'000'000 + town * kRequests + static_cast<std::uint64_t>(i);
            parent_slot.push_back(slots == 1 ? 1 : 10 + static_cast<std::uint32_t>(random() % slots));
            parent_slot.push_back(2);
            parent_hash.insert(parent_hash.end(), {slots == 1 ? user + 1 : 2 * number, number});
            parent_offset.push_back(static_cast<std::int64_t>(parent_slot.size()));
            child_cls.push_back(place);
            begin.push_back(arrive.back() + static_cast<Time>(random() % 500'000));
            end.push_back(begin.back() + kMs);
            child_slot.push_back(3);
            child_hash.push_back(row_of(random() % 10 == 0 ? other : user, place));
            child_offset.push_back(static_cast<std::int64_t>(child_slot.size()));
            parent_of.push_back(i > 0 && random() % 20 == 0 ? i - 1 : i);
        }
    }
    std::uint64_t user(std::int32_t p) const { return parent_hash[2 * static_cast<std::size_t>(p)]; }
    // Refers to the rows.
    Problem problem() const {
        Problem out;
        out.parents.cls = parent_cls;
        out.parents.arrive = out.parents.request_end = arrive;
        out.parents.response_begin = out.parents.depart = depart;
        out.parents.tokens = {parent_offset, parent_slot, parent_hash};
        out.parents.n_classes = 1;
        out.children.cls = child_cls;
        out.children.begin = begin;
        out.children.response_begin = out.children.end = end;
        out.children.tokens = {child_offset, child_slot, child_hash};
        out.children.n_classes = kPlaces;
        return out;
    }
};

// Everybody is a candidate for every call: all that is remembered is told.
Candidates everybody() {
    Candidates out;
    out.offset.push_back(0);
    for (int c = 0; c < kRequests; ++c) {
        for (int p = 0; p < kRequests; ++p) out.parent.push_back(p);
        out.offset.push_back(static_cast<std::int64_t>(out.parent.size()));
    }
    return out;
}

double score(const Recall& recall, std::int32_t p, std::size_t c) {
    return recall.any(p) ? recall.score(p, static_cast<std::int64_t>(c), kBackground) : 0.0;
}

void what_is_asked_is_told_as_if_all_were() {
    const Board board(1);
    const auto problem = board.problem();
    Candidates near;
    find_candidates(problem, near);
    const auto all = everybody();
    Recall some(problem, near), whole(problem, all);
    double own = 0, others = 0;
    for (const double keep : {0.0, 0.9}) {  // the rows as a first stretch and, once more, as a later one
        for (auto* recall : {&some, &whole}) {
            recall->bind();
            recall->learn(board.parent_of, keep);
        }
        for (std::size_t c = 0; c < problem.children.size(); ++c) {
            for (const auto p : near.of(c)) {
                const double here = score(some, p, c);
                expect(here == score(whole, p, c), "a request is told the same");
                (board.user(p) == board.user(static_cast<std::int32_t>(c)) ? own : others) += here;
            }
        }
    }
    expect(own > 10'000 && others < -1000, "whose row it is speaks for him, and against the others");
    expect(some.told() <= 2 * near.parent.size(), "a request is told what it is asked about");
    expect(whole.told() > 50 * some.told(), "and not all that is known of its user");
}

// One stretch after the other.
struct Stretches {
    Problem problem;
    Candidates near;
    Recall recall{problem, near};

    void look(const Board& rows) {
        problem = rows.problem();
        near = {};
        find_candidates(problem, near);
        recall.bind();
    }
    void take(const Board& rows) {
        look(rows);
        recall.learn(rows.parent_of, 0.9);
    }
    // What is known of whose the calls at hand are.
    double told() const {
        double out = 0;
        for (std::size_t c = 0; c < problem.children.size(); ++c) {
            out += score(recall, static_cast<std::int32_t>(c), c);
        }
        return out;
    }
};

// What told nothing makes room for what comes later, and what found none is counted.
void what_comes_later_finds_room() {
    const Board strangers(2, 100'000), others(4, 100'000), board(3);
    Stretches all;
    all.take(strangers);
    expect(all.recall.not_remembered() == 0, "3,000 habits and 300 have room");
    all.take(others);
    expect(all.recall.not_remembered() > 1500, "what found no room is counted");
    all.take(board);
    expect(all.recall.not_remembered() == 0, "there is room in the next stretch");
    expect(all.recall.no_longer_remembered() > 1000, "what was given up for it is counted");
    expect(all.told() > 5000, "and users are known");
}

// Where there is no more room for users, those who have not come for long are forgotten, and counted.
void who_came_lately_stays_known() {
    const Board once(5, 1, 1), regulars(6, 1, 2);
    Stretches all;
    all.take(once);
    std::uint64_t forgotten = 0;
    for (unsigned town = 3; town < 500 && forgotten == 0; ++town) {
        if (town % 20 == 0) all.take(regulars);
        const Board passing(town, 1, town);
        all.take(passing);
        forgotten = all.recall.no_longer_remembered();
    }
    expect(forgotten > 200'000, "it is counted");
    all.look(regulars);
    expect(all.told() > 5000, "who has come within twenty stretches is known");
    all.look(once);
    expect(all.told() == 0, "who has come once is not");
}

}  // namespace

int main() {
    what_is_asked_is_told_as_if_all_were();
    what_comes_later_finds_room();
    who_came_lately_stays_known();
    return tapscope::test::failures > 0;
}
