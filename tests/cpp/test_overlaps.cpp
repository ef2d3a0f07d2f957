// Calls that overlap by exception: on one connection they are learned for each kind of step, side by side on two they
// are an exception of the request's class, however often one kind of step seems to do so.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "content.hpp"
#include "expect.hpp"
#include "model.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

constexpr Time kMs = 1'000'000;
constexpr std::int32_t kUsual = 0, kLater = 1, kBeside = 2, kPiped = 3, kClasses = 4;

// Requests one after the other, each with a usual call and another one behind it.
struct World {
    std::vector<std::int32_t> parent_cls, child_cls, child_conn, parent_of;
    std::vector<Time> arrive, depart, begin, end;
    std::vector<std::uint8_t> answered;
    std::vector<std::int64_t> no_tokens_p{0}, no_tokens_c{0};

    // The second call, which begins in the middle of the first or a while after it; on its connection or another one.
    std::int32_t request(std::int32_t second, bool overlaps, bool same_connection) {
        const auto p = static_cast<std::int32_t>(parent_cls.size());
        const Time at = static_cast<Time>(p) * 20 * kMs;
        parent_cls.push_back(0);
        arrive.push_back(at);
        depart.push_back(at + 10 * kMs);
        answered.push_back(1);
        no_tokens_p.push_back(0);
        call(p, kUsual, at + kMs, 0);
        call(p, second, at + (overlaps ? 2 : 4) * kMs, same_connection ? 0 : 1);
        return p;
    }
    void call(std::int32_t p, std::int32_t cls, Time at, std::int32_t conn) {
        child_cls.push_back(cls);
        child_conn.push_back(conn);
        begin.push_back(at);
        end.push_back(at + 2 * kMs);
        parent_of.push_back(p);
        no_tokens_c.push_back(0);
    }
    Problem problem() const {
        Problem out;
        out.parents.cls = parent_cls;
        out.parents.arrive = out.parents.request_end = arrive;
        out.parents.response_begin = out.parents.depart = depart;
        out.parents.answered = answered;
        out.parents.tokens = {no_tokens_p, {}, {}};
        out.parents.n_classes = 1;
        out.children.cls = child_cls;
        out.children.conn = child_conn;
        out.children.begin = begin;
        out.children.response_begin = out.children.end = end;
        out.children.tokens = {no_tokens_c, {}, {}};
        out.children.n_classes = kClasses;
        return out;
    }
};

}  // namespace

int main() {
    World world;
    std::int32_t later = 0, beside = 0, piped = 0;
    for (int i = 0; i < 600; ++i) {
        // As often as each other; the others follow as a rule.
        const int kind = i % 60;
        if (kind == 0) {
            later = world.request(kLater, false, false);
        } else if (kind == 1) {
            beside = world.request(kBeside, true, false);
        } else if (kind == 2) {
            piped = world.request(kPiped, true, true);
        } else {
            world.request(kUsual, false, true);
        }
    }
    const auto problem = world.problem();
    Candidates candidates;
    find_candidates(problem, candidates);
    candidates.content.assign(candidates.parent.size(), 0.0f);
    const Affinity affinity{1, kClasses, std::vector<double>(kClasses, 0.5)};
    Model model(problem, candidates, affinity, idle_connections(problem.children));
    for (int round = 0; round < 2; ++round) model.estimate(world.parent_of);

    // What the second call of p says, but for its gap.
    const auto second = [&](std::int32_t p) {
        const std::int32_t first = 2 * p;
        return model.parts(p, Tip{first, first, 0}, first + 1).rest;
    };
    expect(second(beside) < second(later) - 3.0f, "calls side by side stay an exception");
    expect(second(piped) > second(later) - 1.5f, "calls piped into one connection are learned");
    std::printf("overlaps: %d differences\n", failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
