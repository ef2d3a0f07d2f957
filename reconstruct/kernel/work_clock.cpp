#include "work_clock.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gaps.hpp"

namespace tapscope::match {
namespace {

constexpr double kProcessors[] = {1, 2, 4, 8, 16};
constexpr double kOthers = 8.0;       // steps that all of a kind lend to one cell
constexpr double kWorthATurn = 0.02;  // nats that each step must gain on average, and
constexpr double kWorthAtAll = 20.0;  // all together, for another clock than the wall

// Log likelihood per kind of the steps' gaps, each told by the others of its cell.
std::array<double, kStepKinds> likelihood(const std::vector<TimedStep>& steps, const WorkClock& clock) {
    std::int32_t cells = 0;
    for (const auto& step : steps) cells = std::max(cells, step.cell + 1);
    std::vector<Histogram> of_cell(static_cast<std::size_t>(cells));
    std::array<Histogram, kStepKinds> of_kind{};
    std::vector<double> total(of_cell.size(), 0.0);
    std::array<double, kStepKinds> all{}, out{};
    std::vector<int> bins;
    for (const auto& step : steps) {
        const Time gap = clock.read(step.to).at - clock.read(step.from).at;
        bins.push_back(gap_bin(std::max<Time>(gap, 0)));
        of_cell[static_cast<std::size_t>(step.cell)][static_cast<std::size_t>(bins.back())] += 1;
        of_kind[step.kind][static_cast<std::size_t>(bins.back())] += 1;
        total[static_cast<std::size_t>(step.cell)] += 1;
        all[step.kind] += 1;
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const auto& step = steps[i];
        const auto bin = static_cast<std::size_t>(bins[i]);
        const auto cell = static_cast<std::size_t>(step.cell);
        const double at_large = (of_kind[step.kind][bin] - 1 + 0.1) / (all[step.kind] - 1 + 0.1 * kGapBins);
        const double p = (of_cell[cell][bin] - 1 + kOthers * at_large) / (total[cell] - 1 + kOthers);
        out[step.kind] += std::log(p / gap_bin_width_ns(bins[i])) + clock.read(step.to).log_speed;
    }
    return out;
}

}  // namespace

bool WorkClock::choose(const Problem& problem, const std::vector<TimedStep>& steps) {
    const auto before = std::pair(processors_, tells_);
    tells_.fill(false);
    processors_ = 0;
    std::array<double, kStepKinds> number{};
    for (const auto& step : steps) number[step.kind] += 1;
    run(problem, 0);
    const auto wall = likelihood(steps, *this);
    double most = 0;
    for (const double processors : kProcessors) {
        run(problem, processors);
        const auto here = likelihood(steps, *this);
        double gained = 0;
        std::array<bool, kStepKinds> better{};
        for (std::size_t k = 0; k < kStepKinds; ++k) {
            better[k] = here[k] - wall[k] > std::max(kWorthAtAll, kWorthATurn * number[k]);
            if (better[k]) gained += here[k] - wall[k];
        }
        if (gained <= most) continue;
        most = gained;
        processors_ = processors;
        tells_ = better;
    }
    run(problem, processors_);
    return before != std::pair(processors_, tells_);
}

void WorkClock::run(const Problem& problem, double processors) {
    when_.clear();
    shown_.clear();
    speed_.clear();
    if (processors <= 0) return;
    const auto& parents = problem.parents;
    const auto& children = problem.children;
    std::vector<std::pair<Time, int>> changes;  // of the number that work
    for (std::size_t p = 0; p < parents.size(); ++p) {
        changes.emplace_back(parents.request_end[p], 1);
        changes.emplace_back(std::max(parents.response_begin[p], parents.request_end[p]), -1);
    }
    for (std::size_t c = 0; c < children.size(); ++c) {
        changes.emplace_back(children.begin[c], -1);
        changes.emplace_back(std::max(children.end[c], children.begin[c]), 1);
    }
    std::sort(changes.begin(), changes.end());
    int working = 0;
    double shown = 0;
    for (std::size_t i = 0; i < changes.size(); ++i) {
        working += changes[i].second;
        const auto at = changes[i].first;
        if (i + 1 < changes.size() && changes[i + 1].first == at) continue;
        if (!when_.empty()) shown += speed_.back() * static_cast<double>(at - when_.back());
        when_.push_back(at);
        shown_.push_back(shown);
        speed_.push_back(std::min(1.0, processors / std::max(working, 1)));
    }
}

WorkClock::Reading WorkClock::read(Time wall) const noexcept {
    if (when_.empty()) return {wall, 0.0f};
    const auto after = std::lower_bound(when_.begin(), when_.end(), wall);
    if (after == when_.begin()) return {wall - when_.front(), 0.0f};
    const auto i = static_cast<std::size_t>(after - when_.begin()) - 1;
    return {static_cast<Time>(shown_[i] + speed_[i] * static_cast<double>(wall - when_[i])),
            static_cast<float>(std::log(speed_[i]))};
}

}  // namespace tapscope::match
