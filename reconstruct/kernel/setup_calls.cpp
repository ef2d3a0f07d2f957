#include "setup_calls.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tapscope::match {
namespace {

constexpr Time kSoonAfterOpening = 200'000'000;  // ns; sessions that are opened in advance belong to nobody
constexpr Time kSoonAfterPreparing = 1'000'000'000;  // ns
constexpr int kSteps = 4;                            // of a beginning that are learned, one behind the other
constexpr std::size_t kLeast = 3;                    // calls of a class that tell where it comes
constexpr double kNowhereElse = 0.95;                // share of them
constexpr double kMostSessions = 0.5;  // for each request; where each opens its own, they tell themselves
constexpr std::size_t kMany = 20;      // steps of a class that tell more than those of all
constexpr double kUndisturbed = 0.7;   // steps in which nobody is answered, of those by chance, at least
constexpr double kAllAlong = 0.9;  // share of what is set up for which somebody was there all along, at least

void copy_tokens(const Tokens& from, std::int32_t row, std::vector<std::int64_t>& offset,
                 std::vector<std::uint32_t>& slot, std::vector<std::uint64_t>& hash) {
    if (!from.offset.empty()) {
        const auto at = static_cast<std::size_t>(row);
        for (auto t = from.offset[at]; t < from.offset[at + 1]; ++t) {
            slot.push_back(from.slot[static_cast<std::size_t>(t)]);
            hash.push_back(from.hash[static_cast<std::size_t>(t)]);
        }
    }
    offset.push_back(static_cast<std::int64_t>(slot.size()));
}

}  // namespace

void SetupCalls::find_openings(const Children& children, std::span<const std::uint8_t> setup) {
    const auto n = children.size();
    opening_.assign(n, 0);
    opening_class_.resize(std::max(opening_class_.size(), static_cast<std::size_t>(children.n_classes)), 0);
    for (std::size_t c = 0; c < n; ++c) opening_[c] = setup[c] && children.before_on_conn[c] == kNone;
    for (int step = 0; step < kSteps; ++step) {
        std::vector<std::size_t> all(opening_class_.size(), 0), behind(opening_class_.size(), 0);
        const auto follows = [&](std::size_t c) {
            const auto before = children.before_on_conn[c];
            return before != kNone && opening_[static_cast<std::size_t>(before)];
        };
        for (std::size_t c = 0; c < n; ++c) {
            const auto cls = static_cast<std::size_t>(children.cls[c]);
            ++all[cls];
            behind[cls] += follows(c);
        }
        for (std::size_t cls = 0; cls < all.size(); ++cls) {
            if (all[cls] >= kLeast &&
                static_cast<double>(behind[cls]) >= kNowhereElse * static_cast<double>(all[cls])) {
                opening_class_[cls] = 1;
            }
        }
        bool more = false;
        for (std::size_t c = 0; c < n; ++c) {
            if (opening_[c] || !opening_class_[static_cast<std::size_t>(children.cls[c])] || !follows(c))
                continue;
            opening_[c] = 1;
            more = true;
        }
        if (!more) return;
    }
}

void SetupCalls::find_next(const Problem& problem, std::span<const std::uint8_t> setup) {
    const auto& children = problem.children;
    next_.assign(children.size(), kNone);
    for (auto c = problem.decided(); c < children.size(); ++c) {
        const auto before = children.before_on_conn[c];
        if (before == kNone) continue;
        const auto b = static_cast<std::size_t>(before);
        if (b < problem.decided() || !(setup[b] || opening_[b])) continue;
        // Both are decided in the same stretch.
        if ((b < problem.settled) != (c < problem.settled)) continue;
        const Time gap = children.begin[c] - children.end[b];
        // Behind the beginning of a session, what is sent without waiting may be another request's.
        if (gap < -kSlack && !opening_[b]) continue;
        if (gap > (opening_[b] ? kSoonAfterOpening : kSoonAfterPreparing)) continue;
        if (!children.as_parent.empty() &&
            (children.as_parent[b] != kNone || children.as_parent[c] != kNone)) {
            continue;
        }
        next_[b] = static_cast<std::int32_t>(c);
    }
}

