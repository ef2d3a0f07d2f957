#include "answer_length.hpp"

#include <algorithm>
#include <utility>

namespace tapscope::match {
namespace {

// Of a class, that are remembered; fewer where there are many classes.
constexpr std::size_t kExamples = 512, kLeastExamples = 64, kAllExamples = 32'768;

}  // namespace

bool AnswerLength::whole(std::int32_t p) const noexcept {
    const auto at = static_cast<std::size_t>(p);
    const auto& parents = problem_.parents;
    const auto first = problem_.decided();
    return parents.answered[at] && parents.answer_bytes[at] >= 0 &&
           (first == 0 ||
            (first < problem_.children.size() && parents.arrive[at] >= problem_.children.begin[first]));
}

void AnswerLength::bind() {
    const auto n = problem_.parents.size();
    judged_.assign(n, 0);
    drift_.assign(n, 0.0f);
    any_ = false;
    if (!known()) return;
    ways_.resize(static_cast<std::size_t>(problem_.parents.n_classes));
    for (std::size_t p = 0; p < n; ++p) {
        const auto parent = static_cast<std::int32_t>(p);
        judged_[p] = ways_[way_of(parent)].fit.tells() && whole(parent);
        any_ = any_ || judged_[p];
    }
}

void AnswerLength::estimate(const std::vector<std::int32_t>& parent_of, bool again) {
    if (!known()) return;
    if (again) {
        for (auto& way : ways_) way.examples.clear();
    }
    collect(parent_of);
    std::size_t learned = 1;
    for (const auto& way : ways_) learned += way.examples.size() >= kLeastExamples;
    const auto room = std::clamp(kAllExamples / learned, kLeastExamples, kExamples);
    for (auto& way : ways_) {
        const auto behind = way.examples.size() - std::min(way.examples.size(), room);
        way.examples.erase(way.examples.begin(), way.examples.begin() + static_cast<std::ptrdiff_t>(behind));
        way.fit.learn(way.examples);
    }
    bind();
    if (any_) find_drift(parent_of);
}

void AnswerLength::collect(const std::vector<std::int32_t>& parent_of) {
    const auto& parents = problem_.parents;
    const auto& children = problem_.children;
    std::vector<std::vector<AnswerFit::Called>> called(parents.size());
    std::vector<std::uint8_t> teaches(parents.size(), 0);
    for (std::size_t p = 0; p < parents.size(); ++p) {
        teaches[p] = whole(static_cast<std::int32_t>(p)) && parents.depart[p] < problem_.until;
    }
    for (std::size_t c = problem_.decided(); c < parent_of.size(); ++c) {
        if (parent_of[c] == kNone) continue;
        const auto p = static_cast<std::size_t>(parent_of[c]);
        if (children.answer_bytes[c] < 0) teaches[p] = 0;
        if (!teaches[p]) continue;
        auto& mine = called[p];
        const auto same = std::find_if(mine.begin(), mine.end(), [&](const AnswerFit::Called& each) {
            return each.cls == children.cls[c];
        });
        if (same == mine.end()) {
            mine.push_back({children.cls[c], children.answer_bytes[c], 1});
        } else {
            same->bytes += children.answer_bytes[c];
            same->count += 1;
        }
    }
    // Of many, some that are spread over all of the time.
    std::vector<std::size_t> all(ways_.size(), 0), come(ways_.size(), 0);
    for (std::size_t p = 0; p < parents.size(); ++p) {
        teaches[p] = teaches[p] && !called[p].empty();
        all[way_of(static_cast<std::int32_t>(p))] += teaches[p];
    }
    for (std::size_t p = 0; p < parents.size(); ++p) {
        if (!teaches[p]) continue;
        const auto way = way_of(static_cast<std::int32_t>(p));
        if (come[way]++ % (all[way] / (kExamples + 1) + 1) != 0) continue;
        ways_[way].examples.push_back({parents.answer_bytes[p], std::move(called[p])});
    }
}

void AnswerLength::find_drift(const std::vector<std::int32_t>& parent_of) {
    const auto n = problem_.parents.size();
    std::vector<float> parts(n, 0.0f);
    std::vector<std::uint8_t> has(n, 0);
    for (std::size_t c = 0; c < parent_of.size(); ++c) {
        const auto p = parent_of[c];
        if (!judges(p)) continue;
        parts[static_cast<std::size_t>(p)] += part(p, static_cast<std::int32_t>(c));
        has[static_cast<std::size_t>(p)] = 1;
    }
    std::vector<std::vector<std::size_t>> of_way(ways_.size());
    for (std::size_t p = 0; p < n; ++p) {
        if (has[p]) of_way[way_of(static_cast<std::int32_t>(p))].push_back(p);
    }
    std::vector<float> off;
    for (std::size_t way = 0; way < of_way.size(); ++way) {
        off.clear();
        for (const auto p : of_way[way]) {
            off.push_back(problem_.parents.answer_bytes[p] - ways_[way].fit.base() - parts[p]);
        }
        const auto around = medians_around(off);
        for (std::size_t i = 0; i < off.size(); ++i) drift_[of_way[way][i]] = around[i];
    }
}

float AnswerLength::score(std::int32_t p, float parts) const noexcept {
    const auto at = static_cast<std::size_t>(p);
    const auto& fit = ways_[way_of(p)].fit;
    return fit.score(problem_.parents.answer_bytes[at] - fit.base() - drift_[at] - parts);
}

float AnswerLength::score(std::int32_t p, const std::vector<std::int32_t>& chain) const noexcept {
    float parts = 0;
    for (const auto c : chain) parts += part(p, c);
    return score(p, parts);
}

}  // namespace tapscope::match
