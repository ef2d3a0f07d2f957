#include "pair.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapscope::match {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr std::size_t kMaxSplit = 600;  // children of one pair; beyond it the pair keeps what it has

}  // namespace

bool PairSplit::load(std::int32_t p, std::int32_t q, const std::vector<std::int32_t>& of_p,
                     const std::vector<std::int32_t>& of_q) {
    parent_[0] = p;
    parent_[1] = q;
    const std::size_t n = of_p.size() + of_q.size();
    if (n > kMaxSplit) {
        ++too_large_;
        return false;
    }
    child_.resize(n);
    held_by_.resize(n);
    for (auto& content : content_) content.resize(n);
    lo_ = n;
    hi_ = 0;
    for (std::size_t i = 0, a = 0, b = 0; i < n; ++i) {
        const bool from_q = a == of_p.size() || (b < of_q.size() && of_q[b] < of_p[a]);
        const auto c = child_[i] = from_q ? of_q[b++] : of_p[a++];
        held_by_[i] = from_q;
        // What a child that must stay adds to one split, it adds to all.
        content_[from_q][i] = 0.0f;
        const float moved = content_[!from_q][i] = content_of(c, !from_q);
        if (moved == kImpossible) continue;
        content_[from_q][i] = content_of(c, from_q);
        lo_ = std::min(lo_, i);
        hi_ = i + 1;
    }
    if (lo_ == n) return false;
    before_[0] = before_[1] = kStart;
    after_[0] = after_[1] = kEnd;
    for (std::size_t i = 0; i < lo_; ++i) before_[held_by_[i]] = child_[i];
    for (std::size_t i = n; i-- > hi_;) after_[held_by_[i]] = child_[i];
    listed_ = false;
    for (const auto parent : parent_) listed_ = listed_ || (parent >= 0 && model_.fans_out(parent));
    return true;
}

float PairSplit::content_of(std::int32_t c, int side) const {
    const auto p = parent_[side];
    const auto i = static_cast<std::size_t>(c);
    if (candidates_.certain(i)) return kImpossible;
    if (p == kNobody) return i < problem_.decided() ? kImpossible : 0.0f;
    // Most children of long chains were made while the other parent was not there.
    const auto at = static_cast<std::size_t>(p);
    if (problem_.parents.arrive[at] > problem_.children.begin[i] + kSlack ||
        problem_.parents.depart[at] + kSlack < problem_.children.begin[i]) {
        return kImpossible;
    }
    const auto where = candidates_.find(i, p);
    return where < 0 ? kImpossible : weight_[side] * candidates_.content[static_cast<std::size_t>(where)];
}

void PairSplit::build_lattice(bool sums) {
    const auto side = [&](int x) {
        return Lattice::Side{parent_[x] == kNobody ? kNone : parent_[x], content_[x]};
    };
    lattice_.build(model_, weight_[0], child_, held_by_, lo_, side(0), side(1), sums);
}

float PairSplit::step(int side, std::int32_t previous, std::int32_t next) const {
    const auto p = parent_[side];
    const float score = p == kNobody ? model_.orphan(next) : model_.step(p, previous, next);
    return weight_[side] * (usual_ == nullptr ? score : score - (*usual_)[static_cast<std::size_t>(next)]);
}

float PairSplit::finish(int side, std::int32_t last) const {
    const auto p = parent_[side];
    return p == kNobody ? 0.0f : weight_[side] * model_.step(p, last, after_[side]);
}

void PairSplit::prepare() {
    if (listed_) {
        build_lattice(true);
        lattice_.sum();
    } else {
        follow(true);
    }
}

void PairSplit::find_movable(std::vector<std::size_t>& out) const {
    out.clear();
    for (std::size_t i = lo_; i < hi_; ++i) {
        if (content_[!held_by_[i]][i] > kImpossible) out.push_back(i);
    }
}

float PairSplit::score(const std::vector<std::uint8_t>& side) const {
    std::int32_t last[2] = {before_[0], before_[1]};
    float total = 0;
    for (std::size_t i = lo_; i < hi_; ++i) {
        const int x = side[i];
        total += step(x, last[x], child_[i]) + content_[x][i];
        last[x] = child_[i];
    }
    return total + finish(0, last[0]) + finish(1, last[1]);
}

