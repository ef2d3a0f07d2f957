// Worker processes behind one address: which connections are whose?
//
// A server that forks (nginx, gunicorn, PHP-FPM, Node's cluster) is one node to the tap, but each of its processes has
// connections of its own, on both sides: what came in on a connection of one process never goes out on that of another.
// Told from times alone, before anything is assigned: whenever a call begins on a connection of one process, a request
// on one of the same process is there. So the connections that requests in flight came on are compared with those at a
// call nearby in time: the load, pools that grow, and connections that are opened late are the same for both.
//
// A group of connections is split in two as long as both halves prove to be apart: calls hardly ever find no request of
// their own half, and the calls nearby, taken in their places, often would.
//
// Stretches behind the first may be too short, or too busy, to tell that from. So what was told of a connection is
// remembered, and tells of others, until the rows speak against it (worker_memory.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "key_map.hpp"
#include "problem.hpp"

namespace tapscope::match {

class Workers {
public:
    // Tells the processes of a stretch, and drops the candidates that are of another process than the call. The problem
    // borrows what was told until the next time. Where there are none it looks at fewer and fewer stretches.
    void separate(Problem& problem, Candidates& candidates);
    // That were told in the last stretch; 0: all may be of one.
    std::int32_t processes() const noexcept { return static_cast<std::int32_t>(of_process_.size()); }

private:
    static constexpr std::size_t kFewestCalls = 200;  // that a split is told from
    // Calls from one to the one that it is compared with, which is not of the same request.
    static constexpr std::size_t kNearby = 61;
    // That a connection needs to be told; share of them that may object.
    static constexpr float kVotes = 3, kAgainst = 0.1f;
    // Share of the calls that would find nobody by chance which may find nobody of their own process.
    static constexpr double kBroken = 0.03;

    // Of one connection: the splits that it is on one side of, and on the other; where neither, it is not told.
    struct Place {
        std::uint64_t left = 0, right = 0;
        bool apart(const Place& other) const noexcept {
            return ((left & other.right) | (right & other.left)) != 0;
        }
    };
    // Connections on one side, by number.
    struct Side {
        std::vector<Place> place;
        std::vector<std::int32_t>
            group;                   // that they are in, so far, and the process in the end; kNone: not told
        std::vector<float> leaning;  // in the split at hand: below 0 left, above 0 right
        std::vector<float> used;     // calls
        std::vector<std::uint64_t> name;  // the same in all stretches; not 0
        KeyMap known_at;                  // by name: place in
        std::vector<std::int32_t> known;  // processes that connections were told to be of
        void resize(std::size_t n);
        void take_names(const std::vector<std::int32_t>& conns, std::span<const std::int64_t> names);
        void tell(std::size_t conn, std::int32_t process, const std::vector<Place>& of_process);
        void forget();
    };
    // A connection that requests came on (ahead) and one that calls are made on (behind).
    struct Pair {
        std::int32_t ahead = 0, behind = 0;
        float more = 0;  // how much more often they met than chance would have it
    };
    struct Votes {
        float own = 0, other = 0;  // calls that only its own half explains, that only the other one does
    };

    // Requests in flight around a call.
    struct Crowd {
        std::vector<int> of;          // by process
        std::int32_t untold = kNone;  // a connection that some came on, and is not told;
        bool several = false;         // whether that is more than one
    };

    void number(const Problem& problem);
    void find(const Candidates& candidates);
    void forget();
    void remember(const Problem& problem);
    void recall();
    Crowd crowd(std::size_t c, const Candidates& candidates) const;
    void tell_others(const Candidates& candidates);
    bool holds(const Candidates& candidates) const;
    std::int32_t split_all(const Candidates& candidates);
    void drop(const Problem& problem, Candidates& candidates) const;
    void tell(Problem& problem);
    bool split(std::int32_t group, const Candidates& candidates);
    bool bonds(std::int32_t groups) const;
    void find_members(std::int32_t group, const Candidates& candidates);
    void meet(const Candidates& candidates);
    void lean();
    void doubt(const Candidates& candidates);
    bool apart(const Candidates& candidates) const;
    // How many of the candidates of a call lean left, right, or are not told.
    struct Around {
        int left = 0, right = 0, unknown = 0;
    };
    Around around(std::size_t member, const Candidates& candidates) const;
    std::int32_t control(std::size_t member) const;

    std::int32_t group_ = 0;
    std::size_t first_ = 0;                // child that is not decided already
    std::vector<std::int32_t> ahead_of_;   // by parent: its connection
    std::vector<std::int32_t> behind_of_;  // by child
    Side ahead_, behind_;
    std::vector<std::int32_t> members_;  // children of the group that is being split
    std::vector<Pair> pairs_;
    KeyMap pair_;
    std::vector<Place> of_process_;
    std::vector<std::int32_t> parent_process_, child_process_;
    int splits_ = 0;
    // Stretches that are not looked at, because nothing was found in the last ones; how many of them were so lately.
    int left_out_ = 0, pause_ = 0;
};

}  // namespace tapscope::match
