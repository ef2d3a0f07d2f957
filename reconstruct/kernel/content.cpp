#include "content.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "key_map.hpp"

namespace tapscope::match {
namespace {

constexpr double kFirstCopy = 0.5;      // first guess of what an opportunity's rules copy together
constexpr double kMostFromAlone = 0.9;  // no rule is trusted further while calls are looked at one by one,
constexpr double kMostFromChains = 0.9995;  // nor further than this at all
constexpr double kCopiedAnyway = 0.5;  // share of copies of a slot from which on nothing is recalled for it
constexpr double kHopeless = 1e-8;     // relative weight below which a candidate is dropped

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
    a ^= b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2);
    a *= 0xD6E8FEB86659FD93ull;
    return a ^ (a >> 32);
}

std::uint64_t opportunity_key(std::uint64_t form, std::int32_t k, std::uint32_t child_slot) noexcept {
    return mix(mix(form, static_cast<std::uint64_t>(k)), child_slot);
}

}  // namespace

Content::Content(const Problem& problem, Candidates& candidates)
    : problem_(problem), candidates_(candidates), recall_(problem) {
    affinity_.n_parent = problem.parents.n_classes;
    affinity_.n_child = problem.children.n_classes;
    const auto cells =
        static_cast<std::size_t>(affinity_.n_parent) * static_cast<std::size_t>(affinity_.n_child);
    affinity_.weight.assign(cells, 1.0);
    parents_of_class_.assign(static_cast<std::size_t>(affinity_.n_parent), 0.0);
}

void ValueCounts::fade(double keep) {
    for (auto* generation : {&young_, &old_}) {
        for (float& times : generation->times) times *= static_cast<float>(keep);
    }
}

void ValueCounts::add(std::uint64_t value) {
    if (young_.row.size() >= kMost) {
        std::swap(young_, old_);
        young_.row.clear(1024);
        young_.times.clear();
    }
    const auto at = static_cast<std::size_t>(young_.row.insert(value | 1));
    if (at == young_.times.size()) young_.times.push_back(old_.of(value));
    young_.times[at] += 1;
}

float ValueCounts::count(std::uint64_t value) const noexcept {
    const float times = young_.of(value);
    return times > 0 ? times : old_.of(value);
}

void Content::bind(double keep) {
    std::fill(parents_of_class_.begin(), parents_of_class_.end(), 0.0);
    for (const auto a : problem_.parents.cls) parents_of_class_[a] += 1;
    find_forms();
    recall_.bind();
    learn_background(keep);
}

void Content::find_forms() {
    const auto& parents = problem_.parents;
    std::vector<std::uint32_t> slots;
    form_.clear();
    for (std::size_t p = 0; p < parents.size(); ++p) {
        slots.assign(parents.tokens.slot.begin() + parents.tokens.offset[p],
                     parents.tokens.slot.begin() + parents.tokens.offset[p + 1]);
        std::sort(slots.begin(), slots.end());
        slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
        auto form = static_cast<std::uint64_t>(parents.cls[p]) + 1;
        for (const auto slot : slots) form = mix(form, slot);
        form_.push_back(form);
    }
}

Affinity Content::learn(int rounds) {
    find_rules();
    for (int round = 0; round < rounds; ++round) step();
    apply();
    return affinity_;
}

void Content::relearn(const std::vector<std::int32_t>& parent_of, double keep) {
    for (double& chances : chances_) chances *= keep;
    for (auto& rule : rules_) rule.hits *= keep;
    for (std::size_t c = problem_.decided(); c < std::min(problem_.settled, parent_of.size()); ++c) {
        if (parent_of[c] == kNone) continue;
        if (keep > 0) find_rules(parent_of[c], c);  // what began to be copied since
        count(parent_of[c], c, 1.0);
    }
    reweigh(kMostFromChains);
    recall_.learn(parent_of, keep);
    if (keep == 0) score_all();
}

