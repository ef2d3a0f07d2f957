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

// A gap as clocks are asked for it: the changes of speed before its ends are found once.
struct Gap {
    StepKind kind;
    std::int32_t cell;
    WorkClock::Place from, to;
};

// Log likelihood per kind of the steps' gaps, each told by the others of its cell.
std::array<double, kStepKinds> likelihood(const std::vector<Gap>& gaps, const WorkClock& clock,
                                          const GapScale& scale) {
    std::int32_t cells = 0;
    for (const auto& gap : gaps) cells = std::max(cells, gap.cell + 1);
    std::vector<Histogram> of_cell(static_cast<std::size_t>(cells));
    std::array<Histogram, kStepKinds> of_kind{};
    std::vector<double> total(of_cell.size(), 0.0);
    std::array<double, kStepKinds> all{}, out{};
    std::vector<std::pair<std::uint8_t, float>> ends;  // bin, and log speed at the end
    ends.reserve(gaps.size());
    for (const auto& gap : gaps) {
        const auto end = clock.read(gap.to);
        const auto bin =
            static_cast<std::size_t>(scale.bin(std::max<Time>(end.at - clock.read(gap.from).at, 0)));
        ends.emplace_back(static_cast<std::uint8_t>(bin), end.log_speed);
        of_cell[static_cast<std::size_t>(gap.cell)][bin] += 1;
        of_kind[gap.kind][bin] += 1;
        total[static_cast<std::size_t>(gap.cell)] += 1;
        all[gap.kind] += 1;
    }
    // Gaps of one cell and bin are told alike.
    std::vector<std::array<double, kGapBins>> told(of_cell.size());
    for (std::size_t i = 0; i < gaps.size(); ++i) {
        const auto kind = gaps[i].kind;
        const auto cell = static_cast<std::size_t>(gaps[i].cell);
        const auto [bin, log_speed] = ends[i];
        auto& log_p = told[cell][bin];
        if (log_p == 0) {
            const double at_large = (of_kind[kind][bin] - 1 + 0.1) / (all[kind] - 1 + 0.1 * kGapBins);
            const double p = (of_cell[cell][bin] - 1 + kOthers * at_large) / (total[cell] - 1 + kOthers);
            log_p = std::log(p / scale.width_ns(bin));
        }
        out[kind] += log_p + log_speed;
    }
    return out;
}

}  // namespace

void WorkClock::bind(const Problem& problem) {
    when_.clear();
    if (processors_ <= 0) return;
    find_changes(problem);
    run(processors_);
}

bool WorkClock::choose(const Problem& problem, const std::vector<TimedStep>& steps) {
    const auto before = std::pair(processors_, tells_);
    tells_.fill(false);
    processors_ = 0;
    std::array<double, kStepKinds> number{};
    if (when_.empty()) find_changes(problem);
    std::vector<Gap> gaps;
    gaps.reserve(steps.size());
    Place from, to;  // of the step before, which is mostly near
    for (const auto& step : steps) {
        number[step.kind] += 1;
        from = place(step.from, from.changes);
        to = place(step.to, to.changes);
        gaps.push_back({step.kind, step.cell, from, to});
    }
    run(0);
    const auto wall = likelihood(gaps, *this, problem.gaps);
    double most = 0;
    for (const double processors : kProcessors) {
        run(processors);
        const auto here = likelihood(gaps, *this, problem.gaps);
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
    run(processors_);
    return before != std::pair(processors_, tells_);
}

// When how many work, whatever the number of processors.
void WorkClock::find_changes(const Problem& problem) {
    const auto& parents = problem.parents;
    const auto& children = problem.children;
    std::vector<std::pair<Time, int>> changes;
    for (std::size_t p = 0; p < parents.size(); ++p) {
        changes.emplace_back(parents.request_end[p], 1);
        changes.emplace_back(std::max(parents.response_begin[p], parents.request_end[p]), -1);
    }
    for (std::size_t c = 0; c < children.size(); ++c) {
        changes.emplace_back(children.begin[c], -1);
        changes.emplace_back(std::max(children.end[c], children.begin[c]), 1);
    }
    std::sort(changes.begin(), changes.end());
    when_.clear();
    working_.clear();
    int working = 0;
    for (std::size_t i = 0; i < changes.size(); ++i) {
        working += changes[i].second;
        const auto at = changes[i].first;
        if (i + 1 < changes.size() && changes[i + 1].first == at) continue;
        when_.push_back(at);
        working_.push_back(working);
    }
}

void WorkClock::run(double processors) {
    running_ = processors > 0;
    shown_.clear();
    speed_.clear();
    log_speed_.clear();
    if (!running_) return;
    double shown = 0;
    for (std::size_t i = 0; i < when_.size(); ++i) {
        if (i > 0) shown += speed_.back() * static_cast<double>(when_[i] - when_[i - 1]);
        shown_.push_back(shown);
        speed_.push_back(std::min(1.0, processors / std::max(working_[i], 1)));
        log_speed_.push_back(speed_.back() < 1 ? static_cast<float>(std::log(speed_.back())) : 0.0f);
    }
}

WorkClock::Place WorkClock::place(Time wall, std::size_t near) const noexcept {
    // Steps of doubling length from there to both sides, until the place is between them.
    const std::size_t n = when_.size();
    std::size_t low = std::min(near, n), high = low;
    for (std::size_t step = 1; low > 0 && when_[low - 1] >= wall; step *= 2) low -= std::min(step, low);
    for (std::size_t step = 1; high < n && when_[high] < wall; step *= 2) high = std::min(high + step, n);
    const auto begin = when_.begin();
    const auto after = std::lower_bound(begin + static_cast<std::ptrdiff_t>(low),
                                        begin + static_cast<std::ptrdiff_t>(high), wall);
    return {wall, static_cast<std::size_t>(after - begin)};
}

WorkClock::Reading WorkClock::read(const Place& place) const noexcept {
    if (!running_) return {place.wall, 0.0f};
    if (place.changes == 0) return {when_.empty() ? place.wall : place.wall - when_.front(), 0.0f};
    const auto i = place.changes - 1;
    return {static_cast<Time>(shown_[i] + speed_[i] * static_cast<double>(place.wall - when_[i])),
            log_speed_[i]};
}

}  // namespace tapscope::match
