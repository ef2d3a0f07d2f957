#include "content.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "key_map.hpp"

namespace tapscope::match {
namespace {

constexpr double kMostFromChains = 0.9995;  // no rule is trusted further
constexpr double kCopiedAnyway = 0.5;  // share of copies of a slot from which on nothing is recalled for it

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
    a ^= b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2);
    a *= 0xD6E8FEB86659FD93ull;
    return a ^ (a >> 32);
}

}  // namespace

Content::Content(const Problem& problem, Candidates& candidates)
    : problem_(problem), candidates_(candidates), recall_(problem, candidates) {
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
    form_at_.clear();
    form_of_.clear();
    KeyMap forms;
    for (std::size_t p = 0; p < parents.size(); ++p) {
        slots.assign(parents.tokens.slot.begin() + parents.tokens.offset[p],
                     parents.tokens.slot.begin() + parents.tokens.offset[p + 1]);
        std::sort(slots.begin(), slots.end());
        slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
        auto form = static_cast<std::uint64_t>(parents.cls[p]) + 1;
        for (const auto slot : slots) form = mix(form, slot);
        form_.push_back(std::max<std::uint64_t>(form, 1));
        form_at_.push_back(forms.insert(form_.back()));
        if (form_at_.back() == static_cast<std::int32_t>(form_of_.size())) form_of_.push_back(form_.back());
    }
    class_of_form_.assign(static_cast<std::size_t>(forms.size()), 0);
    for (std::size_t p = 0; p < parents.size(); ++p) class_of_form_[form_at_[p]] = parents.cls[p];
    const auto& children = problem_.children;
    KeyMap child_forms;
    child_form_.clear();
    for (std::size_t c = 0; c < children.size(); ++c) {
        auto form = static_cast<std::uint64_t>(children.cls[c]) + 1;
        for (auto t = children.tokens.offset[c]; t < children.tokens.offset[c + 1]; ++t) {
            form = mix(form, children.tokens.slot[t]);
        }
        child_form_.push_back(child_forms.insert(std::max<std::uint64_t>(form, 1)));
    }
    shared_at_.clear(1024);
    shared_.clear();
    latest_.assign(static_cast<std::size_t>(forms.size()), {});
}

