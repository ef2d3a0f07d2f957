// One matching problem: the calls that a node served (parents) and the calls that it made (children), as columns.
// Times are int64 ns of one clock. The problem borrows its arrays: they must outlive it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "gaps.hpp"
#include "time.hpp"

namespace tapscope::match {

inline constexpr std::int32_t kNone = -1;

// Slack on nesting: the tap may see two packets of one host swapped by this much. ns.
inline constexpr Time kSlack = 50'000;

// The slot of a token is that of the evidence times 16, plus the token's kind (store/codes.py).
inline constexpr std::uint32_t kKinds = 16, kTextKind = 3, kEndpointKind = 4, kWordKind = 7;
inline constexpr bool of_text(std::uint32_t slot) noexcept { return slot % kKinds == kTextKind; }
inline constexpr bool of_endpoint(std::uint32_t slot) noexcept { return slot % kKinds == kEndpointKind; }
inline constexpr bool of_word(std::uint32_t slot) noexcept { return slot % kKinds == kWordKind; }

struct Tokens {  // CSR: tokens of row i are [offset[i], offset[i + 1])
    std::span<const std::int64_t> offset;
    std::span<const std::uint32_t> slot;
    std::span<const std::uint64_t> hash;
};

struct Parents {                         // sorted by arrive
    std::span<const std::int32_t> cls;   // dense class, 0 .. n_parent_classes-1
    std::span<const std::int64_t> conn;  // any numbers that stay the same over all stretches; may be empty
    std::span<const Time> arrive, request_end;  // first and last byte of the request
    std::span<const Time> response_begin;       // first byte of the response; as depart when unanswered
    std::span<const Time> depart;               // last byte of the response; latest end when unanswered
    std::span<const std::uint8_t> answered;
    Tokens tokens;
    std::int32_t n_classes = 0;
    std::span<const float> answer_bytes{};    // length of the answer, negative where not known; may be empty
    std::span<const std::int32_t> process{};  // of the server that has it (workers.hpp); empty: there is one
    // Not seen: arrive is the earliest it may have, this the latest; of the others kNone. Empty: all were seen.
    std::span<const Time> latest{};
    std::span<const Time> taken{};  // by a worker (worker_queue.hpp); empty: as they arrived
    std::size_t size() const noexcept { return cls.size(); }
    bool seen(std::size_t p) const noexcept { return latest.empty() || latest[p] == kNone; }
};

struct Children {                        // sorted by begin
    std::span<const std::int32_t> cls;   // dense class, 0 .. n_child_classes-1
    std::span<const std::int32_t> conn;  // dense connection
    std::span<const Time> begin;         // first byte of the request
    std::span<const Time> response_begin,
        end;  // first and last byte of the response; of the request when unanswered
    Tokens tokens;
    std::int32_t n_classes = 0;
    // Previous child on the same connection, or kNone; when empty, as the other rows tell.
    std::span<const std::int32_t> before_on_conn{};
    Tokens results{};  // values in the answers
    // Connections by numbers that stay the same over all stretches; may be empty.
    std::span<const std::int64_t> conn_name{};
    // Where a node calls itself: the same call among the parents, or kNone; when empty, none of them is.
    std::span<const std::int32_t> as_parent{};
    std::span<const float> answer_bytes{};    // as those of parents
    std::span<const std::int32_t> process{};  // that made it
    std::span<const std::int32_t> server{};   // that it went to, dense; empty: all went to one
    std::size_t size() const noexcept { return cls.size(); }
};

// A problem may be a stretch of a longer one. Then its first children are decided already (the latest ones of parents
// that are still open; each has its parent as only candidate), and its last ones only help to decide the others.
// What is learned comes from the steps in between.
struct Problem {
    Parents parents;
    Children children;
    std::span<const std::int32_t> decided_parent;  // of the first children, which are decided
    std::size_t settled = std::numeric_limits<std::size_t>::max();  // from this one on they look ahead
    Time from = std::numeric_limits<Time>::min();                   // parents that depart in [from, until)
    Time until = std::numeric_limits<Time>::max();                  // teach how chains end
    GapScale gaps{};                                                // by the ticks of the clock
    std::int32_t processes = 1;  // of which the last one stands for all that are not told, if there are more
    std::int32_t servers = 1;    // that the children went to; the last one may stand for several
    std::size_t decided() const noexcept { return decided_parent.size(); }
    std::int32_t process_of_parent(std::size_t p) const noexcept {
        return processes > 1 ? parents.process[p] : 0;
    }
    std::int32_t process_of_child(std::size_t c) const noexcept {
        return processes > 1 ? children.process[c] : 0;
    }
    std::size_t server_of_child(std::size_t c) const noexcept {
        return servers > 1 ? static_cast<std::size_t>(children.server[c]) : 0;
    }
    // A pool: what one process has of connections to one server. Any of these may be lent to any of its requests.
    std::size_t pools() const noexcept {
        return static_cast<std::size_t>(processes) * static_cast<std::size_t>(servers);
    }
    std::size_t pool_of_child(std::size_t c) const noexcept {
        return static_cast<std::size_t>(process_of_child(c)) * static_cast<std::size_t>(servers) +
               server_of_child(c);
    }
};

// How many requests are in flight at an instant, in one of the processes; if workers are told, those that have one.
class InFlight {
public:
    explicit InFlight(const Problem& problem);
    std::ptrdiff_t at(std::int32_t process, Time when) noexcept;  // >= 1

private:
    struct Times {
        std::vector<Time> from, depart;
        std::size_t near_from = 0, near_depart = 0;  // where it was looked for last
    };
    std::vector<Times> of_;
};

// Candidate parents of each child: those during whose stay it was made and began to be answered. Its last bytes may
// come later: a proxy that has passed the whole answer on does not wait for them. CSR, parents ascending.
struct Candidates {
    std::vector<std::int64_t> offset;  // size children + 1
    std::vector<std::int32_t> parent;
    std::vector<float> content;  // log-likelihood ratio of the child's content, this parent vs chance
    // Parent of each child that is certain, kNone where it is not; empty: none is. The search leaves these as they are;
    // the other candidates still tell what is usual among candidates at large.
    std::vector<std::int32_t> certain_parent;
    bool certain(std::size_t child) const noexcept {
        return !certain_parent.empty() && certain_parent[child] != kNone;
    }
    std::span<const std::int32_t> of(std::size_t child) const noexcept {
        return {parent.data() + offset[child], static_cast<std::size_t>(offset[child + 1] - offset[child])};
    }
    // Position of `p` among the candidates of `child`, or -1.
    std::int64_t find(std::size_t child, std::int32_t p) const noexcept {
        const auto* at = parent.data() + offset[child];
        auto left = offset[child + 1] - offset[child];
        if (left == 0 || p < at[0] || p > at[left - 1]) return -1;
        // They are different: it has no more before it than there are numbers from the first to it, nor behind it.
        const auto high = std::min<std::int64_t>(left - 1, p - at[0]);
        const auto low = std::max<std::int64_t>(0, left - 1 - (at[left - 1] - p));
        at += low;
        __builtin_prefetch(content.data() + offset[child] + (low + high) / 2);  // mostly asked for next
        left = high - low + 1;
        // Without branches: which half it is in cannot be foreseen.
        while (left > 1) {
            const auto half = left / 2;
            at += half & -static_cast<std::int64_t>(at[half - 1] < p);
            left -= half;
        }
        return *at == p ? at - parent.data() : -1;
    }
    // Drops every candidate i for which keep(i) is false. i is a position in `parent`.
    template <class Keep>
    void retain(Keep&& keep) {
        std::int64_t kept = 0, begin = 0;
        for (std::size_t c = 0; c + 1 < offset.size(); ++c) {
            const auto end = offset[c + 1];
            for (auto i = begin; i < end; ++i) {
                if (!keep(i)) continue;
                parent[kept] = parent[i];
                content[kept++] = content[i];
            }
            begin = end;
            offset[c + 1] = kept;
        }
        parent.resize(static_cast<std::size_t>(kept));
        content.resize(static_cast<std::size_t>(kept));
    }
};

// Into `out`, whose memory is used again. `forgotten`, by class of children: of those, where it is set, also parents
// that leave before the answer (forgotten.hpp). Empty: no such class.
void find_candidates(const Problem& problem, Candidates& out, std::span<const std::uint8_t> forgotten = {});

// For each child: how many connections to its server it could have been sent on (idle ones, itself included), >= 1.
// Connections below `known` are as old as the first row.
std::vector<float> idle_connections(const Children& children, std::int32_t known = 0);

}  // namespace tapscope::match
