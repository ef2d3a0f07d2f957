#include "stream.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace tapscope::match {
namespace {

// Who is not answered stays so many times as long as the longest of those who are, at most; or so long.
constexpr Time kLonger = 4, kLeastPatience = 2'000'000'000;

}  // namespace

NodeStream::NodeStream(const Options& options, const StretchOptions& stretch, const Stop& stop)
    : options_(options), stretch_(stretch), stop_(stop) {}

NodeStream::~NodeStream() = default;

// First child from `low` on that begins at `at` or later.
std::size_t NodeStream::first_from(Time at, std::size_t low) const noexcept {
    const auto from = begin_.begin() + static_cast<std::ptrdiff_t>(std::min(low, begin_.size()));
    return static_cast<std::size_t>(std::lower_bound(from, begin_.end(), at) - begin_.begin());
}

// Counts the candidate parents of the children that came so far, roughly: the parents in flight. Rows are complete up to
// now_, and none is dropped before there is a matcher.
void NodeStream::count_candidates(bool finished) {
    while (counted_ < begin_.size() && candidates_ <= stretch_.first_candidates &&
           (finished || begin_[counted_] + kSlack < now_)) {
        const Time at = begin_[counted_++];
        while (arrived_ < arrive_.size() && arrive_[arrived_] <= at) departures_.push(depart_[arrived_++]);
        while (!departures_.empty() && departures_.top() < at) departures_.pop();
        candidates_ += departures_.size();
    }
}

// Of the children [low, high], the one at whose begin the fewest parents are in flight; the first of them.
std::size_t NodeStream::quietest(std::size_t low, std::size_t high) const {
    std::vector<Time> departures;
    std::size_t next = 0;
    std::size_t best = low, least = std::numeric_limits<std::size_t>::max();
    std::make_heap(departures.begin(), departures.end(), std::greater<>());
    for (std::size_t c = low; c <= high && c < begin_.size(); ++c) {
        while (next < arrive_.size() && arrive_[next] <= begin_[c] - kSlack) {
            departures.push_back(depart_[next++]);
            std::push_heap(departures.begin(), departures.end(), std::greater<>());
        }
        while (!departures.empty() && departures.front() + kSlack < begin_[c]) {
            std::pop_heap(departures.begin(), departures.end(), std::greater<>());
            departures.pop_back();
        }
        if (departures.size() < least) {
            least = departures.size();
            best = c;
        }
    }
    return best;
}

// When everybody has left who is in flight then and will be answered. Nobody else made a child that begins before, so
// what comes later says nothing of those.
Time NodeStream::gone_by(Time at) const noexcept {
    Time out = at;
    for (std::size_t p = 0; p < arrive_.size() && arrive_[p] <= at + kSlack; ++p) {
        if (depart_[p] < kForever) out = std::max(out, depart_[p]);
    }
    return out + kSlack;
}

FirstRows NodeStream::first_rows(std::size_t children) const {
    const auto parents = children == 0
                             ? arrive_.begin()
                             : std::upper_bound(arrive_.begin(), arrive_.end(), begin_[children - 1]);
    const auto n = static_cast<std::size_t>(parents - arrive_.begin());
    const auto part = [](const auto& column, std::size_t count) { return std::span(column).first(count); };
    return {part(parent_cls_, n), part(child_cls_, children), part(arrive_, n),
            part(depart_, n),     part(begin_, children),     part(child_tokens_.offset, children + 1)};
}

// The next stretch, when all the rows that determine it are there.
NodeStream::Border NodeStream::next_border(bool finished) const {
    Border out;
    const auto first = decided_parent_.size();
    const auto n = begin_.size();
    if (first == n) return out;
    const auto children = matcher_ ? stretch_.children : stretch_.first_children;
    const auto length = matcher_ ? stretch_.length_ns : stretch_.first_ns;
    const Time start = begin_[first];
    auto low = std::min(first + children, first_from(start + length, first));
    if (!matcher_ && candidates_ > stretch_.first_candidates) low = std::min(low, counted_);
    const auto begin_or = [&](std::size_t c, Time otherwise) { return c < n ? begin_[c] : otherwise; };
    std::size_t high = 0, end = 0, quarter = children / 4;
    Time needed = 0;
    const auto look_ahead = [&] {
        high = std::min(low + quarter, first_from(start + length + length / 4, low));
        const Time ahead_from = std::min(begin_or(high, kForever), start + length + length / 4);
        end = std::min(high + stretch_.ahead, first_from(ahead_from + stretch_.ahead_ns, high));
        needed = std::min(begin_or(end, kForever), ahead_from + stretch_.ahead_ns);
    };
    look_ahead();
    if (!finished && (needed >= kForever || needed + kSlack >= now_)) return out;
    if (!matcher_) {
        // Rows of all of it were waited for, to know that a part will do.
        const auto enough = enough_to_learn(first_rows(std::min(high, n)), stretch_.least_children);
        if (enough < low) {
            low = enough;
            quarter = enough / 4;
            look_ahead();
        }
    }
    out.known = true;
    if (finished && end >= n) {
        out.settled = out.end = n;
        out.at = out.horizon = kForever;
        return out;
    }
    out.settled = quietest(low, std::min(high, n));
    out.at = begin_or(out.settled, start + length);
    out.horizon = std::min(needed, gone_by(out.at));
    out.end = std::min(end, first_from(out.horizon, out.settled));
    return out;
}

