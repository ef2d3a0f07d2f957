#include "ejection.hpp"

#include <algorithm>
#include <utility>

namespace tapscope::match {
namespace {

constexpr float kOther = 0.05f;   // how much it counts for a parent what an exchange costs the other one
constexpr float kWorthIt = 0.5f;  // nats that a parent, or a ring, has to gain
constexpr double kTooDear = -60.0, kTooDearToSettle = -40.0;  // nats that a ring may have cost on its way
constexpr int kLongest = 16;                                  // exchanges in a row
constexpr std::size_t kWays = 3;                              // that a ring may begin, from each parent
constexpr std::size_t kSplits = 16;                           // for each way to begin, on average
constexpr std::size_t kLooks = 64;  // calls that are looked at in the time of a split, about
constexpr int kSweeps = 2;          // among those who took part, where a ring has not gained
constexpr float kChanged = 1e-3f;   // nats; below it an exchange is rounding

}  // namespace

void Ejection::run(Chains& chains, float reach) {
    reach_ = reach;
    find_neighbours(chains, reach);
    if (neighbour_.empty()) return;
    usual_.assign(problem_.children.size(), 0.0f);
    weighed_.assign(static_cast<std::size_t>(chains.parents()), 0);
    splits_left_ = kSplits * neighbour_.size();
    for (std::int32_t p = 0; p < chains.parents() && splits_left_ > 0; ++p) {
        stop_.poll();
        auto first = ways(chains, p, kNone);
        first.resize(std::min(first.size(), kWays));
        for (const auto& way : first) {
            if (ring(chains, p, way.to)) break;
        }
    }
}

bool Ejection::ring(Chains& chains, std::int32_t start, std::int32_t second) {
    before_.clear();
    gain_ = 0;
    auto p = start, q = second;
    for (int length = 0; length < kLongest && exchange(chains, p, q, true); ++length) {
        if (gain_ > kWorthIt || gain_ < kTooDear) break;
        const auto& next = ways(chains, q, p);
        if (next.empty()) break;
        p = q;
        q = next.front().to;
    }
    if (gain_ <= kWorthIt && gain_ > kTooDearToSettle && before_.size() > 2) settle(chains);
    if (gain_ <= kWorthIt) {
        chains.restore(before_);
        return false;
    }
    for (const auto& [owner, chain] : before_) score_(owner, chains.held(owner), &usual_);
    return true;
}

const std::vector<Ejection::Way>& Ejection::ways(const Chains& chains, std::int32_t p, std::int32_t from) {
    ways_.clear();
    weigh(chains, p);
    if (from == kNone) {
        asked_.assign(neighbour_.begin() + offset_[p], neighbour_.begin() + offset_[p + 1]);
    } else {
        find_asked(chains, p);
    }
    split_.favour(kOther, usual_);
    for (const auto q : asked_) {
        weigh(chains, q);
        if (q == from || splits_left_ == 0 || !split_.load(p, q, chains.held(p), chains.held(q))) continue;
        --splits_left_;
        const float gain = split_.best();
        if (gain > kWorthIt) ways_.push_back({gain, q});
    }
    split_.weigh_evidence(1.0f);
    std::sort(ways_.begin(), ways_.end(), [](const Way& a, const Way& b) {
        return a.gain > b.gain || (a.gain == b.gain && a.to < b.to);
    });
    return ways_;
}

bool Ejection::exchange(Chains& chains, std::int32_t p, std::int32_t q, bool favoured) {
    if (favoured) split_.favour(kOther, usual_);
    const bool gains = split_.load(p, q, chains.held(p), chains.held(q)) && split_.best() > kChanged;
    split_.weigh_evidence(1.0f);
    if (!gains) return false;
    for (const auto owner : {p, q}) {
        weigh(chains, owner);
        gain_ -= score_(owner, chains.held(owner));
        const bool known = std::any_of(before_.begin(), before_.end(),
                                       [&](const auto& other) { return other.first == owner; });
        if (!known) before_.emplace_back(owner, chains.held(owner));
    }
    chains.take(p, q, split_);
    for (const auto owner : {p, q}) gain_ += score_(owner, chains.held(owner));
    return true;
}

void Ejection::settle(Chains& chains) {
    const auto took_part = before_.size();
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
        for (std::size_t k = 0; k < took_part; ++k) {
            const auto p = before_[k].first;
            find_asked(chains, p);
            for (const auto q : asked_) {
                if (splits_left_ == 0) return;
                --splits_left_;
                exchange(chains, p, q, false);
            }
        }
    }
}

void Ejection::find_neighbours(const Chains& chains, float reach) {
    nearness_.find(chains, reach, Nearness::Whom::all);
    const auto asked = [&](const Pair& pair) {
        return !model_.fans_out(pair.first) && !model_.fans_out(pair.second);
    };
    offset_.assign(static_cast<std::size_t>(chains.parents()) + 1, 0);
    for (const auto& pair : nearness_.pairs()) {
        if (!asked(pair)) continue;
        ++offset_[pair.first + 1];
        ++offset_[pair.second + 1];
    }
    for (std::size_t p = 1; p < offset_.size(); ++p) offset_[p] += offset_[p - 1];
    neighbour_.resize(static_cast<std::size_t>(offset_.back()));
    auto at = offset_;
    for (const auto& pair : nearness_.pairs()) {
        if (!asked(pair)) continue;
        neighbour_[at[pair.first]++] = pair.second;
        neighbour_[at[pair.second]++] = pair.first;
    }
}

void Ejection::find_asked(const Chains& chains, std::int32_t p) {
    asked_.assign(neighbour_.begin() + offset_[p], neighbour_.begin() + offset_[p + 1]);
    const auto& begin = problem_.children.begin;
    const auto from = problem_.parents.arrive[static_cast<std::size_t>(p)] - kSlack;
    const auto until = problem_.parents.depart[static_cast<std::size_t>(p)] + kSlack;
    const auto first =
        std::max(static_cast<std::size_t>(std::lower_bound(begin.begin(), begin.end(), from) - begin.begin()),
                 problem_.decided());
    const auto& held = chains.held(p);
    Tip tip;
    std::size_t behind = 0, i = first;
    for (; i < begin.size() && begin[i] <= until; ++i) {
        const auto owner = chains.parent_of()[i];
        if (owner == kNone || owner == p || candidates_.certain(i)) continue;
        if (model_.fans_out(owner) || nearness_.apart(owner)) continue;
        const auto where = candidates_.find(i, p);
        if (where < 0) continue;
        weigh(chains, owner);
        const auto c = static_cast<std::int32_t>(i);
        while (behind < held.size() && held[behind] < c) model_.advance(p, tip, held[behind++]);
        const float step = model_.step(p, tip, c) + candidates_.content[static_cast<std::size_t>(where)];
        if (step >= usual_[i] - reach_) asked_.push_back(owner);
    }
    splits_left_ -= std::min(splits_left_, (i - first) / kLooks);
    std::sort(asked_.begin(), asked_.end());
    asked_.erase(std::unique(asked_.begin(), asked_.end()), asked_.end());
}

// Whoever takes part in a ring is weighed before his chain changes: that of who was not is still the one of before.
void Ejection::weigh(const Chains& chains, std::int32_t p) {
    if (!std::exchange(weighed_[static_cast<std::size_t>(p)], std::uint8_t{1}))
        score_(p, chains.held(p), &usual_);
}

}  // namespace tapscope::match
