#include "pair.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapscope::match {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr std::size_t kMaxSplit = 600;  // children of one pair; beyond it the pair keeps what it has

double log_add(double a, double b) noexcept {
    if (a < b) std::swap(a, b);
    return b == kNever ? a : a + std::log1p(std::exp(b - a));
}

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
    bool movable = false;
    for (auto& content : content_) content.resize(n);
    for (std::size_t i = 0, a = 0, b = 0; i < n; ++i) {
        const bool from_q = a == of_p.size() || (b < of_q.size() && of_q[b] < of_p[a]);
        const auto c = child_[i] = from_q ? of_q[b++] : of_p[a++];
        held_by_[i] = from_q;
        for (int side = 0; side < 2; ++side) {
            if (parent_[side] == kNobody) {
                content_[side][i] = static_cast<std::size_t>(c) < problem_.decided() ? kImpossible : 0.0f;
                continue;
            }
            const auto where = candidates_.find(c, parent_[side]);
            content_[side][i] = where < 0 ? kImpossible : candidates_.content[where];
        }
        movable = movable || (content_[0][i] > kImpossible && content_[1][i] > kImpossible);
    }
    listed_ = false;
    for (const auto parent : parent_) listed_ = listed_ || (parent >= 0 && model_.fans_out(parent));
    return movable;
}

void PairSplit::build_lattice() {
    const auto side = [&](int x) {
        return Lattice::Side{parent_[x] == kNobody ? kNone : parent_[x], content_[x]};
    };
    lattice_.build(model_, child_, held_by_, side(0), side(1));
}

float PairSplit::step(int side, std::int32_t previous, std::int32_t next) const {
    const auto p = parent_[side];
    return p == kNobody ? model_.orphan(next) : model_.step(p, previous, next);
}

float PairSplit::finish(int side, std::int32_t last) const {
    const auto p = parent_[side];
    return p == kNobody ? 0.0f : model_.step(p, last, kEnd);
}

float PairSplit::loaded_score() const {
    float score = 0;
    std::int32_t last[2] = {kStart, kStart};
    for (std::size_t i = 0; i < child_.size(); ++i) {
        const int side = held_by_[i];
        score += step(side, last[side], child_[i]) + content_[side][i];
        last[side] = child_[i];
    }
    return score + finish(0, last[0]) + finish(1, last[1]);
}

float PairSplit::best() {
    if (listed_) {
        build_lattice();
        return lattice_.best(side_);
    }
    // value_[x][j]: best score with child i in chain x and the other chain ending in child j-1 (0: at its start).
    const std::size_t n = child_.size();
    for (int x = 0; x < 2; ++x) {
        value_[x].assign(n + 1, kImpossible);
        came_from_[x].assign(n + 1, 0);
    }
    for (int x = 0; x < 2; ++x) {
        if (content_[x][0] > kImpossible) value_[x][0] = step(x, kStart, child_[0]) + content_[x][0];
    }
    for (std::size_t i = 1; i < n; ++i) {
        const auto c = child_[i];
        float switched[2] = {kImpossible, kImpossible};
        for (int y = 0; y < 2; ++y) {  // c goes to y, the child before it went to the other
            if (content_[y][i] == kImpossible) continue;
            const auto& other = value_[1 - y];
            for (std::size_t j = 0; j < i; ++j) {
                if (other[j] == kImpossible) continue;
                const float score = other[j] + step(y, at(j), c);
                if (score > switched[y]) {
                    switched[y] = score;
                    came_from_[y][i] = static_cast<std::int32_t>(j);
                }
            }
            switched[y] += content_[y][i];
        }
        for (int x = 0; x < 2; ++x) {  // c goes on in the chain of the child before it
            const float gain =
                content_[x][i] == kImpossible ? kImpossible : step(x, child_[i - 1], c) + content_[x][i];
            for (std::size_t j = 0; j < i; ++j) value_[x][j] += gain;
            value_[x][i] = switched[x];
        }
    }
    float top = kImpossible;
    int x = 0;
    std::size_t j = 0;
    for (int side = 0; side < 2; ++side) {
        for (std::size_t k = 0; k < n; ++k) {
            if (value_[side][k] == kImpossible) continue;
            const float score = value_[side][k] + finish(side, child_[n - 1]) + finish(1 - side, at(k));
            if (score > top) top = score, x = side, j = k;
        }
    }
    side_.assign(n, 0);
    for (std::size_t i = n; i > 0;) {  // children j+1 .. i (1-based) are in x
        while (i > j) side_[--i] = static_cast<std::uint8_t>(x);
        if (i == 0) break;
        j = static_cast<std::size_t>(came_from_[x][i]);
        x = 1 - x;
    }
    return top - loaded_score();
}

