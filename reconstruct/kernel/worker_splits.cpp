// A group of connections split in two: who meets whom more often than chance would have it, and does that prove anything?
#include <algorithm>
#include <cmath>

#include "workers.hpp"

namespace tapscope::match {
namespace {

constexpr int kMostAround = 24;             // requests in flight among which there is one of any process
constexpr int kRounds = 30, kDecided = 10;  // of the power iteration; of them by side alone
constexpr double kProof = 30;               // calls that would find nobody by chance

}  // namespace

bool Workers::split(std::int32_t group, const Candidates& candidates) {
    group_ = group;
    find_members(group, candidates);
    if (members_.size() < kFewestCalls) return false;
    meet(candidates);
    lean();
    doubt(candidates);
    return apart(candidates);
}

// Calls of the group that some, but not too many, of its requests could have made.
void Workers::find_members(std::int32_t group, const Candidates& candidates) {
    members_.clear();
    for (std::size_t c = first_; c < behind_of_.size(); ++c) {
        if (behind_.group[static_cast<std::size_t>(behind_of_[c])] != group) continue;
        int around = 0;
        for (const auto p : candidates.of(c)) {
            around += ahead_.group[static_cast<std::size_t>(ahead_of_[static_cast<std::size_t>(p)])] == group;
        }
        if (around > 0 && around <= kMostAround) members_.push_back(static_cast<std::int32_t>(c));
    }
}

// The connection of a call nearby.
std::int32_t Workers::control(std::size_t member) const {
    return behind_of_[static_cast<std::size_t>(members_[(member + kNearby) % members_.size()])];
}

// How often connections met: calls of one while a request of the other was there, less calls nearby in their place.
void Workers::meet(const Candidates& candidates) {
    pairs_.clear();
    pair_.clear(1024);
    for (auto* side : {&ahead_, &behind_}) {
        for (std::size_t i = 0; i < side->group.size(); ++i) {
            if (side->group[i] == group_) side->used[i] = side->leaning[i] = 0;
        }
    }
    std::vector<std::int32_t> around;
    const auto met = [&](std::int32_t ahead, std::int32_t behind, float weight) {
        const auto at = pair_.insert((static_cast<std::uint64_t>(ahead) + 1) << 32 |
                                     (static_cast<std::uint64_t>(behind) + 1));
        if (at == static_cast<std::int32_t>(pairs_.size())) pairs_.push_back({ahead, behind, 0});
        pairs_[static_cast<std::size_t>(at)].more += weight;
    };
    for (std::size_t m = 0; m < members_.size(); ++m) {
        const auto c = static_cast<std::size_t>(members_[m]);
        around.clear();
        for (const auto p : candidates.of(c)) {
            const auto ahead = ahead_of_[static_cast<std::size_t>(p)];
            if (ahead_.group[static_cast<std::size_t>(ahead)] == group_) around.push_back(ahead);
        }
        const float each = 1.0f / static_cast<float>(around.size());
        const auto own = behind_of_[c], other = control(m);
        behind_.used[static_cast<std::size_t>(own)] += 1;
        for (const auto ahead : around) {
            ahead_.used[static_cast<std::size_t>(ahead)] += each;
            if (own == other) continue;
            met(ahead, own, each);
            met(ahead, other, -each);
        }
    }
}

// Which way connections lean: the pair of singular vectors of the meetings that explains most of them.
void Workers::lean() {
    const auto weight = [](float used) { return 1.0f / std::sqrt(used + 1.0f); };
    for (auto& pair : pairs_) {
        pair.more *= weight(ahead_.used[static_cast<std::size_t>(pair.ahead)]) *
                     weight(behind_.used[static_cast<std::size_t>(pair.behind)]);
    }
    // Any start will do that is not symmetric.
    std::uint32_t seed = 1;
    for (std::size_t i = 0; i < behind_.group.size(); ++i) {
        if (behind_.group[i] != group_) continue;
        seed = seed * 1664525u + 1013904223u;
        behind_.leaning[i] = static_cast<float>(seed >> 8) / static_cast<float>(1u << 24) - 0.5f;
    }
    const auto scale = [&](Side& side) {
        double sum = 0;
        for (std::size_t i = 0; i < side.group.size(); ++i) {
            if (side.group[i] == group_) sum += static_cast<double>(side.leaning[i]) * side.leaning[i];
        }
        if (sum <= 0) return;
        const auto by = static_cast<float>(1.0 / std::sqrt(sum));
        for (std::size_t i = 0; i < side.group.size(); ++i) {
            if (side.group[i] == group_) side.leaning[i] *= by;
        }
    };
    const auto clear = [&](Side& side) {
        for (std::size_t i = 0; i < side.group.size(); ++i) {
            if (side.group[i] == group_) side.leaning[i] = 0;
        }
    };
    // Of three processes and more, one may be in the middle: then its connections decide for one side together.
    const auto decide = [&](Side& side) {
        for (std::size_t i = 0; i < side.group.size(); ++i) {
            if (side.group[i] != group_ || side.leaning[i] == 0) continue;
            side.leaning[i] = std::copysign(std::sqrt(side.used[i]), side.leaning[i]);
        }
    };
    for (int round = 0; round < kRounds + kDecided; ++round) {
        clear(ahead_);
        for (const auto& pair : pairs_) {
            ahead_.leaning[static_cast<std::size_t>(pair.ahead)] +=
                pair.more * behind_.leaning[static_cast<std::size_t>(pair.behind)];
        }
        if (round >= kRounds) decide(ahead_);
        scale(ahead_);
        clear(behind_);
        for (const auto& pair : pairs_) {
            behind_.leaning[static_cast<std::size_t>(pair.behind)] +=
                pair.more * ahead_.leaning[static_cast<std::size_t>(pair.ahead)];
        }
        if (round >= kRounds) decide(behind_);
        scale(behind_);
    }
}

Workers::Around Workers::around(std::size_t member, const Candidates& candidates) const {
    Around out;
    for (const auto p : candidates.of(static_cast<std::size_t>(members_[member]))) {
        const auto ahead = static_cast<std::size_t>(ahead_of_[static_cast<std::size_t>(p)]);
        if (ahead_.group[ahead] != group_) {
            // Of another process; of one that is not told, it might be anybody's.
            out.unknown += ahead_.group[ahead] == kNone;
            continue;
        }
        const float leaning = ahead_.leaning[ahead];
        ++(leaning < 0 ? out.left : leaning > 0 ? out.right : out.unknown);
    }
    return out;
}

// Takes back what few calls speak for, or some against.
void Workers::doubt(const Candidates& candidates) {
    std::vector<Votes> of_ahead(ahead_.group.size()), of_behind(behind_.group.size());
    for (std::size_t m = 0; m < members_.size(); ++m) {
        const auto c = static_cast<std::size_t>(members_[m]);
        const auto behind = static_cast<std::size_t>(behind_of_[c]);
        const float leaning = behind_.leaning[behind];
        const auto there = around(m, candidates);
        if (leaning == 0 || there.unknown > 0) continue;
        const int own = leaning < 0 ? there.left : there.right,
                  other = leaning < 0 ? there.right : there.left;
        of_behind[behind].other += own == 0;
        of_behind[behind].own += other == 0;
        if (own > 1) continue;
        for (const auto p : candidates.of(c)) {
            const auto ahead = static_cast<std::size_t>(ahead_of_[static_cast<std::size_t>(p)]);
            if (ahead_.group[ahead] != group_) continue;
            if (own == 0) of_ahead[ahead].other += 1.0f / static_cast<float>(other);
            if (own == 1 && (ahead_.leaning[ahead] < 0) == (leaning < 0)) of_ahead[ahead].own += 1;
        }
    }
    const auto forget = [&](Side& side, const std::vector<Votes>& votes) {
        for (std::size_t i = 0; i < side.group.size(); ++i) {
            if (side.group[i] != group_) continue;
            if (votes[i].own < kVotes || votes[i].other > kAgainst * votes[i].own) side.leaning[i] = 0;
        }
    };
    forget(ahead_, of_ahead);
    forget(behind_, of_behind);
}

// Calls find a request of their own half, where calls nearby would not.
bool Workers::apart(const Candidates& candidates) const {
    const auto any = [&](const Side& side, bool left) {
        for (std::size_t i = 0; i < side.group.size(); ++i) {
            if (side.group[i] == group_ && (left ? side.leaning[i] < 0 : side.leaning[i] > 0)) return true;
        }
        return false;
    };
    for (const bool left : {true, false}) {
        if (!any(ahead_, left) || !any(behind_, left)) return false;
    }
    double by_chance = 0, broken = 0;
    for (std::size_t m = 0; m < members_.size(); ++m) {
        const auto there = around(m, candidates);
        if (there.unknown > 0) continue;
        const float
            own =
                behind_.leaning[static_cast<std::size_t>(behind_of_[static_cast<std::size_t>(members_[m])])],
            other = behind_.leaning[static_cast<std::size_t>(control(m))];
        if (own == 0 || other == 0) continue;
        broken += (own < 0 ? there.left : there.right) == 0;
        by_chance += (other < 0 ? there.left : there.right) == 0;
    }
    return by_chance >= kProof && broken <= kBroken * by_chance;
}

}  // namespace tapscope::match