void Content::learn_background(double keep) {
    const auto& children = problem_.children;
    background_.resize(children.tokens.hash.size());
    value_counts_.fade(keep);
    for (auto& [slot, total] : slot_totals_) total *= keep;
    auto for_tokens = [&](std::size_t first, std::size_t last, auto&& visit) {
        for (std::size_t c = first; c < last; ++c) {
            for (auto t = children.tokens.offset[c]; t < children.tokens.offset[c + 1]; ++t) {
                const auto slot = mix(static_cast<std::uint64_t>(children.cls[c]), children.tokens.slot[t]);
                visit(t, slot, mix(slot, children.tokens.hash[t]));
            }
        }
    };
    for_tokens(problem_.decided(), std::min(problem_.settled, children.size()),
               [&](std::int64_t, std::uint64_t slot, std::uint64_t value) {
                   slot_totals_[slot] += 1;
                   value_counts_.add(value);
               });
    for_tokens(0, children.size(), [&](std::int64_t t, std::uint64_t slot, std::uint64_t value) {
        background_[t] =
            static_cast<float>(std::max(value_counts_.count(value), 1.0f) / (slot_totals_[slot] + 1));
    });
}

// A rule exists where a value was seen on both sides of a candidate pair at least once.
void Content::find_rules() {
    const auto& children = problem_.children;
    for (std::size_t c = problem_.decided(); c < children.size(); ++c) {
        if (children.tokens.offset[c] == children.tokens.offset[c + 1]) continue;
        for (const auto p : candidates_.of(c)) find_rules(p, c);
    }
    std::vector<int> sharers(opportunity_of_.size(), 0);
    for (const auto& rule : rules_) ++sharers[rule.opportunity];
    for (auto& rule : rules_) rule.weight = kFirstCopy / sharers[rule.opportunity];
    copied_.assign(opportunity_of_.size(), kFirstCopy);
    chances_.assign(opportunity_of_.size(), 0.0);
}

void Content::find_rules(std::int32_t p, std::size_t c) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    for_matches(p, c, [&](std::int64_t pt, std::int64_t ct) {
        const auto chance = opportunity_key(form_[p], children.cls[c], children.tokens.slot[ct]);
        const auto key = mix(chance, parents.tokens.slot[pt]);
        if (!rule_of_.try_emplace(key, static_cast<std::int32_t>(rules_.size())).second) return;
        const auto at =
            opportunity_of_.try_emplace(chance, static_cast<std::int32_t>(opportunity_of_.size()));
        if (at.second) {
            copied_.push_back(0.0);
            chances_.push_back(0.0);
        }
        rules_.push_back({0, 0, at.first->second});
    });
}

template <class F>
void Content::for_matches(std::int32_t p, std::size_t c, F&& f) const {
    const auto& pt = problem_.parents.tokens;
    const auto& ct = problem_.children.tokens;
    for (auto i = ct.offset[c]; i < ct.offset[c + 1]; ++i) {
        for (auto j = pt.offset[p]; j < pt.offset[p + 1]; ++j) {
            if (pt.hash[j] == ct.hash[i]) f(j, i);
        }
    }
}

std::int32_t Content::opportunity(std::uint64_t form, std::int32_t k, std::uint32_t child_slot) const {
    const auto at = opportunity_of_.find(opportunity_key(form, k, child_slot));
    return at == opportunity_of_.end() ? kNone : at->second;
}

const Content::Rule* Content::rule(std::int32_t p, std::int64_t parent_token, std::size_t c,
                                   std::int64_t child_token) const {
    const auto chance =
        opportunity_key(form_[p], problem_.children.cls[c], problem_.children.tokens.slot[child_token]);
    const auto at = rule_of_.find(mix(chance, problem_.parents.tokens.slot[parent_token]));
    return at == rule_of_.end() ? nullptr : &rules_[at->second];
}