bool SetupCalls::Steps::go_on() const noexcept { return undisturbed >= kUndisturbed * by_chance; }

bool SetupCalls::Attended::by_requests() const noexcept { return all_along >= kAllAlong * at_all; }

std::size_t SetupCalls::first_row(const Children& children, std::size_t c) const noexcept {
    if (!opening_[c]) return c;
    while (children.before_on_conn[c] != kNone) c = static_cast<std::size_t>(children.before_on_conn[c]);
    return c;
}

void SetupCalls::keep_likely(const Problem& problem) {
    const auto& parents = problem.parents;
    const auto& children = problem.children;
    std::vector<Time> answers, latest;  // latest: of all departures of those who came so far
    std::size_t opened = 0;
    steps_of_class_.resize(opening_class_.size());
    attended_.resize(opening_class_.size());
    for (std::size_t p = 0; p < parents.size(); ++p) {
        if (parents.answered[p]) answers.push_back(parents.response_begin[p]);
        latest.push_back(p == 0 ? parents.depart[p] : std::max(latest.back(), parents.depart[p]));
    }
    std::sort(answers.begin(), answers.end());
    // Whether somebody was there from the begin of one row to the answer of another.
    const auto attended = [&](std::size_t from, std::size_t to) {
        const auto came =
            std::upper_bound(parents.arrive.begin(), parents.arrive.end(), children.begin[from] + kSlack);
        const auto count = came - parents.arrive.begin();
        return count > 0 &&
               latest[static_cast<std::size_t>(count - 1)] + kSlack >= children.response_begin[to];
    };
    const double rate =  // answers for each ns
        answers.empty() ? 0.0
                        : static_cast<double>(answers.size()) /
                              static_cast<double>(std::max<Time>(answers.back() - answers.front(), 1));
    for (std::size_t c = 0; c < children.size(); ++c) {
        opened += opening_[c] && children.before_on_conn[c] == kNone;
        if (next_[c] == kNone) continue;
        const auto next = static_cast<std::size_t>(next_[c]);
        const auto answer = std::lower_bound(answers.begin(), answers.end(), children.end[c]);
        const bool undisturbed = answer == answers.end() || *answer >= children.begin[next];
        const auto gap = static_cast<double>(std::max<Time>(children.begin[next] - children.end[c], 0));
        const auto count = [&](Steps& steps) {
            steps.all += 1;
            steps.undisturbed += undisturbed;
            steps.by_chance += std::exp(-rate * gap);
        };
        count(steps_[kind_of(c)]);
        if (kind_of(c) != kWithin && attended(next, next)) {
            const auto first = first_row(children, c);
            auto& of_class = attended_[static_cast<std::size_t>(children.cls[first])];
            of_class.at_all += 1;
            of_class.all_along += attended(first, next);
        }
        if (kind_of(c) == kFromPrepared) count(steps_of_class_[static_cast<std::size_t>(children.cls[c])]);
    }
    const bool own = static_cast<double>(opened) > kMostSessions * static_cast<double>(parents.size());
    for (std::size_t c = 0; c < children.size(); ++c) {
        if (next_[c] == kNone) continue;
        const auto kind = kind_of(c);
        const auto& of_class = steps_of_class_[static_cast<std::size_t>(children.cls[c])];
        const bool many = kind == kFromPrepared && of_class.all >= kMany;
        const auto first_class = static_cast<std::size_t>(children.cls[first_row(children, c)]);
        const bool goes_on = (many ? of_class : steps_[kind]).go_on() && (kind == kFromPrepared || !own) &&
                             (kind == kWithin || attended_[first_class].by_requests());
        if (!goes_on) next_[c] = kNone;
    }
    // From the last row of each: somebody must have been there from the first to the last.
    std::vector<std::int32_t> last(children.size());
    for (std::size_t c = children.size(); c-- > 0;) {
        last[c] = next_[c] == kNone ? static_cast<std::int32_t>(c) : last[static_cast<std::size_t>(next_[c])];
        if (next_[c] == kNone) continue;
        if (attended(c, static_cast<std::size_t>(last[c]))) continue;
        next_[c] = kNone;
        last[c] = static_cast<std::int32_t>(c);
    }
}

