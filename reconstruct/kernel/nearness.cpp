#include "nearness.hpp"

#include <algorithm>

namespace tapscope::match {

void Nearness::find(const std::vector<std::int32_t>& parent_of, float width) {
    const auto parents = problem_.parents.size();
    tip_.assign(parents, {});
    paired_.assign(parents, 0);
    lonely_.assign(parents, 0);
    keys_.clear();
    for (std::size_t i = 0; i < parent_of.size(); ++i) {
        const auto c = static_cast<std::int32_t>(i);
        const auto own = parent_of[i];
        const auto here = candidates_.of(i);
        if (i >= problem_.decided() && !here.empty()) {
            score_.resize(here.size());
            const float nobody = model_.orphan(c);
            float least = nobody;
            for (std::size_t k = 0; k < here.size(); ++k) {
                const auto p = here[k];
                score_[k] = model_.step(p, tip_[p], c) + candidates_.content[candidates_.offset[i] + k];
                if (p == own) least = score_[k];
            }
            least -= width;
            for (std::size_t k = 0; k < here.size(); ++k) {
                const auto p = here[k];
                if (score_[k] < least || p == own) continue;
                if (own == kNone) {
                    lonely_[p] = 1;
                    continue;
                }
                const auto low = static_cast<std::uint64_t>(std::min(p, own)),
                           high = static_cast<std::uint64_t>(std::max(p, own));
                const auto key = low << 32 | high;
                if (keys_.empty() || keys_.back() != key) keys_.push_back(key);
            }
            if (own != kNone && nobody >= least) lonely_[own] = 1;
        }
        if (own != kNone) model_.advance(own, tip_[own], c);
    }
    std::sort(keys_.begin(), keys_.end());
    keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
    pairs_.clear();
    for (const auto key : keys_) {
        pairs_.emplace_back(static_cast<std::int32_t>(key >> 32),
                            static_cast<std::int32_t>(key & 0xFFFFFFFF));
        paired_[pairs_.back().first] = paired_[pairs_.back().second] = 1;
    }
    near_nobody_.clear();
    for (std::size_t p = 0; p < parents; ++p) {
        if (lonely_[p]) near_nobody_.push_back(static_cast<std::int32_t>(p));
    }
}

}  // namespace tapscope::match
