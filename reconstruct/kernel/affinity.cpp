#include "affinity.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tapscope::match {
namespace {

constexpr std::size_t kEnough = 400;  // calls of a class that are asked
constexpr int kMostRounds = 300;
constexpr double kConverged = 1e-5;  // nats that a round gains for each call

// The calls of one class that are asked, each with what speaks for its candidates, by their class.
struct Asked {
    struct Share {
        std::int32_t a;
        double weight;
    };
    std::vector<std::size_t> offset{0};
    std::vector<Share> shares;
};

void ask(const Problem& problem, const Candidates& candidates, std::size_t c, std::vector<double>& of_class,
         Asked& out) {
    const auto first = candidates.offset[c], last = candidates.offset[c + 1];
    if (first == last) return;
    const auto begin = candidates.content.begin();
    const float best = *std::max_element(begin + first, begin + last);
    const auto from = static_cast<std::ptrdiff_t>(out.shares.size());
    for (auto i = first; i < last; ++i) {
        const auto a = problem.parents.cls[static_cast<std::size_t>(candidates.parent[i])];
        if (of_class[static_cast<std::size_t>(a)] == 0) out.shares.push_back({a, 0});
        of_class[static_cast<std::size_t>(a)] += std::exp(static_cast<double>(candidates.content[i] - best));
    }
    for (auto share = out.shares.begin() + from; share != out.shares.end(); ++share) {
        share->weight = std::exchange(of_class[static_cast<std::size_t>(share->a)], 0.0);
    }
    out.offset.push_back(out.shares.size());
}

}  // namespace

void sharpen(Affinity& affinity, const Problem& problem, const Candidates& candidates, const Stop& stop) {
    const auto classes = static_cast<std::size_t>(affinity.n_parent);
    std::vector<double> requests(classes, 0.0), of_class(classes, 0.0), here(classes), expected(classes);
    for (const auto a : problem.parents.cls) requests[static_cast<std::size_t>(a)] += 1;
    std::vector<std::vector<std::size_t>> calls(static_cast<std::size_t>(affinity.n_child));
    for (std::size_t c = problem.decided(); c < problem.children.size(); ++c) {
        calls[static_cast<std::size_t>(problem.children.cls[c])].push_back(c);
    }
    for (std::int32_t k = 0; k < affinity.n_child; ++k) {
        const auto& all = calls[static_cast<std::size_t>(k)];
        Asked asked;
        const auto stride = std::max<std::size_t>(all.size() / kEnough, 1);
        for (std::size_t i = 0; i < all.size(); i += stride) {
            ask(problem, candidates, all[i], of_class, asked);
        }
        const auto count = asked.offset.size() - 1;
        if (count == 0) continue;
        const double each = static_cast<double>(all.size()) / static_cast<double>(count);
        for (std::size_t a = 0; a < classes; ++a) here[a] = affinity(static_cast<std::int32_t>(a), k);
        double before = 0;
        for (int round = 0; round < kMostRounds; ++round) {
            stop.poll();
            std::fill(expected.begin(), expected.end(), 0.0);
            double likelihood = 0;
            for (std::size_t i = 0; i < count; ++i) {
                double total = 0;
                for (auto s = asked.offset[i]; s < asked.offset[i + 1]; ++s) {
                    total += here[static_cast<std::size_t>(asked.shares[s].a)] * asked.shares[s].weight;
                }
                likelihood += std::log(total);
                for (auto s = asked.offset[i]; s < asked.offset[i + 1]; ++s) {
                    const auto a = static_cast<std::size_t>(asked.shares[s].a);
                    expected[a] += here[a] * asked.shares[s].weight / total;
                }
            }
            for (std::size_t a = 0; a < classes; ++a) {
                here[a] = (each * expected[a] + 1e-4) / (requests[a] + 1);
            }
            if (round > 0 && likelihood - before < kConverged * static_cast<double>(count)) break;
            before = likelihood;
        }
        for (std::size_t a = 0; a < classes; ++a) {
            affinity.weight[affinity.at(static_cast<std::int32_t>(a), k)] = here[a];
        }
    }
}

}  // namespace tapscope::match