// Log-likelihood ratio of child c's tokens, given parent p, against the background.
double Content::score(std::int32_t p, std::size_t c) const {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    const auto recalled = recall_.of(p);
    double llr = 0;
    for (auto i = children.tokens.offset[c]; i < children.tokens.offset[c + 1]; ++i) {
        const auto chance = opportunity(form_[p], children.cls[c], children.tokens.slot[i]);
        double matched = 0, copied = 0;
        if (chance != kNone) {  // else this slot never repeats anything of that form
            copied = copied_[chance];
            for (auto j = parents.tokens.offset[p]; j < parents.tokens.offset[p + 1]; ++j) {
                if (parents.tokens.hash[j] != children.tokens.hash[i]) continue;
                if (const auto* r = rule(p, j, c, i)) matched += r->weight;
            }
        }
        if (chance != kNone) llr += std::log(matched / background_[i] + 1 - copied);
        if (copied > kCopiedAnyway) continue;  // the request itself says it
        llr += recall_score(recalled, c, i);
    }
    return llr;
}

// What is not copied from the request may be recalled; of several habits the best one says it.
double Content::recall_score(std::span<const Recall::Expected> recalled, std::size_t c,
                             std::int64_t token) const {
    const auto& children = problem_.children;
    const auto where = Recall::place(children.cls[c], children.tokens.slot[token]);
    double most = 0, right = 0;
    for (const auto& expected : recalled) {
        if (expected.where != where) continue;
        most = std::max(most, static_cast<double>(expected.weight));
        if (expected.value != children.tokens.hash[token]) continue;
        right = std::max(right, static_cast<double>(expected.weight));
    }
    if (most <= 0) return 0;
    return recall_.temper() * std::log(right / background_[token] + 1 - (right > 0 ? right : most));
}

// E-step of one pair: whom child c's tokens were copied from, if p made it with this responsibility.
void Content::count(std::int32_t p, std::size_t c, double responsibility) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    for (auto i = children.tokens.offset[c]; i < children.tokens.offset[c + 1]; ++i) {
        const auto chance = opportunity(form_[p], children.cls[c], children.tokens.slot[i]);
        if (chance == kNone) continue;
        chances_[chance] += responsibility;
        double total = (1 - copied_[chance]) * background_[i];
        auto for_copies = [&](auto&& visit) {
            for (auto j = parents.tokens.offset[p]; j < parents.tokens.offset[p + 1]; ++j) {
                if (parents.tokens.hash[j] != children.tokens.hash[i]) continue;
                if (const auto* r = rule(p, j, c, i)) visit(rules_[r - rules_.data()]);
            }
        };
        for_copies([&](Rule& r) { total += r.weight; });
        for_copies([&](Rule& r) { r.hits += responsibility * r.weight / total; });
    }
}

void Content::reweigh(double most) {
    std::fill(copied_.begin(), copied_.end(), 0.0);
    for (auto& rule : rules_) {
        // Half a miss is added, so that a rule seen twice is not taken for a law; and a rule never dies, so that later
        // estimates can revive it.
        rule.weight = std::max(rule.hits, 0.01) / (chances_[rule.opportunity] + 0.5);
        copied_[rule.opportunity] += rule.weight;
    }
    for (auto& rule : rules_) {
        if (copied_[rule.opportunity] > most) rule.weight *= most / copied_[rule.opportunity];
    }
    for (auto& copied : copied_) copied = std::min(copied, most);
}

void Content::step() {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    std::fill(chances_.begin(), chances_.end(), 0.0);
    for (auto& rule : rules_) rule.hits = 0;
    std::vector<double> expected(affinity_.weight.size(), 0.0), weight;
    auto cell = [&](std::int32_t a, std::int32_t k) {
        return static_cast<std::size_t>(a) * static_cast<std::size_t>(affinity_.n_child) +
               static_cast<std::size_t>(k);
    };
    for (std::size_t c = 0; c < children.size(); ++c) {
        const auto parents_here = candidates_.of(c);
        if (parents_here.empty()) continue;
        weight.resize(parents_here.size());
        double best = -1e300;
        for (std::size_t i = 0; i < parents_here.size(); ++i) {
            const auto p = parents_here[i];
            weight[i] = std::log(affinity_(parents.cls[p], children.cls[c]) + 1e-12) + score(p, c);
            best = std::max(best, weight[i]);
        }
        double total = 0;
        for (auto& w : weight) total += w = std::exp(w - best);
        for (std::size_t i = 0; i < parents_here.size(); ++i) {
            const double responsibility = weight[i] / total;
            if (responsibility < 1e-6) continue;
            count(parents_here[i], c, responsibility);
            expected[cell(parents.cls[parents_here[i]], children.cls[c])] += responsibility;
        }
    }
    for (std::int32_t a = 0; a < affinity_.n_parent; ++a) {
        for (std::int32_t k = 0; k < affinity_.n_child; ++k) {
            affinity_.weight[cell(a, k)] = (expected[cell(a, k)] + 1e-4) / (parents_of_class_[a] + 1);
        }
    }
    reweigh(kMostFromAlone);
}