void NodeStream::advance(Time now) {
    now_ = std::max(now_, now);
    forget_idle();
    if (!matcher_) count_candidates(false);
    for (Border border = next_border(false); border.known; border = next_border(false)) {
        match(border);
        forget_idle();
    }
}

void NodeStream::finish() {
    for (const auto* column : {&arrive_, &begin_}) {
        if (!column->empty()) now_ = std::max(now_, column->back());
    }
    advance(now_);
    if (!matcher_) count_candidates(true);
    for (Border border = next_border(true); border.known; border = next_border(true)) {
        match(border);
        forget_idle();
    }
}

Links NodeStream::take() { return std::exchange(decided_, {}); }

NodeStream::Connections NodeStream::connections(const Border& border) {
    Connections out;
    KeyMap names;
    for (const auto& old : old_connections_) names.insert(static_cast<std::uint64_t>(old.conn) + 1);
    out.known = names.size();
    const auto decided = decided_parent_.size();
    std::vector<std::int32_t> latest(static_cast<std::size_t>(out.known), kNone);
    std::vector<LastUse> used;
    std::vector<std::int32_t> place(static_cast<std::size_t>(out.known), kNone);  // in `used`
    for (std::size_t c = 0; c < border.end; ++c) {
        const auto name = names.insert(static_cast<std::uint64_t>(child_conn_[c]) + 1);
        const auto at = static_cast<std::size_t>(name);
        if (at == latest.size()) {
            latest.push_back(kNone);
            place.push_back(kNone);
        }
        out.conn.push_back(name);
        out.before.push_back(latest[at]);
        // Of the decided children only some are still here: who used the connection last may be gone.
        const bool gone = c < decided && name < out.known && old_connections_[at].begin != begin_[c];
        latest[at] = gone ? kNone : static_cast<std::int32_t>(c);
        if (c >= border.settled) continue;
        if (place[at] == kNone) {
            place[at] = static_cast<std::int32_t>(used.size());
            used.push_back({child_conn_[c], begin_[c]});
        }
        used[static_cast<std::size_t>(place[at])].begin = begin_[c];
    }
    old_connections_ = std::move(used);
    return out;
}

// Of the first children: places among the first parents of those that are the same call; empty where none is.
std::vector<std::int32_t> NodeStream::own_places(std::size_t children, std::size_t parents) const {
    std::vector<std::int32_t> out;
    const auto end = parent_row_.begin() + static_cast<std::ptrdiff_t>(parents);
    for (std::size_t c = 0; c < children; ++c) {
        if (child_as_parent_[c] < 0) continue;
        const auto at = std::lower_bound(parent_row_.begin(), end, child_as_parent_[c]);
        if (at == end || *at != child_as_parent_[c]) continue;
        out.resize(children, kNone);
        out[c] = static_cast<std::int32_t>(at - parent_row_.begin());
    }
    return out;
}

// What all times of the first parents and children are multiples of, but for their origin, as far as gaps are told apart.
Time NodeStream::tick(const std::vector<std::uint8_t>& answered, std::size_t children) const {
    const Time origin = begin_.front();
    Time out = 0;
    const auto look = [&](const std::vector<Time>& times, std::size_t n,
                          const std::vector<std::uint8_t>* seen) {
        for (std::size_t i = 0; i < n && (out == 0 || out > kLeastGap); ++i) {
            if (seen == nullptr || (*seen)[i]) out = std::gcd(out, times[i] - origin);
        }
    };
    for (const auto* times : {&begin_, &child_response_begin_, &end_}) look(*times, children, nullptr);
    for (const auto* times : {&arrive_, &request_end_}) look(*times, answered.size(), nullptr);
    for (const auto* times : {&response_begin_, &depart_}) look(*times, answered.size(), &answered);
    return out;
}

// When each of the first parents has left at the latest. Who is not answered is gone after a while, too: its answer may
// have been lost, and whoever seems to be there for good is given the calls of all.
std::vector<Time> NodeStream::departures(const std::vector<std::uint8_t>& answered) {
    for (std::size_t p = 0; p < answered.size(); ++p) {
        if (answered[p]) longest_ = std::max(longest_, depart_[p] - arrive_[p]);
    }
    Time patience = stretch_.patience_ns;
    if (longest_ > 0)
        patience = std::min(patience, std::max(kLonger * std::min(longest_, patience), kLeastPatience));
    std::vector<Time> out(depart_.begin(), depart_.begin() + static_cast<std::ptrdiff_t>(answered.size()));
    for (std::size_t p = 0; p < out.size(); ++p) {
        if (out[p] >= kForever) out[p] = arrive_[p] + patience;
    }
    for (std::size_t c = 0; c < decided_parent_.size(); ++c) {
        auto& until = out[static_cast<std::size_t>(decided_parent_[c])];
        until = std::max(until, child_response_begin_[c]);
    }
    return out;
}

