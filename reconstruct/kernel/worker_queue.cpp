#include "worker_queue.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <utility>

namespace tapscope::match {
namespace {

constexpr double kExceptions = 0.002;  // share of the requests that may pass as many as there are workers
constexpr double kEnough = 8.0;      // requests that should without a queue, and how many times those that do
constexpr double kMany = 0.03;       // share of the requests that wait, from which on a queue matters
constexpr double kOutOfStep = 0.01;  // of these, the share that may be answered before a worker has them

// How many answered requests pass at least 0, 1, 2, ... of those before them.
std::vector<double> passing(const Parents& parents) {
    std::vector<Time> departs;
    for (std::size_t p = 0; p < parents.size(); ++p) {
        if (parents.answered[p] && parents.seen(p)) departs.push_back(parents.depart[p]);
    }
    auto sorted = departs;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::size_t> left(sorted.size() + 1, 0);  // of those before: sums over ranks (Fenwick's tree)
    std::vector<double> out;
    for (std::size_t i = 0; i < departs.size(); ++i) {
        const auto rank = static_cast<std::size_t>(
            std::upper_bound(sorted.begin(), sorted.end(), departs[i]) - sorted.begin());
        std::size_t no_later = 0;
        for (auto at = rank; at > 0; at &= at - 1) no_later += left[at];
        for (auto at = rank; at < left.size(); at += at & (~at + 1)) ++left[at];
        const auto passed = i - no_later;
        if (out.size() <= passed) out.resize(passed + 1, 0);
        out[passed] += 1;
    }
    for (std::size_t k = out.size(); k-- > 1;) out[k - 1] += out[k];
    return out;
}

}  // namespace

WorkerQueue::WorkerQueue(const Problem& stretch) {
    const auto many = passing(stretch.parents);
    if (many.empty()) return;
    const auto at_least = [&](int passed) {
        const auto k = static_cast<std::size_t>(std::max(passed, 0));
        return k < many.size() ? many[k] : 0.0;
    };
    while (at_least(workers_) > kExceptions * at_least(0)) ++workers_;
    const double before = at_least(workers_ - 1);
    const double due = before * before / std::max(at_least(workers_ - 2), 1.0);
    sharp_ = due >= kEnough && due >= kEnough * at_least(workers_);
}

bool WorkerQueue::in_step() const noexcept { return answered_before_ <= kOutOfStep * waited_; }

bool WorkerQueue::plausible() const noexcept { return sharp_ && waited_ >= kMany * requests_ && in_step(); }

Problem WorkerQueue::serve(const Problem& stretch) {
    const auto& parents = stretch.parents;
    taken_.assign(parents.arrive.begin(), parents.arrive.end());
    request_end_.assign(parents.request_end.begin(), parents.request_end.end());
    // The latest ends of those before, as many as there are workers: the first of them leaves a worker. Who is not
    // answered, as far as is known, is not supposed to have one: that would hold up others who had none to wait for.
    std::priority_queue<Time, std::vector<Time>, std::greater<>> busy_until;
    const auto hold = [&](Time until) {
        busy_until.push(until);
        if (static_cast<int>(busy_until.size()) > workers_) busy_until.pop();
    };
    // One that was not seen stands behind those that arrived before the latest time at which it can have. Should it
    // stand before some of them, those are taken to have a worker too early, and make their calls later than supposed;
    // the other way round calls that they have made would be others'.
    using Unseen = std::pair<Time, Time>;
    std::priority_queue<Unseen, std::vector<Unseen>, std::greater<>> unseen;
    requests_ = static_cast<double>(parents.size());
    waited_ = answered_before_ = 0;
    for (std::size_t p = 0; p < parents.size(); ++p) {
        if (!parents.seen(p)) {
            if (parents.answered[p]) unseen.push({parents.latest[p], parents.depart[p]});
            continue;
        }
        for (; !unseen.empty() && unseen.top().first <= parents.arrive[p]; unseen.pop())
            hold(unseen.top().second);
        const bool full = static_cast<int>(busy_until.size()) == workers_;
        if (full && busy_until.top() > parents.arrive[p]) {
            waited_ += 1;
            answered_before_ += busy_until.top() > parents.response_begin[p] + kSlack;
            taken_[p] = std::min(busy_until.top(), parents.response_begin[p]);
            request_end_[p] = std::max(request_end_[p], taken_[p]);
        }
        if (parents.answered[p]) hold(parents.depart[p]);
    }
    Problem out = stretch;
    out.parents.taken = taken_;
    out.parents.request_end = request_end_;
    return out;
}

}  // namespace tapscope::match
