// Which of the idle connections does a call go out on, that does not keep the one of the call before?
//
// A pool lends the one that was used last (a stack), the one that has not been used for longest (a queue), or any. Where
// a stack lends one for each call, nearly all calls are found on the connection that was used last, whoever made them:
// then it says nothing for the request that used it last, which else would seem to have kept it. So it is with a queue.
// Both are told from times alone, before anything is assigned. Where requests hold their connections, those that are not
// used at a time look idle, too, calls are found anywhere among them, and any is taken to be as likely as another.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "habit.hpp"
#include "problem.hpp"

namespace tapscope::match {

class Pick {
public:
    // The rows have been replaced. `before_on_conn`: previous child on the same connection, or kNone.
    void bind(const Problem& problem, const std::vector<std::int32_t>& before_on_conn);

    // Whether what is lent of the connections to a server is nearly always the first or the last in the order of their
    // last uses.
    bool strict(std::size_t server) const noexcept {
        return server < of_server_.size() && of_server_[server].strict;
    }

    // Logarithm of the chance that the pool lends the connection of child c, of those that were idle; `any`, where it
    // lends any of them, or c's was none of these.
    float log_chance(std::int32_t c, float any) const noexcept;

private:
    static constexpr int kSteps = 5;  // 0, 1, 2-3, 4-7, 8 and more places from either end
    static constexpr int kBuckets = 2 * kSteps;
    static constexpr int kGroups = 5;  // 2, 3-4, 5-8, 9-16, 17 and more idle connections
    using Places = Habit<kBuckets>;
    struct Place {
        std::int32_t from_last = kNone;  // connections used later; kNone: not idle, or new
        std::int32_t idle = 0;           // itself included
        std::uint32_t server = 0;
        bool told() const noexcept { return from_last != kNone && idle > 1; }
    };
    static std::size_t group(std::int32_t idle) noexcept;
    static std::size_t bucket(const Place& place) noexcept;
    // How many of so many idle connections are in each bucket.
    static std::array<int, kBuckets> sizes(std::int32_t idle) noexcept;
    void find_places(const Problem& problem, const std::vector<std::int32_t>& before_on_conn);

    std::vector<Place> place_;  // by child
    struct OfServer {
        std::array<Places, kGroups> taken{};  // of all calls
        std::array<Places::Ratios, kGroups> ratio{};
        bool strict = false;
    };
    std::vector<OfServer> of_server_;
};

}  // namespace tapscope::match