void PairSplit::follow(bool sums) {
    const std::size_t n = child_.size();
    layers_.clear();
    states_.clear();
    switch_weight_.clear();
    loaded_end_[0] = loaded_end_[1] = lo_;
    for (int x = 0; x < 2; ++x) {
        alive_[x].clear();
        came_from_[x].assign(n, 0);
        const float first = content_[x][lo_] > kImpossible
                                ? step(x, before_[x], child_[lo_]) + content_[x][lo_]
                                : kImpossible;
        if (first > kImpossible) alive_[x].push_back({lo_, first, 0});
        if (held_by_[lo_] == x) loaded_score_ = first;
    }
    loaded_end_[held_by_[lo_]] = lo_ + 1;
    top_ = kImpossible;
    for (const auto& alive : alive_) {
        for (const auto& state : alive) top_ = std::max(top_, state.score);
    }
    for (auto& alive : alive_) {
        for (auto& state : alive) state.forward = std::exp(state.score - top_);
    }
    for (std::size_t i = lo_; i < hi_; ++i) {
        if (i > lo_) extend(i, sums);
        if (!sums) continue;
        if (i == lo_) layers_.emplace_back();
        for (int x = 0; x < 2; ++x) {
            layers_.back().begin[x] = states_.size();
            states_.insert(states_.end(), alive_[x].begin(), alive_[x].end());
            layers_.back().end[x] = states_.size();
        }
    }
    if (sums) finish_sums();
}

void PairSplit::extend(std::size_t i, bool sums) {
    const float far = far_behind(std::max(weight_[0], weight_[1]), sums);
    const auto c = child_[i];
    float switched[2] = {kImpossible, kImpossible}, stay[2] = {kImpossible, kImpossible};
    float top = kImpossible;
    for (int x = 0; x < 2; ++x) {
        gain_[x].clear();
        if (content_[x][i] == kImpossible) continue;
        for (const auto& other : alive_[1 - x]) {  // c goes to x, the child before it went to the other
            const float gain = step(x, at(x, other.j), c) + content_[x][i];
            gain_[x].push_back(gain);
            if (other.score + gain <= switched[x]) continue;
            switched[x] = other.score + gain;
            came_from_[x][i] = other.j;
        }
        top = std::max(top, switched[x]);
        if (alive_[x].empty()) continue;
        stay[x] =
            step(x, child_[i - 1], c) + content_[x][i];  // c goes on in the chain of the child before it
        for (const auto& own : alive_[x]) top = std::max(top, own.score + stay[x]);
    }
    follow_loaded(i, stay);
    const float rise = top - top_;
    top_ = top;
    double entered[2] = {0, 0};
    if (sums) {
        auto& layer = layers_.emplace_back();
        for (int x = 0; x < 2; ++x) {
            layer.switches[x] = switch_weight_.size();
            layer.entered[x] = !gain_[x].empty();
            layer.stay_weight[x] = std::exp(stay[x] - rise);
            for (std::size_t k = 0; k < gain_[x].size(); ++k) {
                switch_weight_.push_back(std::exp(gain_[x][k] - rise));
                entered[x] += alive_[1 - x][k].forward * switch_weight_.back();
            }
        }
    }
    for (int x = 0; x < 2; ++x) {
        std::size_t kept = 0;
        for (const auto& own : alive_[x]) {
            const float score = own.score + stay[x];
            if (score < top - far) continue;
            alive_[x][kept++] = {own.j, score, sums ? own.forward * layers_.back().stay_weight[x] : 0.0};
        }
        alive_[x].resize(kept);
        if (switched[x] >= top - far) alive_[x].push_back({i, switched[x], entered[x]});
    }
}

// The loaded split takes its own step, which has mostly been looked at by now.
void PairSplit::follow_loaded(std::size_t i, const float* stay) {
    const int x = held_by_[i];
    const auto j = loaded_end_[x];
    loaded_end_[x] = i + 1;
    if (j == i && stay[x] > kImpossible) {
        loaded_score_ += stay[x];
        return;
    }
    const auto& others = alive_[1 - x];
    for (std::size_t k = 0; k < gain_[x].size() && j < i; ++k) {
        if (others[k].j != j) continue;
        loaded_score_ += gain_[x][k];
        return;
    }
    loaded_score_ += step(x, at(x, j), child_[i]) + content_[x][i];
}

