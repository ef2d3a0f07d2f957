#include "assign.hpp"

#include <algorithm>
#include <cmath>

#include "content.hpp"
#include "model.hpp"
#include "pair.hpp"

namespace tapscope::match {
namespace {

constexpr float kGainWorthTaking = 1e-3f;   // nats; below it an exchange is rounding
constexpr double kCertain = 1e-6;           // floor of every probability that something else is true

class Matcher {
 public:
    Matcher(const Problem& problem, const Options& options, const std::atomic<bool>& stop)
        : problem_(problem), options_(options), stop_(stop), candidates_(find_candidates(problem)),
          idle_(idle_connections(problem.children)),
          affinity_(learn_content(problem, candidates_, options.content_rounds)),
          model_(problem, candidates_, affinity_, idle_), split_(problem, candidates_, model_),
          parent_of_(problem.children.size(), kNone), held_(problem.parents.size()),
          version_(problem.parents.size(), 1) {}

    Assignment run() {
        for (int round = 0; round < options_.learn_rounds && !stop_; ++round) {
            if (round < 3) forward();
            sweep(2);
            model_.estimate(parent_of_);
            checked_.clear(1024);
            checked_versions_.clear();
        }
        sweep(options_.max_sweeps);
        return posterior();
    }

 private:
    void forward() {
        const auto& children = problem_.children;
        for (auto& held : held_) held.clear();
        for (std::size_t c = 0; c < children.size(); ++c) {
            std::int32_t best = kNone;
            float top = model_.orphan(static_cast<std::int32_t>(c));
            for (auto i = candidates_.offset[c]; i < candidates_.offset[c + 1]; ++i) {
                const auto p = candidates_.parent[i];
                const auto previous = held_[p].empty() ? kStart : held_[p].back();
                const float score = model_.step(p, previous, static_cast<std::int32_t>(c)) + candidates_.content[i] -
                                    model_.log_survival(p, previous, children.begin[c]);
                if (score > top) top = score, best = p;
            }
            parent_of_[c] = best;
            if (best != kNone) held_[best].push_back(static_cast<std::int32_t>(c));
        }
    }

    // Orphans that parent p could have made, ascending.
    void collect_orphans() {
        orphans_of_.assign(problem_.parents.size(), {});
        for (std::size_t c = 0; c < parent_of_.size(); ++c) {
            if (parent_of_[c] != kNone) continue;
            for (const auto p : candidates_.of(c)) orphans_of_[p].push_back(static_cast<std::int32_t>(c));
        }
    }

    void partners_of(std::int32_t p, std::vector<std::int32_t>& out) const {
        out.clear();
        for (const auto c : held_[p]) {
            for (const auto q : candidates_.of(c)) {
                if (q != p) out.push_back(q);
            }
        }
        std::sort(out.begin(), out.end());
        out.erase(std::unique(out.begin(), out.end()), out.end());
    }

    // True once per state of the two chains.
    bool unchecked(std::int32_t p, std::int32_t q) {
        const auto low = static_cast<std::uint64_t>(std::min(p, q)), high = static_cast<std::uint64_t>(std::max(p, q));
        const auto at = checked_.insert((low << 32 | high) + 1);
        const std::uint64_t now = (static_cast<std::uint64_t>(version_[low]) << 32) | version_[high];
        if (at == static_cast<std::int32_t>(checked_versions_.size())) {
            checked_versions_.push_back(now);
            return true;
        }
        if (checked_versions_[at] == now) return false;
        checked_versions_[at] = now;
        return true;
    }

    void sweep(int max_sweeps) {
        std::vector<std::int32_t> partners;
        for (int pass = 0; pass < max_sweeps && !stop_; ++pass) {
            bool improved = adopt_or_leave();
            for (std::size_t p = 0; p < held_.size() && !stop_; ++p) {
                partners_of(static_cast<std::int32_t>(p), partners);
                for (const auto q : partners) {
                    if (!unchecked(static_cast<std::int32_t>(p), q)) continue;
                    if (!split_.load(static_cast<std::int32_t>(p), q, held_[p], held_[q])) continue;
                    ++pairs_;
                    if (split_.best() < kGainWorthTaking) continue;
                    improved = true;
                    take(static_cast<std::int32_t>(p), q);
                    unchecked(static_cast<std::int32_t>(p), q);      // this split is the best already
                }
            }
            if (!improved) break;
        }
    }