void PairSplit::run_forward() {
    const std::size_t n = child_.size();
    forward_.assign(n * 2 * (n + 1), kNever);
    switch_.assign(n * 2 * (n + 1), kImpossible);
    for (int x = 0; x < 2; ++x) {
        stay_[x].assign(n, kImpossible);
        if (content_[x][0] > kImpossible)
            forward_[cell(0, x, 0)] = step(x, kStart, child_[0]) + content_[x][0];
    }
    for (std::size_t i = 1; i < n; ++i) {
        for (int x = 0; x < 2; ++x) {
            if (content_[x][i] == kImpossible) continue;
            stay_[x][i] = step(x, child_[i - 1], child_[i]) + content_[x][i];
            double total = kNever;
            for (std::size_t j = 0; j < i; ++j) {
                const double own = forward_[cell(i - 1, x, j)];
                if (own != kNever) forward_[cell(i, x, j)] = own + stay_[x][i];
                const double other = forward_[cell(i - 1, 1 - x, j)];
                if (other == kNever) continue;
                const float gain = step(x, at(j), child_[i]) + content_[x][i];
                switch_[cell(i, x, j)] = gain;
                total = log_add(total, other + gain);
            }
            forward_[cell(i, x, i)] = total;
        }
    }
}

void PairSplit::marginals(std::vector<double>& belongs_to_q) {
    if (listed_) {
        build_lattice();
        lattice_.marginals(belongs_to_q);
        return;
    }
    run_forward();
    const std::size_t n = child_.size();
    backward_.assign(forward_.size(), kNever);
    for (int x = 0; x < 2; ++x) {
        for (std::size_t j = 0; j < n; ++j) {
            if (forward_[cell(n - 1, x, j)] == kNever) continue;
            backward_[cell(n - 1, x, j)] = finish(x, child_[n - 1]) + finish(1 - x, at(j));
        }
    }
    for (std::size_t i = n - 1; i > 0; --i) {
        for (int x = 0; x < 2; ++x) {
            for (std::size_t j = 0; j < i; ++j) {
                if (forward_[cell(i - 1, x, j)] == kNever) continue;
                double value = kNever;
                if (stay_[x][i] > kImpossible) value = stay_[x][i] + backward_[cell(i, x, j)];
                if (switch_[cell(i, 1 - x, j)] > kImpossible) {
                    value = log_add(value, switch_[cell(i, 1 - x, j)] + backward_[cell(i, 1 - x, i)]);
                }
                backward_[cell(i - 1, x, j)] = value;
            }
        }
    }
    belongs_to_q.assign(n, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
        double mass[2] = {kNever, kNever};
        for (int x = 0; x < 2; ++x) {
            for (std::size_t j = 0; j <= i; ++j) {
                const double f = forward_[cell(i, x, j)];
                if (f != kNever) mass[x] = log_add(mass[x], f + backward_[cell(i, x, j)]);
            }
        }
        if (mass[1] == kNever) continue;
        belongs_to_q[i] = mass[0] == kNever ? 1.0 : 1.0 / (1.0 + std::exp(mass[0] - mass[1]));
    }
}

}  // namespace tapscope::match
