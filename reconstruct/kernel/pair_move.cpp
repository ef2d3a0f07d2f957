#include "pair_move.hpp"

#include <algorithm>
#include <cmath>

namespace tapscope::match {
namespace {

constexpr std::size_t kFew = 6;      // children that may change sides: 64 splits
constexpr float kWorthALook = 3.0f;  // nats that lengths could say more, for other splits to be looked at
constexpr int kDraws = 8;            // that are looked at
constexpr int kWeighed = 32;         // draws that marginals are weighed by
constexpr float kMostSaid = 30.0f;   // nats

}  // namespace

bool PairMove::few() {
    if (!split_.scores()) return false;
    split_.find_movable(movable_);
    return movable_.size() <= kFew;
}

PairMove::Side PairMove::changed(std::size_t which) const {
    Side out = split_.held_by();
    for (std::size_t k = 0; k < movable_.size(); ++k) out[movable_[k]] ^= (which >> k) & 1;
    return out;
}

void PairMove::score_all() {
    score_.clear();
    for (std::size_t which = 0; which < std::size_t{1} << movable_.size(); ++which) {
        const auto side = changed(which);
        score_.push_back(split_.score(side) + lengths(side));
    }
}

float PairMove::lengths(const Side& side) const {
    float parts[2] = {0, 0};
    const bool judges[2] = {length_.judges(split_.parent(0)), length_.judges(split_.parent(1))};
    for (std::size_t i = 0; i < side.size(); ++i) {
        if (judges[side[i]]) parts[side[i]] += length_.part(split_.parent(side[i]), split_.children()[i]);
    }
    float out = 0;
    for (int x = 0; x < 2; ++x) {
        if (judges[x]) out += length_.score(split_.parent(x), parts[x]);
    }
    return weight_ * out;
}

float PairMove::room(float now) const {
    float most = 0;
    for (int x = 0; x < 2; ++x) {
        if (length_.judges(split_.parent(x))) most += length_.most(split_.parent(x));
    }
    return weight_ * most - now;
}

float PairMove::best() {
    if (!judged()) return split_.best();
    const float now = lengths(split_.held_by());
    const bool look = room(now) > kWorthALook;
    if (!look || !few()) {
        const float gain = split_.best();
        if (look && split_.scores()) return best_of_proposals(gain);
        const float total = gain + lengths(split_.side()) - now;
        if (total > 0) return total;
        split_.choose(split_.held_by());
        return 0;
    }
    score_all();
    const auto top = std::max_element(score_.begin(), score_.end());
    split_.choose(changed(static_cast<std::size_t>(top - score_.begin())));
    return static_cast<float>(*top - score_[0]);
}

float PairMove::best_of_proposals(float gain) {
    const Side held = split_.held_by();
    const float now = lengths(held), loaded = split_.score(held);
    float top = 0;
    Side best = held;
    const auto consider = [&](const Side& side, float gained) {
        const float total = gained + lengths(side) - now;
        if (side == held || total <= top) return;
        top = total;
        best = side;
    };
    consider(split_.side(), gain);
    Side over = held;
    for (const auto i : movable_) over[i] ^= 1;
    consider(over, split_.score(over) - loaded);
    split_.prepare();
    for (int k = 0; k < kDraws; ++k) {
        split_.draw_prepared(random_);
        consider(split_.side(), split_.score(split_.side()) - loaded);
    }
    split_.choose(best);
    return top;
}

bool PairMove::draw() {
    if (judged() && few()) {
        score_all();
        const double top = *std::max_element(score_.begin(), score_.end());
        double all = 0;
        for (auto& each : score_) all += each = std::exp(each - top);
        double left = random_() * all;
        std::size_t which = 0;
        while (which + 1 < score_.size() && (left -= score_[which]) >= 0) ++which;
        split_.choose(changed(which));
        return which != 0;
    }
    if (!split_.draw(random_)) return false;
    if (!judged()) return true;
    const float more = lengths(split_.side()) - lengths(split_.held_by());
    return more >= 0 || random_() < std::exp(more);
}

void PairMove::marginals(std::vector<double>& belongs_to_q) {
    if (!judged() || !few()) {
        split_.marginals(belongs_to_q);
        if (judged()) weigh_marginals(belongs_to_q);
        return;
    }
    score_all();
    const double top = *std::max_element(score_.begin(), score_.end());
    double all = 0;
    std::vector<double> away(movable_.size(), 0.0);
    for (std::size_t which = 0; which < score_.size(); ++which) {
        const double weight = std::exp(score_[which] - top);
        all += weight;
        for (std::size_t k = 0; k < movable_.size(); ++k) away[k] += (which >> k) & 1 ? weight : 0.0;
    }
    const auto& held = split_.held_by();
    belongs_to_q.assign(held.begin(), held.end());
    for (std::size_t k = 0; k < movable_.size(); ++k) {
        auto& each = belongs_to_q[movable_[k]];
        each = std::abs(each - away[k] / all);
    }
}

void PairMove::weigh_marginals(std::vector<double>& belongs_to_q) {
    const Side held = split_.held_by();
    const float now = lengths(held);
    std::vector<double> moved(held.size(), 0.0), weight_moved(held.size(), 0.0);
    double all = 0;
    for (int k = 0; k < kWeighed; ++k) {
        split_.draw_prepared(random_);
        const auto& side = split_.side();
        const double weight = std::exp(std::min(lengths(side) - now, kMostSaid));
        all += weight;
        for (std::size_t i = 0; i < held.size(); ++i) {
            if (side[i] == held[i]) continue;
            moved[i] += 1;
            weight_moved[i] += weight;
        }
    }
    const double loaded = split_.share_of_loaded();
    for (std::size_t i = 0; i < held.size(); ++i) {
        if (moved[i] == 0) continue;  // too seldom to tell
        const double away = std::abs(held[i] - belongs_to_q[i]);
        const double stays = kWeighed - moved[i];
        const double mean_stays = stays > 0 ? (all - weight_moved[i]) / stays : 1.0;
        const double odds =
            away * (weight_moved[i] / moved[i]) / std::max({(1 - away) * mean_stays, loaded, 1e-9});
        belongs_to_q[i] = std::abs(held[i] - odds / (1 + odds));
    }
}

}  // namespace tapscope::match
