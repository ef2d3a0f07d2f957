// Connections that belong together: learned where a middleware keeps one behind each that it was asked for, and not
// where a pool lends any of them.
#include "bound.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "expect.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

constexpr std::int32_t kConnections = 6;
constexpr std::int32_t kRequests = 1200;

// Requests come on connections by turns, and each makes one call; its neighbours might have made it. `behind(i)` is the
// connection of the call of request i; every 25th call is given to the wrong request.
struct Node {
    std::vector<std::int64_t> ahead, conn_name;
    std::vector<std::int32_t> conn, parent_of;
    Candidates candidates;
    Problem problem;
    template <class Behind>
    explicit Node(Behind behind) {
        candidates.offset = {0};
        for (std::int32_t i = 0; i < kRequests; ++i) {
            ahead.push_back(100 + i % kConnections);
            conn.push_back(behind(i));
            conn_name.push_back(700 + conn.back());
            parent_of.push_back(i % 25 == 24 ? i - 1 : i);
            for (const auto p : {i - 1, i, i + 1}) {
                if (p >= 0 && p < kRequests) candidates.parent.push_back(p);
            }
            candidates.offset.push_back(static_cast<std::int64_t>(candidates.parent.size()));
        }
        candidates.content.assign(candidates.parent.size(), 0.0f);
        problem.parents.conn = ahead;
        problem.children.conn = conn;
        problem.children.conn_name = conn_name;
        problem.parents.cls = problem.children.cls = conn;  // for their number
    }
    // What connections say for the request itself, less what they say for the others; the least of the children [from,
    // until), or the most either way.
    float least(std::int32_t from, std::int32_t until) const {
        float out = 1e9f;
        for (auto c = from; c < until; ++c) {
            const auto own =
                candidates.content[static_cast<std::size_t>(candidates.find(static_cast<std::size_t>(c), c))];
            for (auto i = candidates.offset[c]; i < candidates.offset[c + 1]; ++i) {
                if (candidates.parent[i] != c) out = std::min(out, own - candidates.content[i]);
            }
        }
        return out;
    }
    float most() const {
        float out = 0;
        for (const float x : candidates.content) out = std::max(out, std::abs(x));
        return out;
    }
};

}  // namespace

int main() {
    {
        Node node([](std::int32_t i) { return (i * 5) % kConnections; });  // one behind each
        Bound bound(node.problem, node.candidates);
        bound.bind();
        bound.score();
        expect(node.most() == 0, "before anything is learned connections say nothing");
        bound.estimate(node.parent_of, 0);
        bound.score();
        expect(node.least(0, kRequests) > 2, "a call belongs to who came on the connection before its own");
        // Another stretch of the same connections: what was learned stays, before anything is assigned.
        std::fill(node.candidates.content.begin(), node.candidates.content.end(), 0.0f);
        bound.bind();
        bound.score();
        expect(node.least(0, kRequests) > 2, "also of later calls");
        // Connections that were never seen say nothing.
        for (auto& name : node.conn_name) name += 1000;
        for (auto& name : node.ahead) name += 1000;
        std::fill(node.candidates.content.begin(), node.candidates.content.end(), 0.0f);
        bound.bind();
        bound.score();
        expect(std::abs(node.least(0, kRequests)) < 0.01f, "new connections say nothing");
    }
    {
        std::uint32_t state = 1;
        Node node([&](std::int32_t) {  // a pool lends any
            state = state * 1664525u + 1013904223u;
            return static_cast<std::int32_t>((state >> 16) % kConnections);
        });
        Bound bound(node.problem, node.candidates);
        bound.bind();
        bound.estimate(node.parent_of, 0);
        bound.score();
        expect(node.most() == 0, "a pool names nobody");
    }
    {
        Node node([](std::int32_t i) { return i; });  // each request opens its own
        Bound bound(node.problem, node.candidates);
        bound.bind();
        bound.estimate(node.parent_of, 0);
        bound.score();
        expect(node.most() == 0, "a connection that was used once names nobody");
    }
    std::printf("bound: %d differences\n", failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
