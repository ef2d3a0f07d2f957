// Requests whose calls run side by side: which classes of requests do that, and in what order their calls may come.
//
// A chain says that a call follows the one that began before it. Where a request has several calls open at once, the
// order of their beginnings is an accident: what binds is which of them were made and which not yet, and that the answer
// waits for the last of them to end. So for classes of requests that fan out
//   grammar   P(next | classes that were already called), instead of P(next | previous class): a set of bits
//   begin     measured from the latest end, from the call that began last, or from the arrival of the request:
//             for each (class, next) that which makes the beginnings likeliest
// The coarse estimate behind the first is the chain's own.
#pragma once

#include <cstdint>
#include <vector>

#include "gaps.hpp"
#include "key_map.hpp"
#include "problem.hpp"

namespace tapscope::match {

inline constexpr std::int32_t kStart = -1;  // as previous child

// What the next step of a chain depends on.
struct Tip {
    std::int32_t last = kStart;    // child that began last
    std::int32_t latest = kStart;  // child that ends last
    std::uint32_t called = 0;      // bits of the classes that were called, where the class fans out
    std::int32_t held = kStart;    // latest child whose values are at hand, likewise: see carried.hpp
    bool operator==(const Tip&) const = default;
};

class FanOut {
public:
    explicit FanOut(const Problem& problem);

    // What was counted so far counts `keep` times as much from now on; 0 forgets it.
    void fade(double keep);

    // Finds out which classes fan out, from an assignment (parent of each child, or kNone).
    void find(const std::vector<std::int32_t>& parent_of);

    bool fans_out(std::int32_t a) const noexcept { return fans_out_[a] != 0; }
    bool any() const noexcept { return any_; }

    // Bit of child class k in requests of class a; 0 where they call more classes than there are bits.
    std::uint32_t bit(std::int32_t a, std::int32_t k) const noexcept {
        const auto at = bit_[index(a, k)];
        return at < 0 ? 0u : 1u << at;
    }

    // Counts a step out of `called`, to the state `next` (a child class, or a kind of END behind them).
    void observe(std::int32_t a, std::uint32_t called, std::int32_t next);
    // A beginning of class k, this long after its request came; `chain` is the log density that its chain gives it.
    void observe_begin(std::int32_t a, std::int32_t k, Time since_arrival);
    void compare_begin(std::int32_t a, std::int32_t k, Time since_arrival, float chain);
    void finish_begins();

    // log P(next | a, called), where a coarser estimate expects `expected`.
    float log_p(std::int32_t a, std::uint32_t called, std::int32_t next, float log_expected) const {
        const auto asked = key(a, called, next);
        auto& known = known_[asked * kScramble >> (64 - kKnownBits)];
        if (known.key != asked || known.log_expected != log_expected) {
            known = {asked, log_expected, find_log_p(a, called, next, log_expected)};
        }
        return known.log_p;
    }

    // Whether beginnings of class k are told from the arrival of the request; then begin_density() holds.
    bool from_arrival(std::int32_t a, std::int32_t k) const noexcept {
        return from_arrival_[index(a, k)] != 0;
    }
    float begin_density(std::int32_t a, std::int32_t k, Time since_arrival) const noexcept {
        return density_[static_cast<std::size_t>(slot_[index(a, k)])]
                       [static_cast<std::size_t>(problem_.gaps.bin(since_arrival))];
    }

private:
    std::size_t index(std::int32_t a, std::int32_t k) const noexcept {
        return static_cast<std::size_t>(a) * static_cast<std::size_t>(problem_.children.n_classes) +
               static_cast<std::size_t>(k);
    }
    std::uint64_t key(std::int32_t a, std::uint32_t called, std::int32_t next) const noexcept {
        const auto state = static_cast<std::uint64_t>(next + 1);  // 0: any
        const auto states = static_cast<std::uint64_t>(problem_.children.n_classes) + 5;
        return ((static_cast<std::uint64_t>(a) * states + state) << 32 | called) + 1;
    }
    float find_log_p(std::int32_t a, std::uint32_t called, std::int32_t next, float log_expected) const;

    const Problem& problem_;
    bool any_ = false;
    std::vector<std::uint8_t> fans_out_;  // by parent class
    std::vector<double> followed_,
        overlapped_;                 // by parent class: steps from call to call, and those that overlap
    std::vector<std::int8_t> bit_;   // by (parent class, child class); -1 none
    std::vector<std::int8_t> bits_;  // given out so far, by parent class
    std::vector<std::uint8_t> from_arrival_;
    std::vector<std::int32_t> slot_;  // into begins_, density_, gain_; kNone where nothing was seen
    std::vector<Histogram> begins_, density_;
    std::vector<double> gain_;  // nats that the arrival says more than the chain does
    KeyMap steps_, sets_;
    std::vector<double> step_count_, set_count_, set_kinds_;
    // Answers of log_p(), each in the one place that it may have: a search asks the same again and again.
    static constexpr int kKnownBits = 13;  // 128 KB
    static constexpr std::uint64_t kScramble = 0x9E3779B97F4A7C15ull;
    struct Known {
        std::uint64_t key = 0;
        float log_expected = 0, log_p = 0;
    };
    mutable std::vector<Known> known_;
};

}  // namespace tapscope::match
