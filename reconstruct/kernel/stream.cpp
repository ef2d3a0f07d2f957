#include "stream.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace tapscope::match {
namespace {

constexpr Time kForever = std::numeric_limits<Time>::max() / 2;
// Classes that a node's model tells apart, on either side; those that come later share one more. Its tables are
// products of both numbers, and class texts come from whoever sends requests.
constexpr std::int32_t kMaxClasses = 2048;

template <class T>
void keep_rows(std::vector<T>& column, const std::vector<std::uint32_t>& rows) {
    for (std::size_t i = 0; i < rows.size(); ++i) column[i] = column[rows[i]];
    column.resize(rows.size());
}

template <class T>
std::size_t bytes_of(const std::vector<T>& column) noexcept {
    return column.capacity() * sizeof(T);
}

template <class T, class U>
void append(std::vector<T>& to, std::span<const U> from) {
    to.insert(to.end(), from.begin(), from.end());
}

// Room for the classes that were seen and for some that may still come.
std::int32_t with_room(std::int32_t classes) noexcept {
    return std::min(classes + std::max(classes / 2, 8), kMaxClasses + 1);
}

}  // namespace

void NodeStream::TokenColumns::append(const Tokens& from) {
    if (from.offset.empty()) return;
    const auto shift = offset.back() - from.offset.front();
    for (std::size_t i = 1; i < from.offset.size(); ++i) offset.push_back(from.offset[i] + shift);
    const auto first = static_cast<std::size_t>(from.offset.front());
    const auto count = static_cast<std::size_t>(from.offset.back()) - first;
    match::append(slot, from.slot.subspan(first, count));
    match::append(hash, from.hash.subspan(first, count));
}

void NodeStream::TokenColumns::keep(const std::vector<std::uint32_t>& rows) {
    std::int64_t to = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto begin = offset[rows[i]], end = offset[rows[i] + 1];
        offset[i] = to;  // never ahead of what is still to be read
        for (auto t = begin; t < end; ++t, ++to) {
            slot[to] = slot[t];
            hash[to] = hash[t];
        }
    }
    offset.resize(rows.size() + 1);
    offset.back() = to;
    slot.resize(static_cast<std::size_t>(to));
    hash.resize(static_cast<std::size_t>(to));
}

NodeStream::NodeStream(const Options& options, const StretchOptions& stretch, const std::atomic<bool>& stop)
    : options_(options), stretch_(stretch), stop_(stop) {}

NodeStream::~NodeStream() = default;

std::int32_t NodeStream::intern(KeyMap& classes, std::int64_t cls) const {
    const auto key = static_cast<std::uint64_t>(cls) + 1;
    if (classes.size() < kMaxClasses) return classes.insert(key);
    const auto at = classes.find(key);
    return at == kNone ? kMaxClasses : at;
}

void NodeStream::push(const ParentRows& parents, const ChildRows& children) {
    for (const auto cls : parents.cls) {
        parent_cls_.push_back(intern(parent_classes_, cls));
        parent_row_.push_back(parents_pushed_++);
    }
    append(parent_conn_, parents.conn);
    append(arrive_, parents.arrive);
    append(request_end_, parents.request_end);
    for (std::size_t p = 0; p < parents.cls.size(); ++p) {
        const bool answered = parents.depart[p] >= 0 && parents.response_begin[p] >= 0;
        answered_.push_back(answered);
        depart_.push_back(parents.depart[p] >= 0 ? parents.depart[p] : kForever);
        response_begin_.push_back(answered ? parents.response_begin[p] : depart_.back());
    }
    parent_tokens_.append(parents.tokens);
    for (const auto cls : children.cls) child_cls_.push_back(intern(child_classes_, cls));
    append(child_conn_, children.conn);
    append(child_as_parent_, children.as_parent);
    child_as_parent_.resize(child_conn_.size(), -1);
    append(begin_, children.begin);
    append(child_response_begin_, children.response_begin);
    append(end_, children.end);
    child_tokens_.append(children.tokens);
    child_results_.append(children.results);
    measure();
}

