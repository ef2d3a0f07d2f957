// When a worker takes a request, from the times of requests and answers alone: against servers whose queues are played.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "expect.hpp"
#include "request_rows.hpp"
#include "worker_queue.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::RequestRows;

namespace {

constexpr Time kMs = 1'000'000;
constexpr int kRequests = 4000;

enum class Next { first, any };

// Requests that come in bursts and take 5 ms on average each, and when one of the workers has really taken them.
struct Server {
    RequestRows rows;
    std::vector<Time> taken;

    Server(int workers, Next next, unsigned seed) {
        std::mt19937 random(seed);
        std::lognormal_distribution<double> lasts(std::log(5.0), 0.8);
        std::exponential_distribution<double> gap(std::min(workers, 8) / (5.0 * 1.6));
        std::vector<Time> arrive, depart(kRequests, 0);
        double now = 1;
        for (int i = 0; i < kRequests; ++i) {
            if (i % 40 > 12) now += gap(random);  // a dozen at once, now and then
            now += 1e-3;
            arrive.push_back(static_cast<Time>(now * static_cast<double>(kMs)));
        }
        taken.assign(kRequests, 0);
        std::vector<Time> free(static_cast<std::size_t>(workers), 0);
        std::vector<int> waiting;
        int came = 0;
        while (came < kRequests || !waiting.empty()) {
            auto& worker = *std::min_element(free.begin(), free.end());
            if (waiting.empty()) worker = std::max(worker, arrive[static_cast<std::size_t>(came)]);
            while (came < kRequests && arrive[static_cast<std::size_t>(came)] <= worker)
                waiting.push_back(came++);
            const auto place = next == Next::first ? 0 : random() % waiting.size();
            const auto request = static_cast<std::size_t>(waiting[place]);
            waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(place));
            taken[request] = std::max(worker, arrive[request]);
            worker = depart[request] =
                taken[request] + static_cast<Time>(lasts(random) * static_cast<double>(kMs));
        }
        for (std::size_t i = 0; i < kRequests; ++i) rows.request(arrive[i], depart[i]);
        rows.call(0, 0, arrive[0], arrive[0], 0);
    }
};

void workers_are_told_and_who_has_one() {
    for (const int workers : {1, 2, 4, 12}) {
        const Server server(workers, Next::first, 7);
        WorkerQueue queue(server.rows.problem(1));
        const auto served = queue.serve(server.rows.problem(1));
        expect(queue.plausible(), "there is a queue");
        for (std::size_t p = 0; p < kRequests; ++p) {
            if (served.parents.taken[p] == server.taken[p]) continue;
            expect(false, "a request is taken when it was");
            return;
        }
        expect(std::is_sorted(served.parents.taken.begin(), served.parents.taken.end()),
               "first come, first served");
    }
}

void what_is_no_queue_with_an_order_is_not_taken_for_one() {
    const Server enough(200, Next::first, 8), any(4, Next::any, 9);
    for (const auto* server : {&enough, &any}) {
        WorkerQueue queue(server->rows.problem(1));
        queue.serve(server->rows.problem(1));
        expect(!queue.plausible(), "there is none");
    }
}

// A tap that lost an answer does not know for how long a worker had the request: others are not held up by that.
void who_lacks_an_answer_holds_nobody_up() {
    Server server(4, Next::first, 10);
    for (std::size_t p = 0; p < kRequests; p += 100) {
        server.rows.answered[p] = 0;
        server.rows.depart[p] = server.rows.depart.back();
    }
    WorkerQueue queue(server.rows.problem(1));
    const auto served = queue.serve(server.rows.problem(1));
    std::size_t late = 0;
    for (std::size_t p = 0; p < kRequests; ++p) late += served.parents.taken[p] > server.taken[p];
    expect(late == 0, "nobody is taken later than he was");
}

// Of a request that the tap lost it is known when it was answered, not when it came, which others seem to have passed.
void who_was_not_seen_hides_no_queue() {
    const Server server(4, Next::first, 14);
    struct Row {
        Time arrive, depart, taken, latest;
    };
    std::vector<Row> rows;
    for (std::size_t p = 0; p < kRequests; ++p) {
        const Time arrive = server.rows.arrive[p], depart = server.rows.depart[p];
        const bool lost = p % 100 == 50;
        rows.push_back({lost ? std::max<Time>(depart - 400 * kMs, 0) : arrive, depart, server.taken[p],
                        lost ? depart - kMs / 10 : kNone});
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.arrive < b.arrive; });
    RequestRows seen;
    std::vector<Time> latest;
    for (const auto& row : rows) {
        seen.request(row.arrive, row.depart);
        latest.push_back(row.latest);
    }
    seen.call(0, 0, seen.arrive[0], seen.arrive[0], 0);
    auto problem = seen.problem(1);
    WorkerQueue as_if_seen(problem);
    as_if_seen.serve(problem);
    expect(!as_if_seen.plausible(), "many seem to pass it");
    problem.parents.latest = latest;
    WorkerQueue queue(problem);
    const auto served = queue.serve(problem);
    expect(queue.plausible(), "there is a queue");
    std::size_t late = 0, exact = 0;
    for (std::size_t p = 0; p < kRequests; ++p) {
        if (latest[p] != kNone) continue;
        late += served.parents.taken[p] > rows[p].taken;
        exact += served.parents.taken[p] == rows[p].taken;
    }
    expect(late == 0, "nobody is taken later than he was");
    expect(exact > kRequests * 85 / 100, "and most exactly then");
}

// What was told holds for a later stretch only as long as there are no more workers than then.
void more_workers_than_before_are_noticed() {
    const Server few(4, Next::first, 11), as_many(4, Next::first, 12), more(8, Next::first, 13);
    WorkerQueue queue(few.rows.problem(1));
    queue.serve(as_many.rows.problem(1));
    expect(queue.in_step(), "as many");
    queue.serve(more.rows.problem(1));
    expect(!queue.in_step(), "more");
}

void nothing_is_no_queue() {
    const RequestRows none;
    WorkerQueue queue(none.problem(1));
    queue.serve(none.problem(1));
    expect(!queue.plausible(), "nobody waits");
}

}  // namespace

int main() {
    workers_are_told_and_who_has_one();
    what_is_no_queue_with_an_order_is_not_taken_for_one();
    who_lacks_an_answer_holds_nobody_up();
    who_was_not_seen_hides_no_queue();
    more_workers_than_before_are_noticed();
    nothing_is_no_queue();
    return tapscope::test::failures > 0;
}
