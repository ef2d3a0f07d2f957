#include "pieces.hpp"

#include <numeric>

namespace tapscope::match {
namespace {

constexpr double kWorthTaking = 1e-3;  // nats; below it a difference is rounding

}  // namespace

std::int32_t Pieces::piece(std::int32_t parent) noexcept {
    while (above_[parent] != parent) parent = above_[parent] = above_[above_[parent]];
    return parent;
}

void Pieces::join(std::int32_t one, std::int32_t other) noexcept {
    for (const auto p : {one, other}) {
        if (p != kNone && above_[p] == kNone) above_[p] = p;
    }
    if (one != kNone && other != kNone) above_[piece(one)] = piece(other);
}

void Pieces::add(const std::vector<std::int32_t>& parent_of, double sign) {
    tip_.assign(problem_.parents.size(), {});
    parts_.assign(problem_.parents.size(), 0.0f);
    for (std::size_t i = 0; i < parent_of.size(); ++i) {
        const auto p = parent_of[i];
        if (p == kNone || above_[p] == kNone) continue;
        const auto c = static_cast<std::int32_t>(i);
        const auto where = candidates_.find(i, p);
        better_[piece(p)] += sign * (model_.step(p, tip_[p], c) + candidates_.content[where]);
        model_.advance(p, tip_[p], c);
        if (length_.judges(p)) parts_[p] += length_.part(p, c);
    }
    for (std::size_t p = 0; p < tip_.size(); ++p) {
        if (above_[p] == kNone) continue;
        const auto parent = static_cast<std::int32_t>(p);
        better_[piece(parent)] += sign * model_.step(parent, tip_[p], kEnd);
        if (length_.judges(parent)) better_[piece(parent)] += sign * length_.score(parent, parts_[p]);
    }
}

double Pieces::score(const std::vector<std::int32_t>& parent_of) {
    above_.resize(problem_.parents.size());
    std::iota(above_.begin(), above_.end(), 0);
    better_.assign(problem_.parents.size(), 0.0);
    add(parent_of, 1);
    double total = std::accumulate(better_.begin(), better_.end(), 0.0);
    for (std::size_t c = problem_.decided(); c < parent_of.size(); ++c) {
        if (parent_of[c] == kNone) total += model_.orphan(static_cast<std::int32_t>(c));
    }
    return total;
}

std::vector<std::int32_t> Pieces::best(const std::vector<std::int32_t>& known,
                                       const std::vector<std::int32_t>& other) {
    above_.assign(problem_.parents.size(), kNone);
    better_.assign(problem_.parents.size(), 0.0);
    for (std::size_t c = 0; c < known.size(); ++c) {
        if (known[c] != other[c]) join(known[c], other[c]);
    }
    for (std::size_t i = 0; i < known.size(); ++i) {
        if (known[i] == other[i]) continue;
        const auto c = static_cast<std::int32_t>(i);
        if (known[i] == kNone) better_[piece(other[i])] -= model_.orphan(c);
        if (other[i] == kNone) better_[piece(known[i])] += model_.orphan(c);
    }
    add(other, 1);
    add(known, -1);
    gain_ = 0;
    for (std::size_t p = 0; p < above_.size(); ++p) {
        if (above_[p] == static_cast<std::int32_t>(p) && better_[p] > kWorthTaking) gain_ += better_[p];
    }
    auto out = known;
    for (std::size_t c = 0; c < known.size(); ++c) {
        if (known[c] == other[c]) continue;
        if (better_[piece(known[c] == kNone ? other[c] : known[c])] > kWorthTaking) out[c] = other[c];
    }
    return out;
}

}  // namespace tapscope::match