    // Exchanges between each parent and the orphans.
    bool adopt_or_leave() {
        bool improved = false;
        collect_orphans();
        std::vector<std::int32_t> orphans;
        for (std::size_t p = 0; p < held_.size() && !stop_; ++p) {
            orphans.clear();
            for (const auto c : orphans_of_[p]) {
                if (parent_of_[c] == kNone) orphans.push_back(c);
            }
            if (held_[p].empty() && orphans.empty()) continue;
            if (!split_.load(static_cast<std::int32_t>(p), kNobody, held_[p], orphans)) continue;
            if (split_.best() < kGainWorthTaking) continue;
            improved = true;
            take(static_cast<std::int32_t>(p), kNobody);
        }
        return improved;
    }

    void take(std::int32_t p, std::int32_t q) {
        held_[p].clear();
        if (q != kNobody) held_[q].clear();
        for (std::size_t i = 0; i < split_.children().size(); ++i) {
            const auto c = split_.children()[i];
            const auto owner = split_.side()[i] ? q : p;
            parent_of_[c] = owner == kNobody ? kNone : owner;
            if (owner != kNobody) held_[owner].push_back(c);
        }
        ++version_[p];
        if (q != kNobody) ++version_[q];
    }

    Assignment posterior() {
        const std::size_t n = problem_.children.size();
        // Odds of every alternative against the parent that the child has, from the exact marginals of each pair.
        std::vector<double> odds_sum(n, 0.0), odds_best(n, 0.0);
        std::vector<std::int32_t> alternative(n, kNone);
        std::vector<double> to_q;
        auto account = [&](std::int32_t p, std::int32_t q) {
            split_.marginals(to_q);
            for (std::size_t i = 0; i < to_q.size(); ++i) {
                const auto c = split_.children()[i];
                const bool held_by_p = parent_of_[c] == p;
                const double away = std::clamp(held_by_p ? to_q[i] : 1 - to_q[i], 0.0, 1 - kCertain);
                const double odds = away / (1 - away);
                odds_sum[c] += odds;
                if (odds > odds_best[c]) {
                    odds_best[c] = odds;
                    alternative[c] = held_by_p ? (q == kNobody ? kNone : q) : p;
                }
            }
        };
        checked_.clear(1024);
        checked_versions_.clear();
        std::vector<std::int32_t> partners, orphans;
        collect_orphans();
        for (std::size_t p = 0; p < held_.size() && !stop_; ++p) {
            const auto parent = static_cast<std::int32_t>(p);
            partners_of(parent, partners);
            for (const auto q : partners) {
                if (!unchecked(parent, q)) continue;
                if (split_.load(parent, q, held_[p], held_[q])) account(parent, q);
            }
            if (held_[p].empty() && orphans_of_[p].empty()) continue;
            if (split_.load(parent, kNobody, held_[p], orphans_of_[p])) account(parent, kNobody);
        }
        Assignment out;
        out.parent = parent_of_;
        out.probability.resize(n);
        out.runner_up = std::move(alternative);
        out.runner_up_probability.resize(n);
        for (std::size_t c = 0; c < n; ++c) {
            const double p = 1.0 / (1.0 + odds_sum[c] + kCertain);
            out.probability[c] = p;
            out.runner_up_probability[c] = p * odds_best[c];
        }
        out.pairs_split = pairs_;
        out.pairs_too_large = split_.too_large();
        return out;
    }

    const Problem& problem_;
    const Options& options_;
    const std::atomic<bool>& stop_;
    Candidates candidates_;
    std::vector<float> idle_;
    Affinity affinity_;
    Model model_;
    PairSplit split_;
    std::vector<std::int32_t> parent_of_;
    std::vector<std::vector<std::int32_t>> held_;           // children of each parent, ascending
    std::vector<std::vector<std::int32_t>> orphans_of_;
    std::vector<std::uint32_t> version_;
    KeyMap checked_;
    std::vector<std::uint64_t> checked_versions_;
    std::uint64_t pairs_ = 0;
};

}  // namespace

Assignment assign(const Problem& problem, const Options& options, const std::atomic<bool>& stop) {
    if (problem.children.size() == 0) return {};
    return Matcher(problem, options, stop).run();
}

}  // namespace tapscope::match
