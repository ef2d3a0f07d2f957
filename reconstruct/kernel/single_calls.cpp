// The first estimate of content: EM over single calls, which knows of no chains yet.
//
// Nearly all candidates share no value with the child. Those of one form are then equally likely, so they are counted,
// not weighed one by one; candidates that do share a value are listed once, with the rules by which they do.
#include <algorithm>
#include <cmath>

#include "content.hpp"

namespace tapscope::match {
namespace {

constexpr double kFirstCopy = 0.5;         // first guess of what an opportunity's rules copy together
constexpr double kMostFromAlone = 0.9;     // no rule is trusted further while calls are looked at one by one
constexpr float kHopeless = 18.42f;        // nats that a candidate is behind the best one, when it is dropped
constexpr double kNegligibleShare = 1e-6;  // of a child, that teaches nothing

}  // namespace

Affinity Content::learn(int rounds) {
    const auto matches = find_rules();
    for (int round = 0; round < rounds; ++round) step(matches);
    apply();
    return affinity_;
}

// A rule exists where a value was seen on both sides of a candidate pair at least once.
std::vector<Content::Match> Content::find_rules() {
    const auto& children = problem_.children;
    std::vector<Match> out;
    for (std::size_t c = problem_.decided(); c < children.size(); ++c) {
        if (children.tokens.offset[c] == children.tokens.offset[c + 1]) continue;
        for (auto i = candidates_.offset[c]; i < candidates_.offset[c + 1]; ++i) {
            const auto p = candidates_.parent[i];
            for_matches(p, c, [&](std::int64_t pt, std::int64_t ct) {
                out.push_back(
                    {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(ct), make_rule(p, pt, c, ct)});
            });
        }
    }
    std::vector<int> sharers(chances_.size(), 0);
    for (const auto& rule : rules_) ++sharers[rule.opportunity];
    for (auto& rule : rules_) rule.weight = kFirstCopy / sharers[rule.opportunity];
    copied_.assign(chances_.size(), kFirstCopy);
    return out;
}

void Content::step(const std::vector<Match>& matches) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    std::fill(chances_.begin(), chances_.end(), 0.0);
    for (auto& rule : rules_) rule.hits = 0;
    begin_scores();
    std::vector<double> expected(affinity_.weight.size(), 0.0), log_affinity;
    for (const double w : affinity_.weight) log_affinity.push_back(std::log(w + 1e-12));
    const auto cell = [&](std::int32_t a, std::int32_t k) { return affinity_.at(a, k); };
    struct Group {  // candidates that are equally likely
        std::int32_t form = 0, parent = 0;
        double times = 0, weight = 0;
        const Match *first = nullptr, *last = nullptr;  // what they share with the child
    };
    std::vector<Group> groups;
    std::vector<std::int32_t> group_of(latest_.size(), kNone);  // by form, of those that share nothing
    const Match *match = matches.data(), *end = match + matches.size();
    for (std::size_t c = 0; c < children.size(); ++c) {
        groups.clear();
        for (auto i = candidates_.offset[c]; i < candidates_.offset[c + 1]; ++i) {
            const auto p = candidates_.parent[i];
            const auto form = form_at_[p];
            if (match != end && match->candidate == static_cast<std::uint32_t>(i)) {
                const auto* first = match;
                while (match != end && match->candidate == first->candidate) ++match;
                groups.push_back({form, p, 1, 0, first, match});
                continue;
            }
            auto& group = group_of[form];
            if (group == kNone) {
                group = static_cast<std::int32_t>(groups.size());
                groups.push_back({form, p, 0});
            }
            groups[group].times += 1;
        }
        double best = -1e300, total = 0;
        for (auto& group : groups) {
            group_of[group.form] = kNone;
            const auto& both = shared(group.form, c);
            group.weight = log_affinity[cell(class_of_form_[group.form], children.cls[c])] + both.missed;
            for (const auto* m = group.first; m != group.last;) {
                const auto token = m->token;
                const auto chance = rules_[m->rule].opportunity;
                double weight = 0;
                for (; m != group.last && m->token == token; ++m) weight += rules_[m->rule].weight;
                group.weight += matched_instead(weight, token, chance);
            }
            best = std::max(best, group.weight);
        }
        for (auto& group : groups) total += group.times * (group.weight = std::exp(group.weight - best));
        for (const auto& group : groups) {
            if (group.weight / total < kNegligibleShare) continue;
            const double responsibility = group.times * group.weight / total;
            for (const auto& open : shared(group.form, c).open) chances_[open.second] += responsibility;
            for (const auto* m = group.first; m != group.last;) {
                const auto* end_of_token = m;
                const auto chance = rules_[m->rule].opportunity;
                double all = (1 - copied_[chance]) * background_[m->token];
                for (; end_of_token != group.last && end_of_token->token == m->token; ++end_of_token) {
                    all += rules_[end_of_token->rule].weight;
                }
                for (; m != end_of_token; ++m) {
                    rules_[m->rule].hits += responsibility * rules_[m->rule].weight / all;
                }
            }
            expected[cell(parents.cls[group.parent], children.cls[c])] += responsibility;
        }
    }
    for (std::int32_t a = 0; a < affinity_.n_parent; ++a) {
        for (std::int32_t k = 0; k < affinity_.n_child; ++k) {
            affinity_.weight[cell(a, k)] = (expected[cell(a, k)] + 1e-4) / (parents_of_class_[a] + 1);
        }
    }
    reweigh(kMostFromAlone);
}

// Drops candidates whose weight is hopeless. A call that names what only one of them said is that one's.
void Content::drop_hopeless() {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    const auto classes = static_cast<std::size_t>(affinity_.n_parent);
    std::vector<float> log_affinity(affinity_.weight.size());  // by class of child, then of parent
    for (std::int32_t a = 0; a < affinity_.n_parent; ++a) {
        for (std::int32_t k = 0; k < affinity_.n_child; ++k) {
            log_affinity[static_cast<std::size_t>(k) * classes + static_cast<std::size_t>(a)] =
                static_cast<float>(std::log(affinity_(a, k) + 1e-5));
        }
    }
    auto& [offset, parent, content, certain_parent] = candidates_;
    certain_parent.assign(children.size(), kNone);
    std::vector<float> weight;
    std::int64_t first = 0, kept = 0;
    for (std::size_t c = 0; c < children.size(); ++c) {
        const auto last = offset[c + 1];
        const float* of_class = &log_affinity[static_cast<std::size_t>(children.cls[c]) * classes];
        weight.resize(static_cast<std::size_t>(last - first));
        float best = -1e30f, second = best;
        for (auto i = first; i < last; ++i) {
            const float here = weight[i - first] = content[i] + of_class[parents.cls[parent[i]]];
            second = std::max(second, std::min(here, best));
            best = std::max(best, here);
        }
        const bool only = c >= problem_.decided() && best - second >= kNamed;
        for (auto i = first; i < last; ++i) {
            const float here = weight[i - first];
            if (here < best - kHopeless) continue;
            if (only && here == best && content[i] >= kNamed / 2) certain_parent[c] = parent[i];
            parent[kept] = parent[i];
            content[kept++] = content[i];
        }
        first = last;
        offset[c + 1] = kept;
    }
    parent.resize(static_cast<std::size_t>(kept));
    content.resize(static_cast<std::size_t>(kept));
}

}  // namespace tapscope::match
