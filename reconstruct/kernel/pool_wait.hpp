// Requests that wait for a connection before they can make a call.
//
// A first call, and one that is not on the connection of the call before, is taken to have come about in one of two ways:
//   free     a connection was there. The time since the request came, or since its call before was over, is the node's
//            own work (model.hpp has its density).
//   waited   the request stood in the queue for one until the call before on this connection was over. Then it is the
//            time since that end that has a density, whatever request was next; which one was is told by how many
//            wait, and, for first calls, by the places of request and call in the orders of arrival and of first calls:
//            where those who wait are served first come, first served, the two are equal.
// A request that came, or went on, after that end did not wait for it. Which share of the requests waits is learned, by
// load, and so are the time of passing on and the habit of the queue, by EM beside the other densities: each pair of an
// assignment counts for either way as far as it is likely to have been that one, so that waits do not spoil the times of
// work.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "gaps.hpp"
#include "order.hpp"
#include "problem.hpp"

namespace tapscope::match {

class PoolWait {
public:
    PoolWait(const Problem& problem, const StartOrder& order) : problem_(problem), order_(order) {}

    // Of a model that has learned nothing yet: half of the requests that may have waited did.
    void expect() noexcept { guess_ = kHalf; }

    // The rows have been replaced. `before_on_conn`: previous child on the same connection, or kNone.
    void bind(const std::vector<std::int32_t>& before_on_conn);

    enum class Call : std::uint8_t { first, later };

    // How c became a child of p, which came, or was done with its call before, `since` then, at this load: log scores
    // without the density of the node's work.
    struct Ways {
        float work = 0;  // share of those that found a connection free
        float wait =
            -std::numeric_limits<float>::infinity();  // share of those that waited, and that p was next
        float gap = 0;                                // density of the time of passing on
    };
    Ways ways(Call call, std::int32_t p, std::int32_t c, Time since, int load) const noexcept;

    // Of a later call to a server, at this load, having found a connection free.
    float log_free(std::size_t server, int load) const noexcept {
        return of_server_[server].after.log_free[static_cast<std::size_t>(load)];
    }

    // Probability that p waited for the connection of c, when `work` is what speaks for its own work.
    float waited(Call call, std::int32_t p, std::int32_t c, Time since, int load, float work) const noexcept;

    // Whether later calls, to this server or to any, wait often enough to ask for it.
    bool later(std::size_t server) const noexcept { return of_server_[server].later; }
    bool later() const noexcept { return later_; }

    // Counts the pair, which waited with this probability. forget() comes first, finish() last.
    void forget(double keep);
    void observe(Call call, const Candidates& candidates, std::int32_t p, std::int32_t c, int load,
                 float waited);
    void finish();

private:
    using Row = std::array<double, StartOrder::kBuckets>;

    bool could_wait(std::int32_t c, Time since) const noexcept {
        return released_[c] > since && released_[c] <= problem_.children.begin[c];
    }

    const Problem& problem_;
    const StartOrder& order_;
    // That a request waited that may have, before anything is learned. Little: where no pool runs dry, half would keep
    // gaps of work from being learned for several rounds, in which chains settle.
    static constexpr float kFew = 0.1f, kHalf = 0.5f;
    float guess_ = kFew;
    bool learned_ = false;
    std::vector<Time> released_;      // by child: when its connection was last used; the first time if never
    std::vector<float> log_waiting_;  // by child: requests in flight at that moment
    bool later_ = false;
    struct Shares {
        std::array<double, kLoads> waits{}, calls{};
        std::array<float, kLoads> log_wait{}, log_free{};
        double find();  // the share at large
    };
    // What is known of the connections to one server.
    struct OfServer {
        Shares first, after;
        bool later = false;
        Row chosen{}, possible{};
        Histogram gaps{}, density{};
        std::array<float, StartOrder::kBuckets> ratio{};
        const Shares& of(Call call) const noexcept { return call == Call::first ? first : after; }
    };
    const OfServer& of_server(std::int32_t c) const noexcept {
        return of_server_[problem_.server_of_child(static_cast<std::size_t>(c))];
    }
    std::vector<OfServer> of_server_;
};

}  // namespace tapscope::match
