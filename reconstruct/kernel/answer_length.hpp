// What the length of an answer tells of the answers that it was made from.
//
// A server writes its answer out of those that it got (answer_fit.hpp): so the lengths of a request's answer and of the
// answers to its calls belong together. Two requests for the same page are often told apart by nothing else: their calls
// are the same, but not what the database answered to each.
//
// It says something of a whole chain, not of a call. What a server remembers changes its answers slowly, and all of
// them: each is held against those of about the same time. Classes whose answers have little to do with their calls
// (compressed, or written from what the server knew) judge nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "answer_fit.hpp"
#include "problem.hpp"

namespace tapscope::match {

class AnswerLength {
public:
    // Keeps a reference, which must outlive it.
    explicit AnswerLength(const Problem& problem) : problem_(problem) {}

    // The rows of the problem have been replaced by those of another stretch. What was learned stays.
    void bind();

    // Learns from an assignment of the present rows. `again`: they taught it before, and nothing else did.
    void estimate(const std::vector<std::int32_t>& parent_of, bool again);

    // Whether the length of p's answer tells anything of its chain.
    bool judges(std::int32_t p) const noexcept { return p >= 0 && judged_[static_cast<std::size_t>(p)]; }
    // Bytes that call c is expected to add to the answer of p.
    float part(std::int32_t p, std::int32_t c) const noexcept {
        const auto at = static_cast<std::size_t>(c);
        return ways_[way_of(p)].fit.part(problem_.children.cls[at], problem_.children.answer_bytes[at]);
    }
    // Nats that speak for p's chain by the length of its answer, where the parts of its chain add up to `parts`.
    float score(std::int32_t p, float parts) const noexcept;
    float score(std::int32_t p, const std::vector<std::int32_t>& chain) const noexcept;
    // What it could be at most.
    float most(std::int32_t p) const noexcept { return ways_[way_of(p)].fit.most(); }

private:
    // How requests of one class are answered.
    struct Way {
        std::vector<AnswerFit::Example> examples;  // the latest, in order of time
        AnswerFit fit;
    };

    bool known() const noexcept {
        return !problem_.parents.answer_bytes.empty() && !problem_.children.answer_bytes.empty();
    }
    std::size_t way_of(std::int32_t p) const noexcept {
        return static_cast<std::size_t>(problem_.parents.cls[static_cast<std::size_t>(p)]);
    }
    // Whether all calls of p are among the rows, and its answer is known.
    bool whole(std::int32_t p) const noexcept;
    void collect(const std::vector<std::int32_t>& parent_of);
    // Finds what answers of about the same time have in common, by the chains of an assignment.
    void find_drift(const std::vector<std::int32_t>& parent_of);

    const Problem& problem_;
    std::vector<Way> ways_;             // by class of parents
    std::vector<std::uint8_t> judged_;  // by parent
    std::vector<float> drift_;          // bytes, by parent
    bool any_ = false;
};

}  // namespace tapscope::match
