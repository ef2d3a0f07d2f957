#include "content.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace tapscope::match {
namespace {

constexpr double kInitialCopy = 0.5;      // first guess of a rule's weight, before anything is learned
constexpr double kMaxCopy = 0.9995;       // a rule is never taken for certain
constexpr double kHopeless = 1e-9;        // relative weight below which a candidate is dropped

struct Rule {
    double weight = kInitialCopy;         // w_r, as P(copied | both slots present)
    double expected_hits = 0;
    std::int32_t opportunity = kNone;     // index of (parent class, child class, child slot)
};

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
    a ^= b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2);
    a *= 0xD6E8FEB86659FD93ull;
    return a ^ (a >> 32);
}

class Learner {
 public:
    Learner(const Problem& problem, Candidates& candidates) : problem_(problem), candidates_(candidates) {
        affinity_.n_parent = problem.parents.n_classes;
        affinity_.n_child = problem.children.n_classes;
        const auto cells = static_cast<std::size_t>(affinity_.n_parent) * affinity_.n_child;
        affinity_.weight.assign(cells, 1.0);
        parents_of_class_.assign(affinity_.n_parent, 0.0);
        for (const auto a : problem.parents.cls) parents_of_class_[a] += 1;
        learn_background();
        find_rules();
    }

    Affinity run(int rounds) {
        for (int round = 0; round < rounds; ++round) step();
        score_all();
        drop_hopeless();
        return std::move(affinity_);
    }

 private:
    void learn_background() {
        const auto& children = problem_.children;
        background_.resize(children.tokens.hash.size());
        std::unordered_map<std::uint64_t, double> slot_total, value_count;
        for (std::size_t c = 0; c < children.size(); ++c) {
            for (auto t = children.tokens.offset[c]; t < children.tokens.offset[c + 1]; ++t) {
                const auto slot = mix(children.cls[c], children.tokens.slot[t]);
                slot_total[slot] += 1;
                value_count[mix(slot, children.tokens.hash[t])] += 1;
            }
        }
        for (std::size_t c = 0; c < children.size(); ++c) {
            for (auto t = children.tokens.offset[c]; t < children.tokens.offset[c + 1]; ++t) {
                const auto slot = mix(children.cls[c], children.tokens.slot[t]);
                const double p = value_count[mix(slot, children.tokens.hash[t])] / (slot_total[slot] + 1);
                background_[t] = static_cast<float>(p);
            }
        }
    }

    // A rule exists where a value was seen on both sides of a candidate pair at least once.
    void find_rules() {
        const auto& [parents, children] = problem_;
        for (std::size_t c = 0; c < children.size(); ++c) {
            if (children.tokens.offset[c] == children.tokens.offset[c + 1]) continue;
            for (const auto p : candidates_.of(c)) {
                for_matches(p, c, [&](std::int64_t pt, std::int64_t ct) {
                    const auto key = rule_key(parents.cls[p], parents.tokens.slot[pt], children.cls[c],
                                              children.tokens.slot[ct]);
                    if (!rule_of_.try_emplace(key, static_cast<std::int32_t>(rules_.size())).second) return;
                    rules_.push_back({});
                    rules_.back().opportunity =
                        opportunity(parents.cls[p], children.cls[c], children.tokens.slot[ct]);
                });
            }
        }
        share_weights();
    }

    // Start values: the rules of one opportunity share the initial copy probability.
    void share_weights() {
        std::vector<int> sharers(opportunities_, 0);
        for (const auto& rule : rules_) ++sharers[rule.opportunity];
        for (auto& rule : rules_) rule.weight = kInitialCopy / sharers[rule.opportunity];
        copied_.assign(opportunities_, kInitialCopy);
    }

    template <class F>
    void for_matches(std::int32_t p, std::size_t c, F&& f) const {
        const auto& pt = problem_.parents.tokens;
        const auto& ct = problem_.children.tokens;
        for (auto i = ct.offset[c]; i < ct.offset[c + 1]; ++i) {
            for (auto j = pt.offset[p]; j < pt.offset[p + 1]; ++j) {
                if (pt.hash[j] == ct.hash[i]) f(j, i);
            }
        }
    }

    static std::uint64_t rule_key(std::int32_t a, std::uint32_t ps, std::int32_t k, std::uint32_t cs) noexcept {
        return mix(mix(mix(static_cast<std::uint64_t>(a) + 1, ps), static_cast<std::uint64_t>(k)), cs);
    }

    std::int32_t opportunity(std::int32_t a, std::int32_t k, std::uint32_t cs) {
        const auto key = mix(mix(static_cast<std::uint64_t>(a) + 7, static_cast<std::uint64_t>(k)), cs);
        const auto [at, fresh] = opportunity_of_.try_emplace(key, opportunities_);
        if (fresh) ++opportunities_;
        return at->second;
    }

