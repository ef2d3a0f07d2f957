#include "pick.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <utility>

namespace tapscope::match {
namespace {

// Calls, and the share of them that are at one end, that tell a stack or a queue.
constexpr double kFewest = 100, kStrict = 0.75;
constexpr double kKept = 0.5;    // of what was counted before, at each stretch
constexpr double kPrior = 50.0;  // calls that say "any of them" before any call is seen
constexpr float kMost = 4.0f;    // nats that a place may say, either way

}  // namespace

std::size_t Pick::group(std::int32_t idle) noexcept {
    const int width = std::bit_width(static_cast<std::uint32_t>(idle - 1));  // 2: 1, 3-4: 2, 5-8: 3
    return static_cast<std::size_t>(std::clamp(width - 1, 0, kGroups - 1));
}

std::size_t Pick::bucket(const Place& place) noexcept {
    const std::int32_t from_first = place.idle - 1 - place.from_last;
    const auto step = [](std::int32_t places) {
        return std::min(static_cast<int>(std::bit_width(static_cast<std::uint32_t>(places))), kSteps - 1);
    };
    const int at = place.from_last <= from_first ? step(place.from_last) : kBuckets - 1 - step(from_first);
    return static_cast<std::size_t>(at);
}

std::array<int, Pick::kBuckets> Pick::sizes(std::int32_t idle) noexcept {
    std::array<int, kBuckets> out{};
    const auto share_out = [&](std::int32_t places, auto&& of_step) {
        std::int32_t begin = 0;
        for (int step = 0; step < kSteps && begin < places; ++step) {
            const auto until = step == kSteps - 1 ? places : std::min(places, 1 << step);
            out[static_cast<std::size_t>(of_step(step))] = until - begin;
            begin = until;
        }
    };
    share_out((idle + 1) / 2, [](int step) { return step; });  // nearer to the one that was used last,
    share_out(idle / 2, [](int step) { return kBuckets - 1 - step; });  // and to the first
    return out;
}

// A connection that is never used again is in nobody's way: it may be closed.
void Pick::find_places(const Problem& problem, const std::vector<std::int32_t>& before_on_conn) {
    const auto& children = problem.children;
    using Use = std::pair<Time, std::int32_t>;  // its end, and the child
    std::vector<Use> ends;
    for (const auto before : before_on_conn) {
        if (before != kNone) ends.emplace_back(children.end[static_cast<std::size_t>(before)], before);
    }
    std::sort(ends.begin(), ends.end());
    // Each in order; mostly it is one at an end that is taken.
    std::vector<std::deque<Use>> idle(problem.pools());
    place_.assign(children.size(), {});
    auto ended = ends.begin();
    for (std::size_t c = 0; c < children.size(); ++c) {
        for (; ended != ends.end() && ended->first <= children.begin[c] + kSlack; ++ended) {
            idle[problem.pool_of_child(static_cast<std::size_t>(ended->second))].push_back(*ended);
        }
        const auto before = before_on_conn[c];
        if (before == kNone) continue;
        auto& all = idle[problem.pool_of_child(c)];
        const Use own{children.end[static_cast<std::size_t>(before)], before};
        const auto at = std::lower_bound(all.begin(), all.end(), own);
        if (at == all.end() || *at != own) continue;
        place_[c] = {static_cast<std::int32_t>(all.end() - at) - 1, static_cast<std::int32_t>(all.size()),
                     static_cast<std::uint32_t>(problem.server_of_child(c))};
        all.erase(at);
    }
}

void Pick::bind(const Problem& problem, const std::vector<std::int32_t>& before_on_conn) {
    find_places(problem, before_on_conn);
    of_server_.resize(std::max(of_server_.size(), static_cast<std::size_t>(problem.servers)));
    for (auto& server : of_server_) {
        for (auto& taken : server.taken) taken.fade(kKept);
    }
    for (const auto& place : place_) {
        if (!place.told()) continue;
        auto& taken = of_server_[place.server].taken[group(place.idle)];
        taken.chosen[bucket(place)] += 1;
        const auto size = sizes(place.idle);
        for (std::size_t b = 0; b < kBuckets; ++b)
            taken.possible[b] += static_cast<double>(size[b]) / place.idle;
    }
    for (auto& server : of_server_) {
        Places all;
        double calls = 0;
        for (const auto& taken : server.taken) all.add(taken);
        for (const double count : all.chosen) calls += count;
        server.strict =
            calls >= kFewest && std::max(all.chosen.front(), all.chosen.back()) >= kStrict * calls;
        for (std::size_t g = 0; g < kGroups; ++g) server.ratio[g] = server.taken[g].ratios(kPrior, kMost);
    }
}

float Pick::log_chance(std::int32_t c, float any) const noexcept {
    const auto& place = place_[static_cast<std::size_t>(c)];
    if (place.from_last == kNone || !strict(place.server)) return any;
    const auto& ratio = of_server_[place.server].ratio[group(place.idle)];
    const auto size = sizes(place.idle);
    float all = 0;  // so that the chances of all places are 1 in sum
    for (std::size_t b = 0; b < kBuckets; ++b) {
        if (size[b] > 0) all += static_cast<float>(size[b]) * std::exp(ratio[b]);
    }
    return ratio[bucket(place)] - std::log(all);
}

}  // namespace tapscope::match
