// What the calls of a requester named before: evidence for requests that name nothing themselves.
//
// A page without parameters says who asks for it (a cookie, the client's end of a connection), and its calls name that
// user's row. What the calls of earlier requests with the same cookie named is expected of the next ones. How often that
// holds is learned per (request slot, child class, child slot), from an assignment, each request judged by what came
// before it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "problem.hpp"

namespace tapscope::match {

class Recall {
public:
    explicit Recall(const Problem& problem) : problem_(problem) {}

    // The rows of the problem have been replaced by those of a later stretch.
    void bind();
    // Learns from an assignment of the present rows, after what was counted before has been weighed with `keep`.
    void learn(const std::vector<std::int32_t>& parent_of, double keep);

    struct Expected {
        std::uint64_t where = 0;  // child class and slot: see place()
        std::uint64_t value = 0;
        float weight = 0;  // how often it is so
    };
    // What the calls of p are expected to name.
    std::span<const Expected> of(std::int32_t p) const noexcept {
        if (offset_.empty()) return {};
        return {expected_.data() + offset_[p], static_cast<std::size_t>(offset_[p + 1] - offset_[p])};
    }
    // How much one recalled value counts. The calls of one request name the same things again and again: what they
    // recall together counts as a few independent values, whatever their number.
    double temper() const noexcept { return temper_; }
    static std::uint64_t place(std::int32_t k, std::uint32_t child_slot) noexcept {
        return static_cast<std::uint64_t>(k) << 32 | child_slot;
    }

private:
    struct Habit {
        std::uint64_t where = 0;
        double hits = 0, chances = 0;
        bool dropped = false;
    };
    // The value that most of the latest calls named, by majority vote (Boyer and Moore 1981): one wrong link must not
    // speak for the next.
    struct Named {
        std::uint64_t value = 0;
        std::int32_t votes = 0;
    };
    const Named* last(std::uint64_t key) const;
    void expect(std::int32_t p);

    const Problem& problem_;
    std::unordered_map<std::uint64_t, Named> past_, present_;   // by habit and request value
    std::unordered_map<std::uint64_t, std::int32_t> habit_of_;  // by request slot and place
    std::unordered_map<std::uint32_t, std::vector<std::int32_t>> habits_of_slot_;
    std::vector<Habit> habits_;
    double temper_ = 0;
    std::vector<std::int64_t> offset_;
    std::vector<Expected> expected_;
    std::vector<std::int32_t> expected_by_;  // habits, while learning
};

}  // namespace tapscope::match