void PairSplit::finish_sums() {
    const auto& last = layers_.back();
    std::vector<float>& scores = gain_[0];
    scores.clear();
    float top = kImpossible;
    for (int x = 0; x < 2; ++x) {
        for (auto s = last.begin[x]; s < last.end[x]; ++s) {
            scores.push_back(finish(x, child_[hi_ - 1]) + finish(1 - x, at(1 - x, states_[s].j)));
            top = std::max(top, scores.back());
        }
    }
    finish_weight_.clear();
    for (const float score : scores) finish_weight_.push_back(std::exp(score - top));
    double all = 0;
    for (std::size_t k = 0; k < scores.size(); ++k) {
        all += states_[last.begin[0] + k].forward * finish_weight_[k];
    }
    const float loaded = loaded_score_ + finish(0, at(0, loaded_end_[0])) + finish(1, at(1, loaded_end_[1]));
    share_of_loaded_ = all > 0 ? std::exp(static_cast<double>(loaded - top_ - top)) / all : 0.0;
}

float PairSplit::best() {
    if (listed_) {
        build_lattice(false);
        return lattice_.best(side_);
    }
    follow(false);
    float top = kImpossible;
    int x = 0;
    std::size_t j = 0;
    for (int side = 0; side < 2; ++side) {
        if (alive_[side].empty()) continue;
        const float own = finish(side, child_[hi_ - 1]);
        for (const auto& state : alive_[side]) {
            const float score = state.score + own + finish(1 - side, at(1 - side, state.j));
            if (score > top) top = score, x = side, j = state.j;
        }
    }
    side_ = held_by_;
    for (std::size_t i = hi_; i > lo_;) {  // children j+1 .. i (1-based) are in x
        while (i > j) side_[--i] = static_cast<std::uint8_t>(x);
        if (i == lo_) break;
        j = came_from_[x][i];
        x = 1 - x;
    }
    return top - (loaded_score_ + finish(0, at(0, loaded_end_[0])) + finish(1, at(1, loaded_end_[1])));
}

void PairSplit::marginals(std::vector<double>& belongs_to_q) {
    prepare();
    if (listed_) {
        share_of_loaded_ = 0;
        lattice_.marginals(belongs_to_q);
        return;
    }
    belongs_to_q.assign(held_by_.begin(), held_by_.end());
    // Sums over all splits from a state on, of the layer at hand, by j.
    for (auto& backward : backward_) backward.assign(hi_, 0.0);
    for (int x = 0, k = 0; x < 2; ++x) {
        for (auto s = layers_.back().begin[x]; s < layers_.back().end[x]; ++s, ++k) {
            backward_[x][states_[s].j] = finish_weight_[static_cast<std::size_t>(k)];
        }
    }
    for (std::size_t i = hi_; i-- > lo_;) {
        const auto& layer = layers_[i - lo_];
        double mass[2] = {0, 0};
        for (int x = 0; x < 2; ++x) {
            for (auto s = layer.begin[x]; s < layer.end[x]; ++s) {
                mass[x] += states_[s].forward * backward_[x][states_[s].j];
            }
        }
        belongs_to_q[i] = mass[1] > 0 ? mass[1] / (mass[0] + mass[1]) : 0.0;
        if (i == lo_) break;
        const double entered[2] = {backward_[0][i], backward_[1][i]};
        const auto& before = layers_[i - lo_ - 1];
        for (int x = 0; x < 2; ++x) {
            const auto from = before.begin[x];
            for (auto s = from; s < before.end[x]; ++s) {
                auto& here = backward_[x][states_[s].j];
                here *= layer.stay_weight[x];
                if (layer.entered[1 - x]) {
                    here += switch_weight_[layer.switches[1 - x] + (s - from)] * entered[1 - x];
                }
            }
        }
    }
}

}  // namespace tapscope::match
