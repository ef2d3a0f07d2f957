// Who lies idle around a connection, against an obvious twin that compares every two of the times.
#include "idle_order.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "expect.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

// Few enough that nothing is beyond the ends of a list, and little enough that nothing is beyond the window.
constexpr std::int32_t kConnections = 5;
constexpr std::size_t kRequests = 20;

// Requests with one to three calls on a connection of a pool; the assignment has some of them mixed up.
struct World {
    std::vector<std::int32_t> cls, conn, parent_cls, parent_of, before, next;
    std::vector<Time> arrive, answer, depart, begin, end;
    std::vector<std::uint8_t> answered;
    std::vector<std::int64_t> no_tokens;
    Problem problem;

    explicit World(unsigned seed) {
        std::mt19937 random(seed);
        const auto some = [&](Time most) {
            return static_cast<Time>(1 + random() % static_cast<unsigned>(most));
        };
        struct Call {
            Time begin, end;
            std::int32_t conn, parent;
        };
        std::vector<Call> calls;
        std::vector<Time> free(kConnections, 0);
        Time now = 0;
        for (std::size_t p = 0; p < kRequests; ++p) {
            now += some(4'000'000);
            std::vector<std::int32_t> idle;
            for (std::int32_t k = 0; k < kConnections; ++k) {
                if (free[k] <= now) idle.push_back(k);
            }
            arrive.push_back(now);
            if (idle.empty()) {  // one that makes no call
                answer.push_back(now + some(1'000'000));
            } else {
                const auto taken = idle[random() % idle.size()];
                Time at = now;
                for (auto n = 1 + random() % 3; n > 0; --n) {
                    const Time from = at + some(1'000'000);
                    at = from + some(5'000'000);
                    calls.push_back({from, at, taken, static_cast<std::int32_t>(p)});
                }
                answer.push_back(at + some(1'000'000));
                free[taken] = answer.back() + some(300'000);
            }
            depart.push_back(answer.back() + some(100'000));
            answered.push_back(random() % 20 != 0);
        }
        std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin < b.begin; });
        std::vector<std::int32_t> latest(kConnections, kNone);
        for (const auto& call : calls) {
            const auto c = static_cast<std::int32_t>(begin.size());
            begin.push_back(call.begin);
            end.push_back(call.end);
            conn.push_back(call.conn);
            parent_of.push_back(random() % 8 == 0 ? kNone : call.parent);
            before.push_back(latest[call.conn]);
            next.push_back(kNone);
            if (before.back() != kNone) next[before.back()] = c;
            latest[call.conn] = c;
        }
        for (std::size_t c = 0; c + 1 < parent_of.size(); ++c) {
            const auto p = parent_of[c], q = parent_of[c + 1];
            if (random() % 3 == 0 && could_make(q, c) && could_make(p, c + 1)) {
                std::swap(parent_of[c], parent_of[c + 1]);
            }
        }
        cls.assign(begin.size(), 0);
        parent_cls.assign(kRequests, 0);
        no_tokens.assign(std::max(begin.size(), kRequests) + 1, 0);
        problem.parents = {parent_cls, {}, arrive, arrive, answer, depart, answered, {no_tokens, {}, {}}, 1};
        problem.children = {cls, conn, begin, end, end, {no_tokens, {}, {}}, 1};
    }

    bool could_make(std::int32_t p, std::size_t c) const {
        return p == kNone || (arrive[p] <= begin[c] && end[c] <= depart[p]);
    }

    Time given_back(std::int32_t p, std::int32_t c) const {
        return answer[p] >= end[c] ? answer[p] : depart[p];
    }

    // The child of p that ended last, if p gives a connection back at all.
    std::int32_t last_of(std::int32_t p) const {
        std::int32_t out = kNone;
        for (std::size_t c = 0; c < parent_of.size() && p != kNone && answered[p]; ++c) {
            if (parent_of[c] == p && (out == kNone || end[c] >= end[out])) out = static_cast<std::int32_t>(c);
        }
        return out;
    }

    struct Span {
        Time assigned, from, until;  // given back by the assignment, and as p sees it; taken again
    };

    // When the connection of child i lies idle by the assignment, or with p and the parent of c in each other's places.
    bool lies_idle(std::int32_t i, std::int32_t p, std::int32_t c, Span& out) const {
        const auto owner = parent_of[i];
        if (next[i] == kNone || (owner != kNone && parent_of[next[i]] == owner)) return false;
        const bool last = owner != kNone && last_of(owner) == i;
        const Time at = last ? given_back(owner, i) : end[i];
        out = {at, at, begin[next[i]]};
        const auto other = parent_of[c];
        if (last && owner == p && other != kNone && last_of(other) == c) out.from = given_back(other, c);
        return at <= out.until;
    }

    void compare(const IdleOrder& order, std::int32_t p, std::int32_t c) const {
        const Time from = given_back(p, c), until = begin[next[c]];
        const auto found = order.look(problem, p, c);
        expect(found.idle == until - from, "a connection lies idle from the answer to its next use");
        if (until < from) return;
        int crossed = 0, nested = 0;
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(begin.size()); ++i) {
            // New connections are older than all that are known.
            if (before[i] == kNone) crossed += begin[i] > from && begin[i] < until;
            Span other{};
            if (i == c || !lies_idle(i, p, c, other)) continue;
            if (other.until < until && other.until > from) {
                crossed += other.from < from;
                nested += other.from > from;
            } else if (other.until > until && other.assigned <= until) {
                crossed += other.from > from;
                nested += other.from < from;
            }
        }
        expect(found.crossed == crossed, "as many cross as in the twin");
        expect(found.nested == nested, "as many are nested as in the twin");
    }
};

}  // namespace

int main() {
    int compared = 0;
    for (unsigned seed = 1; seed <= 400; ++seed) {
        const World world(seed);
        IdleOrder order;
        order.bind(world.before);
        order.rank(world.problem, world.parent_of);
        for (std::int32_t c = 0; c < static_cast<std::int32_t>(world.begin.size()); ++c) {
            if (world.next[c] == kNone) continue;
            for (std::int32_t p = 0; p < static_cast<std::int32_t>(kRequests); ++p) {
                if (!world.answered[p] || !world.could_make(p, static_cast<std::size_t>(c))) continue;
                world.compare(order, p, c);
                ++compared;
            }
        }
    }
    expect(compared > 2000, "enough pairs are compared");
    std::printf("idle order: %d pairs compared, %d differences\n", compared, failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
