// What the calls of a requester named before: evidence for requests that name nothing themselves.
//
// A page without parameters says who asks for it (a cookie, the client's end of a connection), and its calls name that
// user's row. What the calls of earlier requests with the same cookie named is expected of the next ones. How often that
// holds is learned per (request slot, child class, child slot), from an assignment, each request judged by what came
// before it.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "key_map.hpp"
#include "problem.hpp"

namespace tapscope::match {

class Recall {
public:
    // Keeps references.
    Recall(const Problem& problem, const Candidates& candidates)
        : problem_(problem), candidates_(candidates) {
        forget();
    }

    // The rows of the problem have been replaced by those of a later stretch, and so have the candidates. Of these some
    // may be dropped from here on, but none added.
    void bind();
    // Learns from an assignment of the present rows, after what was counted before has been weighed with `keep`.
    void learn(const std::vector<std::int32_t>& parent_of, double keep);

    // Whether anything is expected of the calls of p.
    bool any(std::int32_t p) const noexcept {
        return !offset_.empty() && offset_[p] != offset_[static_cast<std::size_t>(p) + 1];
    }
    // How many values are expected of all parents: what is kept beside the memory itself.
    std::size_t told() const noexcept { return expected_.size(); }
    // How often calls of the assignment that was learned last named something for which there was no room.
    std::uint64_t not_remembered() const noexcept { return not_remembered_; }
    // How many such pairs were forgotten when the rows were replaced, to have room.
    std::uint64_t no_longer_remembered() const noexcept { return no_longer_remembered_; }
    // Log ratio of a token of a child that need not be a copy, if p made the child, against its background.
    // Of several habits the best one says it.
    double score(std::int32_t p, std::int64_t child_token, double background) const;

private:
    struct Habit {
        double hits = 0, chances = 0;
        std::int32_t place = kNone;
        std::uint32_t slot = 0;  // of requests
        bool dropped = false;
    };
    // The value that most of the latest calls named, by majority vote (Boyer and Moore 1981): one wrong link must not
    // speak for the next.
    struct Named {
        std::uint64_t value = 0;
        std::int32_t votes = 0;
    };
    // What one habit says of one value of requests.
    struct Memory {
        Named before, now;  // in earlier stretches; in this one, if `round` is the present one
        std::uint32_t round = 0;
        bool had_before = false;
        std::int32_t place = kNone, habit = kNone;
    };
    struct Expected {
        std::int32_t place = 0, habit = 0;
        std::uint64_t value = 0;
        float weight = 0;  // how often it is so
    };
    struct Group {  // what is expected of one parent at one place
        std::int32_t place = 0;
        float most = 0;                   // highest weight
        double log_missed = 0;            // of a value that nobody expects
        std::int64_t begin = 0, end = 0;  // in expected_
    };

    void forget();
    void drop_past();
    void make_room();
    std::vector<std::int32_t> worth_keeping() const;
    const Named* last(const Memory& memory) const noexcept {
        if (memory.round == round_) return &memory.now;
        return memory.had_before ? &memory.before : nullptr;
    }
    std::int32_t value_of(std::uint64_t key);
    Memory& memory_of(std::int32_t value, std::int32_t habit);
    std::int32_t habit_of(std::int32_t place, std::uint32_t slot);
    std::int32_t place_of(std::int32_t child_class, std::uint32_t slot);
    void find_asked();
    template <class Visit>
    void for_asked(std::int32_t p, Visit&& visit) const {
        for (std::size_t w = 0; w < words_; ++w) {
            for (auto bits = asked_[static_cast<std::size_t>(p) * words_ + w]; bits != 0; bits &= bits - 1) {
                visit(static_cast<std::int32_t>(64 * w) + std::countr_zero(bits));
            }
        }
    }
    void expect(std::int32_t p);
    void group();

    const Problem& problem_;
    const Candidates& candidates_;
    KeyMap values_;                              // of requests: slot and hash
    std::vector<std::uint64_t> value_;           // their keys
    std::vector<std::vector<Memory>> memories_;  // by value; in order of place and habit
    std::size_t kept_ = 0;                       // memories
    std::uint32_t round_ = 1;
    KeyMap places_;                       // child class and slot
    std::vector<std::uint64_t> place_;    // their keys
    std::vector<std::int32_t> value_at_;  // by token of a parent
    std::vector<std::int32_t> place_at_;  // by token of a child, or kNone
    // By parent: a bit for each place that some child has for which it is a candidate. What a user's calls name is
    // remembered at hundreds of places, of which most requests are asked about a few.
    std::vector<std::uint64_t> asked_;
    std::size_t words_ = 0;  // for each parent
    KeyMap habit_at_;        // by place and request slot
    std::vector<Habit> habits_;
    std::uint64_t not_remembered_ = 0, no_longer_remembered_ = 0;
    // How much one recalled value counts. The calls of one request name the same things again and again: what they
    // recall together counts as a few independent values, whatever their number.
    double temper_ = 0;
    std::vector<Expected> expected_;
    std::vector<std::int64_t> expected_until_;  // by parent, while learning
    std::vector<Group> groups_;
    std::vector<std::int64_t> offset_;  // by parent, into groups_
};

}  // namespace tapscope::match
