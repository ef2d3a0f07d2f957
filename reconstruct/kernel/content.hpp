// Content evidence: which slots of a request reappear in which slots of the calls that it causes.
//
// Each token of a child is taken to be a copy of one of the parent's slots, or drawn from the background of its own
// slot. With weights w_r per copy rule r = (parent form, parent slot, child class, child slot) and background p(v),
//     P(v | parent) = sum_r w_r [v = value of r in the parent] + (1 - sum_r w_r) p(v)
// Requests of one class have several forms: a slot that is not there cannot be copied, and what others copy from it must
// not count against them. So rules are of a form, which is the class and the set of its slots.
// so a match counts for log(w/p(v)) and a mismatch against by log(1 - w). The weights are first learned by EM over all
// candidate parents, together with the class affinity W[a][k] (how often a request of class a causes a call of class
// k). That EM looks at each call alone, and so overrates a rule that holds for the first of several like calls: their
// mismatches look like somebody else's. Later they are learned again from assignments of whole chains.
#pragma once

#include <cmath>
#include <unordered_map>
#include <utility>
#include <vector>

#include "affinity.hpp"
#include "key_map.hpp"
#include "problem.hpp"
#include "recall.hpp"

namespace tapscope::match {

// Nats that a candidate is ahead of all others by, where a call is given to it for what it names. Half of that must be
// for what it names, not for the class of request: else it may be nobody's.
inline constexpr float kNamed = 8.0f;

// How often a value came lately, in bounded memory. Counts are exact as long as fewer values than kMost come between
// two uses of one; a value that was not seen for so long is a new one. Nothing depends on the bits of the hash, which
// the salt makes different in every run.
class ValueCounts {
public:
    void fade(double keep);
    void add(std::uint64_t value);
    float count(std::uint64_t value) const noexcept;

private:
    static constexpr std::int32_t kMost = 1 << 16;  // 4 MB, both generations
    struct Generation {
        KeyMap row;
        std::vector<float> times;
        float of(std::uint64_t value) const noexcept {
            const auto at = row.find(value | 1);
            return at == kNone ? 0.0f : times[static_cast<std::size_t>(at)];
        }
    };
    Generation young_, old_;
};

class Content {
public:
    // Keeps references: both must outlive it. `candidates.content` is written by both learners.
    Content(const Problem& problem, Candidates& candidates);

    // The rows of the problem have been replaced by those of another stretch. What was learned counts `keep` times.
    void bind(double keep);

    // EM over all candidates; removes candidates whose weight is hopeless.
    Affinity learn(int rounds);

    // Copy rules of an assignment (parent of each child, or kNone), after what was counted before has been weighed
    // with `keep` (0: forgotten).
    void relearn(const std::vector<std::int32_t>& parent_of, double keep = 0.0);

    // Scores the content of all candidates; removes those whose weight is hopeless, while no child has a parent yet.
    // Calls that name what only one candidate said are certain.
    void apply() {
        candidates_.certain_parent.clear();
        score_all();
        drop_hopeless();
    }
    // Scores the content of all candidates for calls that are not certain.
    void score_all();
    std::uint64_t not_remembered() const noexcept { return recall_.not_remembered(); }
    std::uint64_t no_longer_remembered() const noexcept { return recall_.no_longer_remembered(); }

private:
    struct Rule {
        double weight = 0;                 // w_r, as P(copied | both slots present)
        double hits = 0;                   // expected, of the running estimate
        std::int32_t opportunity = kNone;  // index of (parent form, child class, child slot)
    };

    // A token of a child that equals one of a candidate for it.
    struct Match {
        std::uint32_t candidate = 0, token = 0;  // positions in candidates_, in the children's tokens
        std::int32_t rule = kNone;
    };

    void find_forms();
    void learn_background(double keep);
    std::vector<Match> find_rules();
    std::int32_t make_rule(std::int32_t p, std::int64_t parent_token, std::size_t c,
                           std::int64_t child_token);
    void step(const std::vector<Match>& matches);
    // What all requests of one form have in common as parents of all children of one form.
    struct Shared {
        std::uint64_t weights = 0;  // that it was looked up with
        double missed = 0;          // log ratio when no token is a copy
        std::vector<std::pair<std::int64_t, std::int32_t>>
            open;  // tokens that can be copies, by place in the child; opportunities
        std::vector<std::int64_t> recallable;  // tokens that need not be
    };
    struct Latest {
        std::int32_t child_form = kNone, at = kNone;  // in shared_
    };
    void begin_scores();
    const Shared& shared(std::int32_t form, std::size_t c);
    void share(std::uint64_t form, std::size_t c, Shared& out);
    // What a token adds that can be a copy and is one of a value with these rules' weights, to what all tokens that
    // are none say.
    double matched_instead(double weight, std::int64_t token, std::int32_t chance) const noexcept {
        return std::log(weight / background_[token] + 1 - copied_[chance]) - log_miss_[chance];
    }
    double score(std::int32_t p, std::size_t c, const Shared& shared) const;
    void count(std::int32_t p, std::size_t c, double responsibility, const Shared& shared);
    void reweigh(double most);
    void drop_hopeless();
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
    static std::uint64_t opportunity_key(std::uint64_t form, std::int32_t k,
                                         std::uint32_t child_slot) noexcept;
    static std::uint64_t rule_key(std::uint64_t opportunity, std::uint32_t parent_slot) noexcept;
    const Rule* rule(std::int32_t p, std::int64_t parent_token, std::size_t c,
                     std::int64_t child_token) const;

    const Problem& problem_;
    Candidates& candidates_;
    Affinity affinity_;
    std::vector<double> parents_of_class_;
    std::vector<std::uint64_t> form_;  // of each parent; not 0
    std::vector<float> background_;    // p(v) of each child token
    ValueCounts value_counts_;
    Recall recall_;
    std::unordered_map<std::uint64_t, double> slot_totals_;
    KeyMap rule_of_, opportunity_of_;
    std::vector<Rule> rules_;
    std::vector<double> copied_, chances_;            // per opportunity: sum of w_r; expected pairs
    std::vector<std::int32_t> form_at_, child_form_;  // of each parent, of each child: dense numbers,
    std::vector<std::uint64_t> form_of_;              // and by them the form
    std::vector<std::int32_t> class_of_form_;         // and the class of parents
    KeyMap shared_at_;                                // by both forms, into
    std::vector<Shared> shared_;
    std::vector<Latest> latest_;    // by form of parents: what was looked up last
    std::uint64_t weights_ = 1;     // that rules have now: a number that is new when they are
    std::vector<double> log_miss_;  // by opportunity
};

}  // namespace tapscope::match
