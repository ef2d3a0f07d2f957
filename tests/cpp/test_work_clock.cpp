// The work clock against its obvious twin, and which clock it takes for gaps that were made by the one or the other.
#include "work_clock.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "expect.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

// Requests with one call each. Their first gaps are work that is shared by all that work (`shared`), or plain waits.
struct World {
    std::vector<std::int32_t> cls, conn;
    std::vector<Time> arrive, answer, begin, end;
    std::vector<std::uint8_t> answered;
    std::vector<std::int64_t> no_tokens;
    std::vector<TimedStep> steps;
    Problem problem;

    World(unsigned seed, bool shared) {
        std::mt19937 random(seed);
        std::exponential_distribution<double> apart(1.0);
        std::lognormal_distribution<double> work(0.0, 0.2);
        double now = 0;
        std::vector<std::pair<double, std::size_t>> left;  // work, request; of a node with two processors
        std::vector<double> come, made;
        for (int burst = 0; burst < 200; ++burst) {
            now += 100e6 + apart(random) * 20e6;
            for (auto n = 1 + random() % 12; n > 0; --n) come.push_back(now + static_cast<double>(n) * 1e5);
        }
        std::sort(come.begin(), come.end());
        made.resize(come.size());
        now = 0;
        for (std::size_t next = 0; next < come.size() || !left.empty();) {
            const double speed =
                shared ? std::min(1.0, 2.0 / static_cast<double>(std::max<std::size_t>(left.size(), 1)))
                       : 1.0;
            const auto least = std::min_element(left.begin(), left.end());
            const double done = least == left.end() ? 1e300 : now + least->first / speed;
            const double until = next < come.size() ? std::min(done, come[next]) : done;
            for (auto& [rest, request] : left) rest -= (until - now) * speed;
            now = until;
            if (until < done) {
                left.emplace_back(work(random) * 3e6, next++);
            } else {
                made[least->second] = now;
                left.erase(least);
            }
        }
        for (std::size_t p = 0; p < come.size(); ++p) {
            cls.push_back(0);
            conn.push_back(0);
            answered.push_back(1);
            arrive.push_back(static_cast<Time>(come[p]));
            steps.push_back({kFirstStep, 0, arrive.back(), static_cast<Time>(made[p])});
        }
        std::vector<double> sorted = made;
        std::sort(sorted.begin(), sorted.end());
        for (const double at : sorted) {
            begin.push_back(static_cast<Time>(at));
            end.push_back(begin.back() + 2'000'000);
        }
        // The answer comes with the end of the call: nobody works then.
        for (const double at : made) answer.push_back(static_cast<Time>(at) + 2'000'000);
        no_tokens.assign(come.size() + 1, 0);
        problem.parents = {cls, {}, arrive, arrive, answer, answer, answered, {no_tokens, {}, {}}, 1};
        problem.children = {cls, conn, begin, end, end, {no_tokens, {}, {}}, 1};
    }

    int working(Time at) const {
        int n = 0;
        for (std::size_t i = 0; i < arrive.size(); ++i) {
            n += (arrive[i] <= at && at < answer[i]) - (begin[i] <= at && at < end[i]);
        }
        return n;
    }
};

void compare_with_twin(const World& world, const WorkClock& clock) {
    for (std::size_t i = 0; i < 40; ++i) {
        const auto& step = world.steps[i];
        double worked = 0;
        constexpr Time kGrain = 1000;
        for (Time at = step.from; at < step.to; at += kGrain) {
            const double share = std::min(1.0, clock.processors() / std::max(world.working(at), 1));
            worked += share * static_cast<double>(std::min(kGrain, step.to - at));
        }
        const auto shown = static_cast<double>(clock.read(step.to).at - clock.read(step.from).at);
        expect(std::abs(shown - worked) <= 0.002 * worked + 3000, "the clock shows the sum of the shares");
    }
}

}  // namespace

int main() {
    for (unsigned seed = 1; seed <= 5; ++seed) {
        const World shared(seed, true), plain(seed, false);
        WorkClock clock;
        expect(!clock.tells(kFirstStep), "at first the wall tells the gaps");
        expect(clock.choose(shared.problem, shared.steps), "work that is shared takes another clock");
        expect(clock.tells(kFirstStep) && !clock.tells(kNextStep), "for the kind of step that is work");
        expect(clock.processors() == 2, "of as many processors as there are");
        expect(!clock.choose(shared.problem, shared.steps), "the same gaps take the same clock");
        compare_with_twin(shared, clock);
        expect(clock.choose(plain.problem, plain.steps), "gaps that nobody shares take another one");
        expect(!clock.tells(kFirstStep), "which is the wall");
    }
    std::printf("work clock: %d differences\n", failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
