#include "window.hpp"

#include <algorithm>

namespace tapscope::match {
namespace {

Tokens rows_of(const Tokens& tokens, std::size_t first, std::size_t count) {
    return {tokens.offset.subspan(first, count + 1), tokens.slot, tokens.hash};
}

}  // namespace

bool Window::cut(const Problem& stretch, const Candidates& candidates, const std::vector<float>& idle,
                 const WindowSize& size) {
    const auto& parents = stretch.parents;
    const auto& children = stretch.children;
    const auto first = stretch.decided();
    const auto count = std::min(stretch.settled, children.size()) - first;
    const auto all = static_cast<std::size_t>(candidates.offset[first + count] - candidates.offset[first]);
    const auto length = size.children;
    if (count < 2 * length || all > count * size.candidates) return false;

    auto of = [&](std::size_t c) { return candidates.offset[c + length] - candidates.offset[c]; };
    std::size_t begin = first;
    for (auto c = first; c + length <= first + count; c += length / 4) {
        if (of(c) < of(begin)) begin = c;
    }
    const Time from = children.begin[begin], until = children.begin[begin + length - 1];

    std::size_t low = 0;
    const auto high = static_cast<std::size_t>(
        std::upper_bound(parents.arrive.begin(), parents.arrive.end(), until + kSlack) -
        parents.arrive.begin());
    while (low < high && parents.depart[low] + kSlack < from) ++low;
    answered_.clear();
    for (auto p = low; p < high; ++p) answered_.push_back(parents.answered[p] && parents.depart[p] < until);
    before_on_conn_.clear();
    for (auto c = begin; c < begin + length && !children.before_on_conn.empty(); ++c) {
        const auto before = children.before_on_conn[c];
        const bool inside = before != kNone && static_cast<std::size_t>(before) >= begin;
        before_on_conn_.push_back(inside ? before - static_cast<std::int32_t>(begin) : kNone);
    }
    idle_.assign(idle.begin() + static_cast<std::ptrdiff_t>(begin),
                 idle.begin() + static_cast<std::ptrdiff_t>(begin + length));

    auto cut_parents = [&](const auto& column) { return column.subspan(low, high - low); };
    auto cut_children = [&](const auto& column) { return column.subspan(begin, length); };
    problem_ = {};
    problem_.parents = {cut_parents(parents.cls),
                        cut_parents(parents.conn),
                        cut_parents(parents.arrive),
                        cut_parents(parents.request_end),
                        cut_parents(parents.response_begin),
                        cut_parents(parents.depart),
                        answered_,
                        rows_of(parents.tokens, low, high - low),
                        parents.n_classes};
    problem_.children = {cut_children(children.cls),   cut_children(children.conn),
                         cut_children(children.begin), cut_children(children.response_begin),
                         cut_children(children.end),   rows_of(children.tokens, begin, length),
                         children.n_classes,           before_on_conn_};
    problem_.from = problem_.whole_from = from;
    problem_.until = until;
    return true;
}

}  // namespace tapscope::match
