// The rows that a stream keeps: how they come in, which of them stay, and what they take.
#include <algorithm>
#include <utility>

#include "stream.hpp"

namespace tapscope::match {
namespace {

// Rows first to last - 1 are added, behind all others.
void add_rows(RowRuns& runs, std::size_t first, std::size_t last) {
    if (first == last) return;
    if (runs.empty() || runs.back().last != first) runs.push_back({first, first});
    runs.back().last = last;
}

template <class T>
void keep_rows(std::vector<T>& column, const RowRuns& rows) {
    auto to = column.begin();
    for (const auto& [first, last] : rows) {
        const auto from = column.begin() + static_cast<std::ptrdiff_t>(first);
        to = std::copy(from, column.begin() + static_cast<std::ptrdiff_t>(last), to);
    }
    column.erase(to, column.end());
}

template <class T>
std::size_t bytes_of(const std::vector<T>& column) noexcept {
    return column.capacity() * sizeof(T);
}

template <class T, class U>
void append(std::vector<T>& to, std::span<const U> from) {
    to.insert(to.end(), from.begin(), from.end());
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

void NodeStream::TokenColumns::append_but_words(const Tokens& from) {
    for (std::size_t i = 1; i < from.offset.size(); ++i) {
        for (auto t = from.offset[i - 1]; t < from.offset[i]; ++t) {
            if (of_word(from.slot[t])) continue;
            slot.push_back(from.slot[t]);
            hash.push_back(from.hash[t]);
        }
        offset.push_back(static_cast<std::int64_t>(slot.size()));
    }
}

void NodeStream::TokenColumns::keep(const RowRuns& rows) {
    RowRuns tokens;
    for (const auto& [first, last] : rows) {
        add_rows(tokens, static_cast<std::size_t>(offset[first]), static_cast<std::size_t>(offset[last]));
    }
    std::size_t row = 0;
    std::int64_t to = 0;
    for (const auto& [first, last] : rows) {
        const auto shift = offset[first] - to;
        to = offset[last] - shift;
        for (auto from = first; from < last; ++from) offset[row++] = offset[from] - shift;
    }
    offset.resize(row + 1);
    offset.back() = to;
    keep_rows(slot, tokens);
    keep_rows(hash, tokens);
}

std::int32_t NodeStream::intern(KeyMap& classes, std::int64_t cls) {
    const auto key = static_cast<std::uint64_t>(cls) + 1;
    if (classes.size() < kMaxClasses) return classes.insert(key);
    const auto at = classes.find(key);
    counters_.classes_shared += at == kNone;
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
    append(answer_bytes_, parents.answer_bytes);
    answer_bytes_.resize(arrive_.size(), -1.0f);
    append(latest_, parents.latest);
    latest_.resize(arrive_.size(), kNone);
    parent_tokens_.append(parents.tokens);
    for (const auto cls : children.cls) child_cls_.push_back(intern(child_classes_, cls));
    for (const auto server : children.server) {
        const auto key = static_cast<std::uint64_t>(server) + 1;
        const auto at = servers_.size() < kMaxServers ? servers_.insert(key) : servers_.find(key);
        child_server_.push_back(at == kNone ? kMaxServers - 1 : at);
    }
    child_server_.resize(child_cls_.size(), 0);
    append(child_conn_, children.conn);
    append(child_as_parent_, children.as_parent);
    child_as_parent_.resize(child_conn_.size(), -1);
    append(begin_, children.begin);
    append(child_response_begin_, children.response_begin);
    append(end_, children.end);
    append(child_setup_, children.setup);
    child_setup_.resize(begin_.size(), 0);
    append(child_answer_bytes_, children.answer_bytes);
    child_answer_bytes_.resize(begin_.size(), -1.0f);
    child_tokens_.append_but_words(children.tokens);
    child_results_.append(children.results);
    measure();
}

void NodeStream::measure() {
    std::size_t bytes = bytes_of(decided_.parent) * 4;
    for (const auto* column :
         {&arrive_, &latest_, &request_end_, &response_begin_, &depart_, &begin_, &child_response_begin_,
          &end_, &parent_row_, &parent_conn_, &child_conn_, &child_as_parent_, &parent_tokens_.offset,
          &child_tokens_.offset, &child_results_.offset}) {
        bytes += bytes_of(*column);
    }
    bytes += bytes_of(old_connections_);
    for (const auto* column : {&parent_cls_, &child_cls_, &child_server_, &decided_parent_})
        bytes += bytes_of(*column);
    bytes += bytes_of(answered_) + bytes_of(child_setup_) + bytes_of(answer_bytes_) +
             bytes_of(child_answer_bytes_);
    for (const auto* tokens : {&parent_tokens_, &child_tokens_, &child_results_}) {
        bytes += bytes_of(tokens->slot) + bytes_of(tokens->hash);
    }
    counters_.kept_bytes = bytes;
    counters_.most_kept_bytes = std::max(counters_.most_kept_bytes, counters_.kept_bytes);
}

void NodeStream::keep_parents(const RowRuns& rows) {
    keep_rows(parent_cls_, rows);
    keep_rows(parent_row_, rows);
    keep_rows(parent_conn_, rows);
    for (auto* column : {&arrive_, &latest_, &request_end_, &response_begin_, &depart_})
        keep_rows(*column, rows);
    keep_rows(answered_, rows);
    keep_rows(answer_bytes_, rows);
    parent_tokens_.keep(rows);
}

void NodeStream::keep_children(const RowRuns& rows) {
    keep_rows(child_cls_, rows);
    keep_rows(child_server_, rows);
    keep_rows(child_conn_, rows);
    keep_rows(child_as_parent_, rows);
    for (auto* column : {&begin_, &child_response_begin_, &end_}) keep_rows(*column, rows);
    keep_rows(child_answer_bytes_, rows);
    keep_rows(child_setup_, rows);
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
    RowRuns kept;
    std::vector<std::int32_t> moved(arrive_.size(), kNone);
    std::int32_t open = 0;
    for (std::size_t p = 0; p < arrive_.size(); ++p) {
        if (idle(p)) continue;
        moved[p] = open++;
        add_rows(kept, p, p + 1);
    }
    if (static_cast<std::size_t>(open) == arrive_.size()) return;
    for (std::size_t p = 0; p < arrive_.size(); ++p)
        counters_.parents_given_up += moved[p] == kNone && depart_[p] >= kForever;
    RowRuns children;
    std::vector<std::int32_t> parents;
    for (std::size_t c = 0; c < decided; ++c) {
        const auto p = moved[static_cast<std::size_t>(decided_parent_[c])];
        if (p == kNone) continue;
        add_rows(children, c, c + 1);
        parents.push_back(p);
    }
    add_rows(children, decided, begin_.size());
    keep_parents(kept);
    keep_children(children);
    decided_parent_ = std::move(parents);
}

// Drops what no later stretch needs.
void NodeStream::compact(const Border& border, const std::vector<std::int32_t>& parent_of) {
    from_ = border.at;
    RowRuns kept;
    std::vector<std::int32_t> moved(arrive_.size(), kNone);
    std::int32_t open = 0;
    for (std::size_t p = 0; p < arrive_.size(); ++p) {
        if (depart_[p] < kForever ? depart_[p] + kSlack < border.at
                                  : arrive_[p] < border.at - stretch_.patience_ns) {
            counters_.parents_given_up += depart_[p] >= kForever && border.at < kForever;
            continue;
        }
        moved[p] = open++;
        add_rows(kept, p, p + 1);
    }
    keep_parents(kept);

    std::vector<std::size_t> carried(static_cast<std::size_t>(open), 0), latest;
    std::vector<std::int32_t> parents;
    for (std::size_t c = border.settled; c-- > 0;) {
        const auto p = parent_of[c] == kNone ? kNone : moved[static_cast<std::size_t>(parent_of[c])];
        if (p == kNone || carried[static_cast<std::size_t>(p)]++ >= stretch_.carried) continue;
        latest.push_back(c);
        parents.push_back(p);
    }
    std::reverse(parents.begin(), parents.end());
    decided_parent_ = std::move(parents);
    RowRuns children;
    for (auto c = latest.rbegin(); c != latest.rend(); ++c) add_rows(children, *c, *c + 1);
    add_rows(children, border.settled, begin_.size());
    keep_children(children);
}

}  // namespace tapscope::match