void Content::relearn(const std::vector<std::int32_t>& parent_of, double keep) {
    for (double& chances : chances_) chances *= keep;
    for (auto& rule : rules_) rule.hits *= keep;
    for (std::size_t c = problem_.decided(); c < std::min(problem_.settled, parent_of.size()); ++c) {
        // What began to be copied since.
        const auto p = parent_of[c];
        if (p == kNone || keep <= 0) continue;
        for_matches(p, c, [&](std::int64_t pt, std::int64_t ct) { make_rule(p, pt, c, ct); });
    }
    begin_scores();
    for (std::size_t c = problem_.decided(); c < std::min(problem_.settled, parent_of.size()); ++c) {
        const auto p = parent_of[c];
        if (p != kNone) count(p, c, 1.0, shared(form_at_[p], c));
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

std::uint64_t Content::opportunity_key(std::uint64_t form, std::int32_t k,
                                       std::uint32_t child_slot) noexcept {
    return std::max<std::uint64_t>(mix(mix(form, static_cast<std::uint64_t>(k)), child_slot), 1);
}

std::uint64_t Content::rule_key(std::uint64_t opportunity, std::uint32_t parent_slot) noexcept {
    return std::max<std::uint64_t>(mix(opportunity, parent_slot), 1);
}

// The rule by which a token of c repeats one of p, made if there was none.
std::int32_t Content::make_rule(std::int32_t p, std::int64_t parent_token, std::size_t c,
                                std::int64_t child_token) {
    const auto chance =
        opportunity_key(form_[p], problem_.children.cls[c], problem_.children.tokens.slot[child_token]);
    const auto made = rule_of_.insert(rule_key(chance, problem_.parents.tokens.slot[parent_token]));
    if (made < static_cast<std::int32_t>(rules_.size())) return made;
    const auto at = opportunity_of_.insert(chance);
    if (at == static_cast<std::int32_t>(chances_.size())) {
        copied_.push_back(0.0);
        chances_.push_back(0.0);
    }
    rules_.push_back({0, 0, at});
    return made;
}

const Content::Rule* Content::rule(std::int32_t p, std::int64_t parent_token, std::size_t c,
                                   std::int64_t child_token) const {
    const auto chance =
        opportunity_key(form_[p], problem_.children.cls[c], problem_.children.tokens.slot[child_token]);
    const auto at = rule_of_.find(rule_key(chance, problem_.parents.tokens.slot[parent_token]));
    return at == kNone ? nullptr : &rules_[at];
}

// Weights have changed: what was looked up is looked up again.
void Content::begin_scores() {
    log_miss_.resize(copied_.size());
    for (std::size_t k = 0; k < copied_.size(); ++k) log_miss_[k] = std::log(1 - copied_[k]);
    latest_.assign(latest_.size(), {});
    ++weights_;
}

const Content::Shared& Content::shared(std::int32_t form, std::size_t c) {
    auto& latest = latest_[static_cast<std::size_t>(form)];
    if (latest.child_form == child_form_[c]) return shared_[static_cast<std::size_t>(latest.at)];
    const auto both = static_cast<std::uint64_t>(form) << 32 | static_cast<std::uint32_t>(child_form_[c]);
    latest = {child_form_[c], shared_at_.insert(both + 1)};
    if (latest.at == static_cast<std::int32_t>(shared_.size())) shared_.emplace_back();
    auto& out = shared_[static_cast<std::size_t>(latest.at)];
    if (out.weights != weights_) share(form_of_[static_cast<std::size_t>(form)], c, out);
    return out;
}

void Content::share(std::uint64_t form, std::size_t c, Shared& out) {
    const auto& children = problem_.children;
    out.weights = weights_;
    out.missed = 0;
    out.open.clear();
    out.recallable.clear();
    const auto first = children.tokens.offset[c];
    for (auto t = first; t < children.tokens.offset[c + 1]; ++t) {
        const auto chance =
            opportunity_of_.find(opportunity_key(form, children.cls[c], children.tokens.slot[t]));
        // Where the request itself says it as a rule, nothing is recalled.
        if (chance == kNone || copied_[chance] <= kCopiedAnyway) out.recallable.push_back(t - first);
        if (chance == kNone) continue;  // this slot never repeats anything of that form
        out.open.emplace_back(t - first, chance);
        out.missed += log_miss_[chance];
    }
}

// Log-likelihood ratio of child c's tokens, given parent p, against the background.
double Content::score(std::int32_t p, std::size_t c, const Shared& shared) const {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    const auto first = children.tokens.offset[c];
    double llr = shared.missed;
    for (const auto& [place, chance] : shared.open) {
        const auto t = first + place;
        double matched = 0;
        for (auto j = parents.tokens.offset[p]; j < parents.tokens.offset[p + 1]; ++j) {
            if (parents.tokens.hash[j] != children.tokens.hash[t]) continue;
            if (const auto* r = rule(p, j, c, t)) matched += r->weight;
        }
        if (matched > 0) llr += matched_instead(matched, t, chance);
    }
    if (!recall_.any(p)) return llr;
    for (const auto place : shared.recallable) {
        llr += recall_.score(p, first + place, background_[first + place]);
    }
    return llr;
}

// E-step of one pair: whom child c's tokens were copied from, if p made it with this responsibility.
void Content::count(std::int32_t p, std::size_t c, double responsibility, const Shared& shared) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    for (const auto& [place, chance] : shared.open) {
        const auto t = children.tokens.offset[c] + place;
        chances_[chance] += responsibility;
        double total = (1 - copied_[chance]) * background_[t];
        auto for_copies = [&, token = t](auto&& visit) {
            for (auto j = parents.tokens.offset[p]; j < parents.tokens.offset[p + 1]; ++j) {
                if (parents.tokens.hash[j] != children.tokens.hash[token]) continue;
                if (const auto* r = rule(p, j, c, token)) visit(rules_[r - rules_.data()]);
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

void Content::score_all() {
    const auto& children = problem_.children;
    begin_scores();
    for (std::size_t c = 0; c < children.size(); ++c) {
        if (candidates_.certain(c)) continue;
        if (children.tokens.offset[c] == children.tokens.offset[c + 1]) {
            std::fill(candidates_.content.begin() + candidates_.offset[c],
                      candidates_.content.begin() + candidates_.offset[c + 1], 0.0f);
            continue;
        }
        for (auto i = candidates_.offset[c]; i < candidates_.offset[c + 1]; ++i) {
            const auto p = candidates_.parent[i];
            candidates_.content[i] = static_cast<float>(score(p, c, shared(form_at_[p], c)));
        }
    }
}

}  // namespace tapscope::match
