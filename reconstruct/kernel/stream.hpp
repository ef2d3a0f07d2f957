// The calls of one node as a stream: rows come in, in the order of time, and links come out a bounded time later.
//
// The node's timeline is cut into stretches at places that only the rows determine, never the chunks in which they
// came: after so many children (or so much time), where the fewest parents are in flight. Parents that are open at a
// border are rows of both stretches, with their latest children, which are decided. A stretch is matched together with
// the beginning of the next one, so that what it decides last has seen what follows.
//
// What is kept: the rows of one stretch, the parents that are open, and the model. While a node makes no calls, those
// that it serves are kept for a while.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "assign.hpp"
#include "enough.hpp"
#include "key_map.hpp"
#include "path_values.hpp"
#include "problem.hpp"
#include "setup_calls.hpp"
#include "stop.hpp"

namespace tapscope::match {

struct StretchOptions {
    std::size_t first_children = 49'152;       // of the stretch that teaches the model, at most,
    std::size_t least_children = 6'144;        // and at least, where so many tell of all: enough.hpp
    std::size_t first_candidates = 1'500'000;  // of its children together: what learning costs
    std::size_t children = 8'192;  // of every later one; up to a quarter more, to find a quiet place
    std::size_t ahead = 2'048;     // of the next stretch, looked at until those in flight have left, at most
    Time first_ns = 600'000'000'000;     // and no longer than this,
    Time length_ns = 30'000'000'000;     // or this,
    Time ahead_ns = 5'000'000'000;       // or this
    Time patience_ns = 120'000'000'000;  // after which an unanswered parent makes no more children
    Time idle_ns = 60'000'000'000;  // so long before the first child of a stretch nobody has to do with it
    std::size_t carried = 16;       // latest children of an open parent that the next stretch sees
};

// Rows that come in; every span has one element per row. Times are ns of any one origin.
struct ParentRows {
    std::span<const std::int64_t> cls, conn;  // any numbers; equal ones are one class
    // response_begin -1: not answered, or not seen; then depart is when it was over at the latest, -1 not known
    std::span<const Time> arrive, request_end, response_begin, depart;
    Tokens tokens;
    std::span<const float> answer_bytes{};  // negative: not known; empty: of none
    std::span<const Time>
        latest{};  // arrival of one that was not seen, arrive being the earliest; -1: seen; empty: all
};
struct ChildRows {
    std::span<const std::int64_t> cls, conn;
    std::span<const Time> begin, response_begin, end;
    Tokens tokens;
    Tokens results;  // values in the answers
    // Number of the same call among the parents, as they are pushed, -1 none; empty where the node never calls itself.
    std::span<const std::int64_t> as_parent{};
    std::span<const float> answer_bytes{};   // as those of parents
    std::span<const std::uint8_t> setup{};   // sets up the next call on its connection; empty: none does
    std::span<const std::int64_t> server{};  // any numbers; empty: all went to one
};

// Links of consecutive children, in the order in which they were pushed. Parents are numbered as they were pushed.
struct Links {
    std::vector<std::int64_t> parent;  // or -1
    std::vector<double> probability;   // of that parent, or of having none
    std::vector<std::int64_t> runner_up;
    std::vector<double> runner_up_probability;
};

struct StreamCounters {
    std::uint64_t stretches = 0;             // decided
    std::uint64_t learned_anew = 0;          // stretches with more classes than the model had room for
    std::uint64_t pairs_too_large = 0;       // pairs of parents that kept what they had
    std::uint64_t parents_given_up = 0;      // unanswered ones that were waited for in vain
    std::uint64_t classes_shared = 0;        // rows of classes beyond those that are told apart
    std::uint64_t not_remembered = 0;        // what calls named, and there was no room for
    std::uint64_t no_longer_remembered = 0;  // what was forgotten to have some
    std::uint64_t kept_bytes = 0, most_kept_bytes = 0;  // of rows that wait
};

// Rows in order, as runs of first to last - 1: most of those that are kept are one run, of what comes behind a stretch.
struct RowRun {
    std::size_t first = 0, last = 0;
};
using RowRuns = std::vector<RowRun>;

class NodeStream {
public:
    NodeStream(const Options& options, const StretchOptions& stretch, const Stop& stop);
    ~NodeStream();

