// What was told of connections in earlier stretches, and what that tells of others.
#include <algorithm>
#include <limits>

#include "workers.hpp"

namespace tapscope::match {
namespace {

constexpr std::size_t kMostKnown = 1 << 16;  // connections that are remembered on either side
constexpr double kUntold = 0.25;  // share of calls that are not told, from which on memory is of little use

}  // namespace

void Workers::forget() {
    of_process_.clear();
    for (auto* side : {&ahead_, &behind_}) side->forget();
}

void Workers::remember(const Problem& problem) {
    if (problem.children.conn_name.empty()) return forget();
    for (auto* side : {&ahead_, &behind_}) {
        if (side->known.size() > kMostKnown) side->forget();
        for (std::size_t i = 0; i < side->group.size(); ++i) {
            if (side->group[i] == kNone) continue;
            const auto at = static_cast<std::size_t>(side->known_at.insert(side->name[i]));
            side->known.resize(std::max(side->known.size(), at + 1));
            side->known[at] = side->group[i];
        }
    }
}

// What was told of the connections in earlier stretches; others are not told.
void Workers::recall() {
    for (auto* side : {&ahead_, &behind_}) {
        for (std::size_t i = 0; i < side->group.size(); ++i) {
            const auto at = side->known_at.find(side->name[i]);
            side->group[i] = kNone;
            if (at != kNone) side->tell(i, side->known[static_cast<std::size_t>(at)], of_process_);
        }
    }
}

// How many requests that a call may have been made for are of each process.
Workers::Crowd Workers::crowd(std::size_t c, const Candidates& candidates) const {
    Crowd out{std::vector<int>(of_process_.size())};
    for (const auto p : candidates.of(c)) {
        const auto ahead = ahead_of_[static_cast<std::size_t>(p)];
        const auto process = ahead_.group[static_cast<std::size_t>(ahead)];
        if (process != kNone) {
            ++out.of[static_cast<std::size_t>(process)];
            continue;
        }
        out.several = out.several || (out.untold != kNone && out.untold != ahead);
        out.untold = ahead;
    }
    return out;
}

// Connections that are not told yet, by those that are. Calls on one go out while requests of its own process are there,
// and now and then nobody else's; requests that came on one are the only ones that can have made some calls of its
// process.
void Workers::tell_others(const Candidates& candidates) {
    const auto n = of_process_.size();
    std::vector<float> absent(behind_.group.size() * n), votes(ahead_.group.size() * n);
    for (std::size_t c = first_; c < behind_of_.size(); ++c) {
        const auto behind = static_cast<std::size_t>(behind_of_[c]);
        const auto process = behind_.group[behind];
        const auto there = crowd(c, candidates);
        if (process == kNone && there.untold == kNone) {
            for (std::size_t k = 0; k < n; ++k) absent[behind * n + k] += there.of[k] == 0;
        }
        if (process != kNone && there.untold != kNone && !there.several &&
            there.of[static_cast<std::size_t>(process)] == 0) {
            votes[static_cast<std::size_t>(there.untold) * n + static_cast<std::size_t>(process)] += 1;
        }
    }
    for (std::size_t i = 0; i < behind_.group.size(); ++i) {
        if (behind_.group[i] != kNone) continue;
        std::size_t own = 0;
        float least = std::numeric_limits<float>::max(), next = least;
        for (std::size_t k = 0; k < n; ++k) {
            const float here = absent[i * n + k];
            next = std::min(next, std::max(here, least));
            if (here < least) least = here, own = k;
        }
        if (next >= kVotes && least <= kAgainst * next) {
            behind_.tell(i, static_cast<std::int32_t>(own), of_process_);
        }
    }
    for (std::size_t i = 0; i < ahead_.group.size(); ++i) {
        if (ahead_.group[i] != kNone) continue;
        std::size_t own = 0;
        float all = 0, most = 0;
        for (std::size_t k = 0; k < n; ++k) {
            const float here = votes[i * n + k];
            all += here;
            if (here > most) most = here, own = k;
        }
        if (most >= kVotes && all - most <= kAgainst * most) {
            ahead_.tell(i, static_cast<std::int32_t>(own), of_process_);
        }
    }
}

// Whether what is remembered is true of these rows, and tells of most.
bool Workers::holds(const Candidates& candidates) const {
    double by_chance = 0, broken = 0, untold = 0;
    const auto calls = behind_of_.size() - first_;
    for (std::size_t i = 0; i < calls; ++i) {
        const auto own = behind_.group[static_cast<std::size_t>(behind_of_[first_ + i])];
        untold += own == kNone;
        const auto there = crowd(first_ + i, candidates);
        if (own == kNone || there.untold != kNone) continue;
        const auto other =
            behind_.group[static_cast<std::size_t>(behind_of_[first_ + (i + kNearby) % calls])];
        broken += there.of[static_cast<std::size_t>(own)] == 0;
        by_chance += other != kNone && there.of[static_cast<std::size_t>(other)] == 0;
    }
    return untold <= kUntold * static_cast<double>(calls) && broken <= kBroken * by_chance + 1;
}

}  // namespace tapscope::match