void NodeStream::match(const Border& border) {
    stop_.poll();
    const auto decided = decided_parent_.size();
    // A parent that arrives after the last child has nothing to do with the stretch.
    const auto parents =
        static_cast<std::size_t>(std::upper_bound(arrive_.begin(), arrive_.end(),
                                                  border.end > 0 ? begin_[border.end - 1] + kSlack : 0) -
                                 arrive_.begin());
    // Classes of the rows that are looked at: what else was pushed depends on the chunks.
    for (std::size_t p = 0; p < parents; ++p)
        n_parent_classes_ = std::max(n_parent_classes_, parent_cls_[p] + 1);
    for (std::size_t c = 0; c < border.end; ++c)
        n_child_classes_ = std::max(n_child_classes_, child_cls_[c] + 1);
    for (std::size_t c = 0; c < border.end; ++c) n_servers_ = std::max(n_servers_, child_server_[c] + 1);
    const bool fresh =
        !matcher_ || n_parent_classes_ > capacity_parents_ || n_child_classes_ > capacity_children_;
    if (fresh) {
        counters_.learned_anew += matcher_ != nullptr;
        const auto with_room = [](std::int32_t classes) {  // for some that may still come
            return std::min(classes + std::max(classes / 2, 8), kMaxClasses + 1);
        };
        capacity_parents_ = with_room(n_parent_classes_);
        capacity_children_ = with_room(n_child_classes_);
        matcher_ = std::make_unique<Matcher>(capacity_parents_, capacity_children_, options_, stop_);
    }
    // How a parent ends that is still there at the horizon is not known yet.
    std::vector<std::uint8_t> answered(parents);
    for (std::size_t p = 0; p < parents; ++p) answered[p] = answered_[p] && depart_[p] < border.horizon;
    if (fresh) gaps_ = GapScale(tick(answered, border.end));
    const auto departs = departures(answered);
    const auto conns = connections(border);
    auto first = [&](const auto& column, std::size_t n) { return std::span(column).first(n); };
    Problem problem;
    problem.parents = {first(parent_cls_, parents),
                       first(parent_conn_, parents),
                       first(arrive_, parents),
                       first(request_end_, parents),
                       first(response_begin_, parents),
                       departs,
                       answered,
                       parent_tokens_.view(),
                       capacity_parents_,
                       first(answer_bytes_, parents)};
    problem.parents.latest = first(latest_, parents);
    problem.children.cls = first(child_cls_, border.end);
    problem.children.conn = conns.conn;
    problem.children.conn_name = first(child_conn_, border.end);
    problem.children.before_on_conn = conns.before;
    const auto as_parent = own_places(border.end, parents);
    problem.children.as_parent = as_parent;
    problem.children.answer_bytes = first(child_answer_bytes_, border.end);
    problem.children.server = first(child_server_, border.end);
    problem.servers = n_servers_;
    problem.children.begin = first(begin_, border.end);
    problem.children.response_begin = first(child_response_begin_, border.end);
    problem.children.end = first(end_, border.end);
    problem.children.tokens = child_tokens_.view();
    problem.children.results = child_results_.view();
    problem.children.n_classes = capacity_children_;
    if (fresh) path_values_.find(problem.parents, problem.children);
    path_values_.apply(problem.parents);
    problem.decided_parent = decided_parent_;
    problem.settled = border.settled;
    problem.from = from_;
    problem.until = border.at;
    problem.gaps = gaps_;
    const auto& asked = setup_calls_.join(problem, first(child_setup_, border.end));
    const auto answer =
        setup_calls_.apart(matcher_->match(asked, idle_connections(asked.children, conns.known)));
    ++counters_.stretches;
    counters_.pairs_too_large += answer.pairs_too_large;
    counters_.not_remembered += answer.not_remembered;
    counters_.no_longer_remembered += answer.no_longer_remembered;
    auto row = [&](std::int32_t p) { return p == kNone ? -1 : parent_row_[static_cast<std::size_t>(p)]; };
    for (std::size_t c = decided; c < border.settled; ++c) {
        decided_.parent.push_back(row(answer.parent[c]));
        decided_.probability.push_back(answer.probability[c]);
        decided_.runner_up.push_back(row(answer.runner_up[c]));
        decided_.runner_up_probability.push_back(answer.runner_up_probability[c]);
    }
    measure();
    compact(border, answer.parent);
}

}  // namespace tapscope::match
