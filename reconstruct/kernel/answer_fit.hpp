// How the answers to requests of one class are made from the answers of their calls, learned from examples.
//
// An answer is as long as what it always has, so much for each byte that the calls of a class answered (the part that
// is passed on), and so much for each of these calls (what is written around it): least squares that give little to
// examples that do not fit. How far answers are off is learned as well, each by what the others say.
//
// What a server remembers (the list of the newest stories) changes the answers of all, by far more than what one of them
// has of its own (the name of who is logged in): then that would be lost in it. So they are explained as they are, and
// by what each has not in common with those of about the same time; what tells more is kept.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "key_map.hpp"

namespace tapscope::match {

class AnswerFit {
public:
    struct Called {  // the calls of one class in a chain
        std::int32_t cls = 0;
        float bytes = 0, count = 0;
    };
    struct Example {  // a chain, and the length of its answer
        float answer = 0;
        std::vector<Called> called;
    };

    // Learns from examples in order of time; what it knew is forgotten.
    void learn(std::span<const Example> examples);

    // Whether chains tell more of the lengths of answers than these tell by themselves.
    bool tells() const noexcept { return tells_; }
    // Bytes that a call of class `cls`, answered by so many bytes (negative: not known), adds to the answer.
    float part(std::int32_t cls, float bytes) const noexcept;
    // Bytes of an answer that needs no call.
    float base() const noexcept { return base_; }
    // Nats that an answer so many bytes longer or shorter than expected is likelier than the lengths of answers by
    // themselves make one, on average (a model that judges more classes says no less for that), and what it is at most.
    float score(float off) const noexcept { return density_[bin(off)]; }
    float most() const noexcept { return density_[0]; }

private:
    // Half octaves of bytes that an answer is off, the first below two.
    static constexpr std::size_t kBins = 48;
    using Density = std::array<float, kBins>;
    static std::size_t bin(float off) noexcept;
    static Density log_density(const std::vector<float>& off);

    struct Seen {  // calls of one class, over all examples
        std::int32_t cls = 0;
        double chains = 0, bytes = 0, bytes2 = 0, calls = 0, calls2 = 0;
    };
    struct Feature {
        std::size_t of = 0;  // place among the classes
        bool calls = false;  // their number; else their bytes
        double varies = 0;
    };
    struct Weight {
        float per_byte = 0, per_call = 0;
        float usual = 0;  // bytes of an answer
    };
    std::vector<Seen> look(std::span<const Example> examples);
    static std::vector<Feature> features(const std::vector<Seen>& seen, std::size_t examples);
    std::int32_t place(std::int32_t cls) const noexcept {
        return place_.find(static_cast<std::uint64_t>(cls) + 1);
    }

    KeyMap place_;  // of classes
    std::vector<Weight> weight_;
    float base_ = 0;
    Density density_{};
    bool tells_ = false;
};

// Of each value, the median of those around it, itself left out: what changes slowly.
std::vector<float> medians_around(const std::vector<float>& values);

}  // namespace tapscope::match
