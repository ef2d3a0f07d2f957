// Whose all leases of all connections are, at once.
//
// Where a request keeps the connection that a pool has lent it, the calls of a connection are leases, one behind the
// other: each is a request's from its first call to its last. Where requests wait for these, many chains may be wrong at
// once, each with the end of another one's lease, or with two leases: the way out leads through dozens of requests, and no
// pair or ring begins it. But what a lease is worth depends on its own request only. So the best leases of one connection
// are found by a dynamic programme over its calls, and all that couples connections is that nobody is lent two. Who is
// asks a price, which rises until one of them does better with somebody else (Lagrangian relaxation, with the steps of
// Held and Karp 1971). Whatever the prices, the best leases at these and the prices themselves are a bound that no
// assignment in leases exceeds: where the one at hand comes near, there is nothing to find, and that is known.
#pragma once

#include <cstdint>
#include <vector>

#include "chains.hpp"
#include "model.hpp"
#include "nearness.hpp"
#include "problem.hpp"
#include "stop.hpp"

namespace tapscope::match {

class Leases {
public:
    // Keeps references.
    Leases(const Problem& problem, const Candidates& candidates, const Model& model, const Nearness& nearness,
           const Stop& stop)
        : problem_(problem), candidates_(candidates), model_(model), nearness_(nearness), stop_(stop) {}

    // Shares all calls out anew, but those that are decided, certain, or of who fans out. Chains are left as they are
    // where others could gain `worth` nats for each call at most.
    void run(Chains& chains, double worth);

    // Of the last run: nats of the chains that it found, as they were and as they are, and what none exceeds. Lengths of
    // answers are not in them, nor requests without calls.
    double before() const noexcept { return before_; }
    double behind() const noexcept { return behind_; }
    double bound() const noexcept { return bound_; }

private:
    // A call, as one of those who could have made it would go on with it.
    struct Way {
        std::int32_t parent = kNone;
        std::int32_t before = kNone;  // his way with the call before it on its connection
        float start = 0, stay = 0,
              end = 0;        // nats, if it is his first call, if it is not, and if it is his last
        bool starts = false;  // as the first one, all in all
        bool barred = false;
        double value = 0;  // of all leases up to here, where he goes on so
    };
    struct Call {
        std::int32_t child = 0;
        float nobody = 0;               // nats, where it is nobody's
        std::int32_t from = 0, to = 0;  // its ways
        std::int32_t last = kNone;      // with which a lease had better end here; kNone: it is nobody's
    };

    // Calls and ways, in the order of each connection.
    void ask(const Chains& chains);
    // Of an assignment that need not be one in leases, as before() and behind() count.
    double score(const std::vector<std::int32_t>& parent_of) const;
    // The best leases of a connection at these prices, and what they are worth.
    double share(std::vector<Call>& calls);
    // Whose calls these are by the last share() of the connection: into found_ and begins_.
    void read(const std::vector<Call>& calls);
    // How often each parent is lent a connection.
    std::vector<std::int32_t> lent() const;
    // Until nobody is lent two, or the bound is within `worth` nats of the chains as they were.
    void raise_prices(double worth);
    // Who is lent two all the same gives all but one of them up, as long as there is time for it.
    void settle();
    void bar(const std::vector<Call>& calls, std::int32_t p, bool barred);

    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    const Nearness& nearness_;
    const Stop& stop_;
    std::vector<std::vector<Call>> calls_;  // by connection
    std::vector<Way> ways_;
    std::vector<float> empty_;          // by parent: nats, if it makes no call
    std::vector<double> price_;         // by parent
    std::vector<std::int32_t> found_;   // by child: its parent,
    std::vector<std::uint8_t> begins_;  // and whether a lease begins with it
    std::vector<std::uint8_t> fixed_;   // by child: it stays where it is
    double before_ = 0, behind_ = 0, bound_ = 0;
};

}  // namespace tapscope::match