void Content::score_all() {
    // What score() says, with what all candidates of one form share looked up once for each child.
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    std::vector<double> log_miss(copied_.size());
    for (std::size_t k = 0; k < copied_.size(); ++k) log_miss[k] = std::log(1 - copied_[k]);
    struct Shared {
        std::size_t child = std::numeric_limits<std::size_t>::max();  // that it was looked up for
        double missed = 0;                                            // when no token is a copy
        std::vector<std::pair<std::int64_t, std::int32_t>>
            open;                              // tokens that can be, and their opportunities
        std::vector<std::int64_t> recallable;  // tokens that need not be
    };
    KeyMap forms;
    std::vector<std::int32_t> form_at(form_.size());
    for (std::size_t p = 0; p < form_.size(); ++p)
        form_at[p] = forms.insert(std::max<std::uint64_t>(form_[p], 1));
    std::vector<Shared> of_form(static_cast<std::size_t>(forms.size()));
    for (std::size_t c = 0; c < children.size(); ++c) {
        if (children.tokens.offset[c] == children.tokens.offset[c + 1]) continue;
        for (auto i = candidates_.offset[c]; i < candidates_.offset[c + 1]; ++i) {
            const auto p = candidates_.parent[i];
            auto& shared = of_form[static_cast<std::size_t>(form_at[p])];
            if (shared.child != c) {
                shared.child = c;
                shared.missed = 0;
                shared.open.clear();
                shared.recallable.clear();
                for (auto t = children.tokens.offset[c]; t < children.tokens.offset[c + 1]; ++t) {
                    const auto chance = opportunity(form_[p], children.cls[c], children.tokens.slot[t]);
                    if (chance == kNone || copied_[chance] <= kCopiedAnyway) shared.recallable.push_back(t);
                    if (chance == kNone) continue;
                    shared.open.emplace_back(t, chance);
                    shared.missed += log_miss[chance];
                }
            }
            double llr = shared.missed;
            for (const auto& [t, chance] : shared.open) {
                double matched = 0;
                for (auto j = parents.tokens.offset[p]; j < parents.tokens.offset[p + 1]; ++j) {
                    if (parents.tokens.hash[j] != children.tokens.hash[t]) continue;
                    if (const auto* r = rule(p, j, c, t)) matched += r->weight;
                }
                if (matched <= 0) continue;
                llr += std::log(matched / background_[t] + 1 - copied_[chance]) - log_miss[chance];
            }
            if (const auto recalled = recall_.of(p); !recalled.empty()) {
                for (const auto t : shared.recallable) llr += recall_score(recalled, c, t);
            }
            candidates_.content[i] = static_cast<float>(llr);
        }
    }
}

void Content::drop_hopeless() {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    std::vector<float> weight(candidates_.parent.size()), best(children.size(), -1e30f);
    std::vector<std::uint8_t> hopeful(candidates_.parent.size());
    for (std::size_t c = 0; c < children.size(); ++c) {
        for (auto i = candidates_.offset[c]; i < candidates_.offset[c + 1]; ++i) {
            const double expected = affinity_(parents.cls[candidates_.parent[i]], children.cls[c]);
            weight[i] = candidates_.content[i] + static_cast<float>(std::log(expected + 1e-5));
            best[c] = std::max(best[c], weight[i]);
        }
        for (auto i = candidates_.offset[c]; i < candidates_.offset[c + 1]; ++i) {
            hopeful[i] = weight[i] >= best[c] + static_cast<float>(std::log(kHopeless));
        }
    }
    candidates_.retain([&](std::int64_t i) { return hopeful[i] != 0; });
}

}  // namespace tapscope::match