    // Parents in order of arrive, children in order of begin.
    void push(const ParentRows& parents, const ChildRows& children);
    // Every row that begins before `now` has been pushed: matches what can be matched. `now` never goes back. Both throw
    // Stopped when that is asked for, and are of no use any more then.
    void advance(Time now);
    // No more rows will come.
    void finish();
    // The links that are decided and were not taken yet.
    Links take();
    const StreamCounters& counters() const noexcept { return counters_; }

private:
    static constexpr Time kForever = std::numeric_limits<Time>::max() / 2;
    // Classes that a node's model tells apart, on either side; those that come later share one more. Its tables are
    // products of both numbers, and class texts come from whoever sends requests.
    static constexpr std::int32_t kMaxClasses = 2048;
    // Servers whose connections have habits of their own; those that come later share the last.
    static constexpr std::int32_t kMaxServers = 16;

    struct TokenColumns {
        std::vector<std::int64_t> offset{0};
        std::vector<std::uint32_t> slot;
        std::vector<std::uint64_t> hash;
        void append(const Tokens& from);
        void append_but_words(const Tokens& from);  // path_values.hpp: of calls they tell nothing
        void keep(const RowRuns& rows);
        Tokens view() const noexcept { return {offset, slot, hash}; }
    };
    struct Border {
        std::size_t settled = 0, end = 0;  // children that are decided; that are looked at
        Time at = 0, horizon = 0;          // the first instant of the next stretch; of what is not looked at
        bool known = false;
    };

    Border next_border(bool finished) const;
    std::size_t first_from(Time at, std::size_t low) const noexcept;
    void count_candidates(bool finished);
    std::size_t quietest(std::size_t low, std::size_t high) const;
    Time gone_by(Time at) const noexcept;
    std::vector<Time> departures(const std::vector<std::uint8_t>& answered);
    FirstRows first_rows(std::size_t children) const;
    void match(const Border& border);
    void forget_idle();
    void keep_parents(const RowRuns& rows);
    void keep_children(const RowRuns& rows);
    void compact(const Border& border, const std::vector<std::int32_t>& parent_of);
    std::int32_t intern(KeyMap& classes, std::int64_t cls);
    // The connections of the first children in the form in which a problem wants them.
    struct Connections {
        std::vector<std::int32_t> conn, before;
        std::int32_t known = 0;  // the first of them were used in the stretch before
    };
    Connections connections(const Border& border);
    Time tick(const std::vector<std::uint8_t>& answered, std::size_t children) const;
    std::vector<std::int32_t> own_places(std::size_t children, std::size_t parents) const;
    void measure();

    const Options options_;
    const StretchOptions stretch_;
    const Stop& stop_;
    std::unique_ptr<Matcher> matcher_;
    SetupCalls setup_calls_;
    PathValues path_values_{kMaxClasses};
    GapScale gaps_;
    std::int32_t capacity_parents_ = 0, capacity_children_ = 0;  // classes that the matcher has room for
    KeyMap parent_classes_, child_classes_, servers_;
    std::int32_t n_parent_classes_ = 0, n_child_classes_ = 0, n_servers_ = 1;  // of rows that were looked at

    // Rows that wait, and those of open parents. The first children are decided: decided_parent_.
    std::vector<std::int32_t> parent_cls_, child_cls_, child_server_;
    std::vector<std::int64_t> parent_row_, parent_conn_, child_conn_, child_as_parent_;
    std::vector<Time> arrive_, latest_, request_end_, response_begin_, depart_;
    std::vector<Time> begin_, child_response_begin_, end_;
    std::vector<std::uint8_t> answered_, child_setup_;
    std::vector<float> answer_bytes_, child_answer_bytes_;
    TokenColumns parent_tokens_, child_tokens_, child_results_;
    std::vector<std::int32_t> decided_parent_;
    struct LastUse {
        std::int64_t conn = 0;
        Time begin = 0;  // of the last decided child on it
    };
    std::vector<LastUse> old_connections_;  // used in the stretch before
    std::int64_t parents_pushed_ = 0;
    Time longest_ = 0;  // stay of those that were answered
    // Of the first stretch: children whose candidates are counted, parents that arrived until then, who may still be
    // there, and the candidates.
    std::size_t counted_ = 0, arrived_ = 0, candidates_ = 0;
    std::priority_queue<Time, std::vector<Time>, std::greater<>> departures_;
    Time from_ = std::numeric_limits<Time>::min(), now_ = std::numeric_limits<Time>::min();
    Links decided_;
    StreamCounters counters_;
};

}  // namespace tapscope::match
