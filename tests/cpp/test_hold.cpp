// Until when requests hold a connection: learned where they do so until their answer, and where they do not.
#include "hold.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "expect.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

// Two requests, either of which may have made the call: one answers before its connection is used again, one later.
Hold learned(int by_the_first, int by_the_second) {
    constexpr Time kAgain = 100;
    const std::vector<Time> answers = {50, 150};
    Problem problem;
    problem.parents.response_begin = answers;
    Candidates candidates;
    candidates.offset = {0, 2};
    candidates.parent = {0, 1};
    Hold hold;
    for (int i = 0; i < by_the_first; ++i) hold.observe(problem, candidates, 0, 0, kAgain);
    for (int i = 0; i < by_the_second; ++i) hold.observe(problem, candidates, 1, 0, kAgain);
    hold.finish();
    return hold;
}

}  // namespace

int main() {
    const auto until_the_answer = learned(990, 10), for_a_call = learned(500, 500), unseen = learned(2, 0);
    expect(until_the_answer.evidence(0, true) < -1.5f, "who has not answered did not have the connection");
    expect(until_the_answer.evidence(0, false) > 0.3f, "who has answered may have had it");
    expect(std::abs(for_a_call.evidence(0, true)) < 0.05f, "where half give it back before, it says nothing");
    expect(std::abs(unseen.evidence(0, true)) < 0.1f, "nor do a few");
    std::printf("hold: %d differences\n", failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