    // Log-likelihood ratio of child c's tokens given parent p against the background. With `responsibility` > 0 the
    // expected hits and opportunities are accumulated too (E-step).
    double score(std::int32_t p, std::size_t c, double responsibility) {
        const auto& [parents, children] = problem_;
        const auto a = parents.cls[p];
        const auto k = children.cls[c];
        double llr = 0;
        for (auto i = children.tokens.offset[c]; i < children.tokens.offset[c + 1]; ++i) {
            const auto opp_key = mix(mix(static_cast<std::uint64_t>(a) + 7, static_cast<std::uint64_t>(k)),
                                     children.tokens.slot[i]);
            const auto opp = opportunity_of_.find(opp_key);
            if (opp == opportunity_of_.end()) continue;      // this slot never repeats anything of that class
            double matched = 0;
            for (auto j = parents.tokens.offset[p]; j < parents.tokens.offset[p + 1]; ++j) {
                if (parents.tokens.hash[j] != children.tokens.hash[i]) continue;
                const auto rule = rule_of_.find(rule_key(a, parents.tokens.slot[j], k, children.tokens.slot[i]));
                if (rule != rule_of_.end()) matched += rules_[rule->second].weight;
            }
            const double by_chance = (1 - copied_[opp->second]) * background_[i];
            const double total = matched + by_chance;
            llr += std::log(total / background_[i]);
            if (responsibility > 0) {
                chances_[opp->second] += responsibility;
                if (matched > 0) {
                    for (auto j = parents.tokens.offset[p]; j < parents.tokens.offset[p + 1]; ++j) {
                        if (parents.tokens.hash[j] != children.tokens.hash[i]) continue;
                        auto& rule = rules_[rule_of_.find(rule_key(a, parents.tokens.slot[j], k,
                                                                   children.tokens.slot[i]))->second];
                        rule.expected_hits += responsibility * rule.weight / total;
                    }
                }
            }
        }
        return llr;
    }

    void step() {
        const auto& [parents, children] = problem_;
        chances_.assign(opportunities_, 0.0);
        for (auto& rule : rules_) rule.expected_hits = 0;
        std::vector<double> expected(affinity_.weight.size(), 0.0);
        std::vector<double> weight;
        for (std::size_t c = 0; c < children.size(); ++c) {
            const auto parents_here = candidates_.of(c);
            if (parents_here.empty()) continue;
            weight.resize(parents_here.size());
            double best = -1e300;
            for (std::size_t i = 0; i < parents_here.size(); ++i) {
                const auto p = parents_here[i];
                weight[i] = std::log(affinity_(parents.cls[p], children.cls[c]) + 1e-12) + score(p, c, 0);
                best = std::max(best, weight[i]);
            }
            double total = 0;
            for (auto& w : weight) total += w = std::exp(w - best);
            for (std::size_t i = 0; i < parents_here.size(); ++i) {
                const double responsibility = weight[i] / total;
                if (responsibility < 1e-6) continue;
                const auto p = parents_here[i];
                score(p, c, responsibility);
                expected[static_cast<std::size_t>(parents.cls[p]) * affinity_.n_child + children.cls[c]] +=
                    responsibility;
            }
        }
        for (std::int32_t a = 0; a < affinity_.n_parent; ++a) {
            for (std::int32_t k = 0; k < affinity_.n_child; ++k) {
                const auto at = static_cast<std::size_t>(a) * affinity_.n_child + k;
                affinity_.weight[at] = (expected[at] + 1e-4) / (parents_of_class_[a] + 1);
            }
        }
        std::fill(copied_.begin(), copied_.end(), 0.0);
        for (auto& rule : rules_) {
            // Half a miss is added, so that a rule seen twice is not taken for a law.
            rule.weight = rule.expected_hits / (chances_[rule.opportunity] + 0.5);
            copied_[rule.opportunity] += rule.weight;
        }
        for (auto& rule : rules_) {
            if (copied_[rule.opportunity] > kMaxCopy) rule.weight *= kMaxCopy / copied_[rule.opportunity];
        }
        for (auto& copied : copied_) copied = std::min(copied, kMaxCopy);
    }

    void score_all() {
        for (std::size_t c = 0; c < problem_.children.size(); ++c) {
            for (auto i = candidates_.offset[c]; i < candidates_.offset[c + 1]; ++i) {
                candidates_.content[i] = static_cast<float>(score(candidates_.parent[i], c, 0));
            }
        }
    }

    void drop_hopeless() {
        const auto& [parents, children] = problem_;
        std::size_t kept = 0;
        std::int64_t begin = 0;
        const double cut = std::log(kHopeless);
        for (std::size_t c = 0; c < children.size(); ++c) {
            const auto end = candidates_.offset[c + 1];
            double best = -1e300;
            auto weight = [&](std::int64_t i) {
                return candidates_.content[i] +
                       std::log(affinity_(parents.cls[candidates_.parent[i]], children.cls[c]) + 1e-5);
            };
            for (auto i = begin; i < end; ++i) best = std::max(best, weight(i));
            for (auto i = begin; i < end; ++i) {
                if (weight(i) < best + cut) continue;
                candidates_.parent[kept] = candidates_.parent[i];
                candidates_.content[kept] = candidates_.content[i];
                ++kept;
            }
            begin = end;
            candidates_.offset[c + 1] = static_cast<std::int64_t>(kept);
        }
        candidates_.parent.resize(kept);
        candidates_.content.resize(kept);
    }

    const Problem& problem_;
    Candidates& candidates_;
    Affinity affinity_;
    std::vector<double> parents_of_class_;
    std::vector<float> background_;                                  // p(v) of each child token
    std::unordered_map<std::uint64_t, std::int32_t> rule_of_;
    std::vector<Rule> rules_;
    std::unordered_map<std::uint64_t, std::int32_t> opportunity_of_;
    std::int32_t opportunities_ = 0;
    std::vector<double> copied_, chances_;                           // per opportunity: sum of w_r; expected pairs
};

}  // namespace

Affinity learn_content(const Problem& problem, Candidates& candidates, int rounds) {
    return Learner(problem, candidates).run(rounds);
}

}  // namespace tapscope::match