void NodeStream::measure() {
    std::size_t bytes = bytes_of(decided_.parent) * 4;
    for (const auto* column :
         {&arrive_, &request_end_, &response_begin_, &depart_, &begin_, &child_response_begin_, &end_,
          &parent_row_, &parent_conn_, &child_conn_, &child_as_parent_, &parent_tokens_.offset,
          &child_tokens_.offset, &child_results_.offset}) {
        bytes += bytes_of(*column);
    }
    bytes += bytes_of(old_connections_);
    for (const auto* column : {&parent_cls_, &child_cls_, &decided_parent_}) bytes += bytes_of(*column);
    bytes += bytes_of(answered_);
    for (const auto* tokens : {&parent_tokens_, &child_tokens_, &child_results_}) {
        bytes += bytes_of(tokens->slot) + bytes_of(tokens->hash);
    }
    counters_.kept_bytes = bytes;
    counters_.most_kept_bytes = std::max(counters_.most_kept_bytes, counters_.kept_bytes);
}

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
    for (Border border = next_border(false); border.known && !stop_; border = next_border(false)) {
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
    for (Border border = next_border(true); border.known && !stop_; border = next_border(true)) {
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

void NodeStream::match(const Border& border) {
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
    if (!matcher_ || n_parent_classes_ > capacity_parents_ || n_child_classes_ > capacity_children_) {
        capacity_parents_ = with_room(n_parent_classes_);
        capacity_children_ = with_room(n_child_classes_);
        matcher_ = std::make_unique<Matcher>(capacity_parents_, capacity_children_, options_, stop_);
        ++counters_.learned;
    }
    // How a parent ends that is still there at the horizon is not known yet.
    std::vector<std::uint8_t> answered(parents);
    for (std::size_t p = 0; p < parents; ++p) answered[p] = answered_[p] && depart_[p] < border.horizon;
    // Who waited for an answer for too long before the stretch begins makes none of its children.
    std::vector<Time> departs(depart_.begin(), depart_.begin() + static_cast<std::ptrdiff_t>(parents));
    for (std::size_t p = 0; p < parents && decided < border.end; ++p) {
        if (departs[p] >= kForever && arrive_[p] < begin_[decided] - stretch_.patience_ns)
            departs[p] = arrive_[p] + stretch_.patience_ns;
    }
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
                       capacity_parents_};
    problem.children.cls = first(child_cls_, border.end);
    problem.children.conn = conns.conn;
    problem.children.conn_name = first(child_conn_, border.end);
    problem.children.before_on_conn = conns.before;
    const auto as_parent = own_places(border.end, parents);
    problem.children.as_parent = as_parent;
    problem.children.begin = first(begin_, border.end);
    problem.children.response_begin = first(child_response_begin_, border.end);
    problem.children.end = first(end_, border.end);
    problem.children.tokens = child_tokens_.view();
    problem.children.results = child_results_.view();
    problem.children.n_classes = capacity_children_;
    problem.decided_parent = decided_parent_;
    problem.settled = border.settled;
    problem.from = from_;
    problem.until = border.at;
    const auto answer = matcher_->match(problem, idle_connections(problem.children, conns.known));
    ++counters_.stretches;
    counters_.pairs_too_large += answer.pairs_too_large;
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

void NodeStream::keep_parents(const std::vector<std::uint32_t>& rows) {
    keep_rows(parent_cls_, rows);
    keep_rows(parent_row_, rows);
    keep_rows(parent_conn_, rows);
    for (auto* column : {&arrive_, &request_end_, &response_begin_, &depart_}) keep_rows(*column, rows);
    keep_rows(answered_, rows);
    parent_tokens_.keep(rows);
}

void NodeStream::keep_children(const std::vector<std::uint32_t>& rows) {
    keep_rows(child_cls_, rows);
    keep_rows(child_conn_, rows);
    keep_rows(child_as_parent_, rows);
    for (auto* column : {&begin_, &child_response_begin_, &end_}) keep_rows(*column, rows);
    child_tokens_.keep(rows);
    child_results_.keep(rows);
}

// Drops the parents that were gone long before the next child began, or begins at the earliest. It may come at any time
// between two stretches: what it drops before the next one does not depend on that.
void NodeStream::forget_idle() {
    if (arrive_.empty() || (!matcher_ && counted_ > 0)) return;
    const auto decided = decided_parent_.size();
    const Time before = (decided < begin_.size() ? begin_[decided] : now_) - stretch_.idle_ns;
    const auto idle = [&](std::size_t p) {
        return depart_[p] < kForever ? depart_[p] < before : arrive_[p] < before - stretch_.patience_ns;
    };
    std::vector<std::uint32_t> kept;
    std::vector<std::int32_t> moved(arrive_.size(), kNone);
    for (std::size_t p = 0; p < arrive_.size(); ++p) {
        if (idle(p)) continue;
        moved[p] = static_cast<std::int32_t>(kept.size());
        kept.push_back(static_cast<std::uint32_t>(p));
    }
    if (kept.size() == arrive_.size()) return;
    for (std::size_t p = 0; p < arrive_.size(); ++p)
        counters_.parents_given_up += moved[p] == kNone && depart_[p] >= kForever;
    std::vector<std::uint32_t> children;
    std::vector<std::int32_t> parents;
    for (std::size_t c = 0; c < begin_.size(); ++c) {
        const auto p = c < decided ? moved[static_cast<std::size_t>(decided_parent_[c])] : kNone;
        if (c < decided && p == kNone) continue;
        children.push_back(static_cast<std::uint32_t>(c));
        if (c < decided) parents.push_back(p);
    }
    keep_parents(kept);
    keep_children(children);
    decided_parent_ = std::move(parents);
}

// Drops what no later stretch needs.
void NodeStream::compact(const Border& border, const std::vector<std::int32_t>& parent_of) {
    from_ = border.at;
    const auto n = begin_.size();
    std::vector<std::uint32_t> kept;
    std::vector<std::int32_t> moved(arrive_.size(), kNone);
    for (std::size_t p = 0; p < arrive_.size(); ++p) {
        if (depart_[p] < kForever ? depart_[p] + kSlack < border.at
                                  : arrive_[p] < border.at - stretch_.patience_ns) {
            counters_.parents_given_up += depart_[p] >= kForever && border.at < kForever;
            continue;
        }
        moved[p] = static_cast<std::int32_t>(kept.size());
        kept.push_back(static_cast<std::uint32_t>(p));
    }
    keep_parents(kept);

    const auto open = kept.size();
    std::vector<std::size_t> carried(open, 0);
    std::vector<std::uint32_t> children;
    std::vector<std::int32_t> parents;
    for (std::size_t c = border.settled; c-- > 0;) {
        const auto p = parent_of[c] == kNone ? kNone : moved[static_cast<std::size_t>(parent_of[c])];
        if (p == kNone || carried[static_cast<std::size_t>(p)]++ >= stretch_.carried) continue;
        children.push_back(static_cast<std::uint32_t>(c));
        parents.push_back(p);
    }
    std::reverse(children.begin(), children.end());
    std::reverse(parents.begin(), parents.end());
    decided_parent_ = std::move(parents);
    for (std::size_t c = border.settled; c < n; ++c) children.push_back(static_cast<std::uint32_t>(c));
    keep_children(children);
}

}  // namespace tapscope::match