const Problem& SetupCalls::join(const Problem& problem, std::span<const std::uint8_t> setup) {
    const auto& children = problem.children;
    joined_.clear();
    if (children.before_on_conn.empty() ||
        std::none_of(setup.begin(), setup.end(), [](std::uint8_t flag) { return flag != 0; })) {
        return problem;
    }
    find_openings(children, setup);
    find_next(problem, setup);
    keep_likely(problem);
    first_.clear();
    last_.clear();
    joined_.assign(children.size(), kNone);
    std::size_t settled = 0;
    for (std::size_t c = 0; c < children.size(); ++c) {
        if (joined_[c] != kNone) continue;
        const auto row = static_cast<std::int32_t>(first_.size());
        auto last = static_cast<std::int32_t>(c);
        joined_[c] = row;
        while (next_[static_cast<std::size_t>(last)] != kNone) {
            last = next_[static_cast<std::size_t>(last)];
            joined_[static_cast<std::size_t>(last)] = row;
        }
        first_.push_back(static_cast<std::int32_t>(c));
        last_.push_back(last);
        settled += c < problem.settled;
    }
    copy(children);
    problem_ = problem;
    if (problem.settled < children.size()) problem_.settled = settled;
    const auto classes = children.n_classes;
    problem_.children = {columns_.cls,
                         columns_.conn,
                         columns_.begin,
                         columns_.response_begin,
                         columns_.end,
                         {columns_.token_offset, columns_.token_slot, columns_.token_hash},
                         classes,
                         columns_.before,
                         {columns_.result_offset, columns_.result_slot, columns_.result_hash},
                         columns_.conn_name,
                         columns_.as_parent,
                         columns_.answer_bytes};
    problem_.children.server = columns_.server;
    return problem_;
}

void SetupCalls::copy(const Children& from) {
    columns_ = {};
    columns_.token_offset.push_back(0);
    columns_.result_offset.push_back(0);
    const auto take = [](auto& column, const auto& rows, std::int32_t row) {
        if (!rows.empty()) column.push_back(rows[static_cast<std::size_t>(row)]);
    };
    for (std::size_t row = 0; row < first_.size(); ++row) {
        const auto first = first_[row], last = last_[row];
        take(columns_.cls, from.cls, last);
        take(columns_.conn, from.conn, last);
        take(columns_.begin, from.begin, first);
        take(columns_.response_begin, from.response_begin, last);
        take(columns_.end, from.end, last);
        take(columns_.conn_name, from.conn_name, last);
        take(columns_.as_parent, from.as_parent, last);
        take(columns_.answer_bytes, from.answer_bytes, last);
        take(columns_.server, from.server, last);
        const auto before = from.before_on_conn[static_cast<std::size_t>(first)];
        columns_.before.push_back(before == kNone ? kNone : joined_[static_cast<std::size_t>(before)]);
        copy_tokens(from.tokens, last, columns_.token_offset, columns_.token_slot, columns_.token_hash);
        copy_tokens(from.results, last, columns_.result_offset, columns_.result_slot, columns_.result_hash);
    }
}

Assignment SetupCalls::apart(Assignment joined) const {
    if (joined_.empty()) return joined;
    Assignment out;
    out.pairs_too_large = joined.pairs_too_large;
    out.not_remembered = joined.not_remembered;
    out.no_longer_remembered = joined.no_longer_remembered;
    const auto spread = [&](const auto& from, auto& to) {
        for (const auto row : joined_) to.push_back(from[static_cast<std::size_t>(row)]);
    };
    spread(joined.parent, out.parent);
    spread(joined.probability, out.probability);
    spread(joined.runner_up, out.runner_up);
    spread(joined.runner_up_probability, out.runner_up_probability);
    return out;
}

}  // namespace tapscope::match
