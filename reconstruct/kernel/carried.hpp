// Values that a request got hold of on its way and names later: the id of a row that one statement returned, and that the
// next statements ask for; the key that a cache did not have, that the database is asked for, and that is put.
//
// A call that names such a value was made by whoever holds it. Steps of chains tell it: a chain may go on with the call
// if its latest call has the value in its answer or names it, or goes back to one that does, over as many calls as it
// takes. So the calls of a loop over the rows of a result are one family, and a step between two families counts
// against it. Calls of one class that name the same are no family: they are two requests rather than one that asks
// twice. How often it is so is a habit of a pair of classes, learned from the steps of an assignment and from those
// that other candidates would have made; as most pairs have few of the latter, backed off to the class of the later
// call, and to all. What is named by a request that may have made the call is left to content.hpp. A value that nobody
// held before says nothing, nor does one that one call in ten names in that place.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fan_out.hpp"
#include "key_map.hpp"
#include "problem.hpp"

namespace tapscope::match {

class Carried {
public:
    Carried(const Problem& problem, const Candidates& candidates)
        : problem_(problem), candidates_(candidates) {}

    // The rows have been replaced.
    void bind();

    // Counts of before weigh `keep` (0: forgotten).
    void estimate(const std::vector<std::int32_t>& parent_of, const FanOut& fan_out, double keep);

    // What a step between calls of these classes says when the chain holds a value of the next one, and when not; both 0
    // without a habit.
    struct Ratios {
        float lacks = 0, holds = 0;
        explicit operator bool() const noexcept { return lacks != 0 || holds != 0; }
    };
    Ratios ratios(std::int32_t previous_cls, std::int32_t next_cls) const noexcept;

    // Log ratio of the step from one call to another, if their classes say this.
    float evidence(const Ratios& ratios, std::int32_t previous, std::int32_t next) const noexcept {
        if (!goes_back(next)) return 0.0f;
        return previous != kStart && holds(previous, next) ? ratios.holds : ratios.lacks;
    }

    // Where calls run side by side, the one before may be anybody's whose values the chain does not hold, and the whole
    // family would follow it. So there steps are asked of the latest call of the chain that is at home in it, or that
    // others go back to: which one it is when call c has been added.
    std::int32_t at_hand(std::int32_t before, std::int32_t c) const noexcept {
        if (asked_at_.empty()) return kStart;
        const bool stays = goes_back(c) ? before == kStart || !holds(before, c)
                                        : !gone_back_to_[static_cast<std::size_t>(c)];
        return stays ? before : c;
    }

private:
    struct Lists {  // CSR
        std::vector<std::int32_t> offset{0}, item;
        void clear() {
            offset.assign(1, 0);
            item.clear();
        }
        void close() { offset.push_back(static_cast<std::int32_t>(item.size())); }
        std::span<const std::int32_t> of(std::int32_t row) const noexcept {
            const auto at = static_cast<std::size_t>(row);
            if (at + 1 >= offset.size()) return {};
            return {item.data() + offset[at], static_cast<std::size_t>(offset[at + 1] - offset[at])};
        }
    };

    bool goes_back(std::int32_t c) const noexcept {
        return !asked_at_.empty() && asked_at_[static_cast<std::size_t>(c)] != kNone;
    }
    bool holds(std::int32_t previous, std::int32_t next) const noexcept;
    bool find(std::int32_t previous, std::int32_t next) const noexcept;
    static std::uint64_t pair(std::int32_t previous_cls, std::int32_t next_cls) noexcept {
        return (static_cast<std::uint64_t>(previous_cls) + 1) << 32 | static_cast<std::uint32_t>(next_cls);
    }
    std::vector<std::uint8_t> asked_for() const;
    std::vector<std::uint8_t> telling() const;

    const Problem& problem_;
    const Candidates& candidates_;
    Lists sources_;  // by child: calls before it, of its candidates, that held one of its values
    Lists lineage_;  // by child: itself, its sources, theirs, and so on
    std::vector<std::uint8_t> gone_back_to_;  // by child: whether it is a source
    // Answers, as a search asks the same many thousand times. By how far a call is before the child: whether that was
    // asked, and whether it holds a value.
    static constexpr std::size_t kShortly = 256;
    struct Asked {
        std::array<std::uint64_t, kShortly / 64> known{}, holds{};
    };
    std::vector<std::int32_t> asked_at_;  // by child, kNone without sources; empty: all are
    mutable std::vector<Asked> asked_;
    // Steps that were made, and that other candidates would have made: where the chain lacks the value, where it holds it.
    struct Steps {
        std::array<double, 2> made{}, others{};
        void fade(double keep) noexcept {
            for (auto* counts : {&made, &others}) {
                for (double& x : *counts) x *= keep;
            }
        }
    };
    void learn_ratios();
    KeyMap pairs_;
    std::vector<Steps> steps_;        // by pair of classes
    std::vector<std::int32_t> next_;  // the later class of it
    std::vector<Steps> to_;           // by that, whatever the class before
    Steps all_;
    std::vector<Ratios> ratios_;
};

}  // namespace tapscope::match
