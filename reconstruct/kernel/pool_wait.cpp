#include "pool_wait.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapscope::match {
namespace {

constexpr double kPrior = 20.0;        // starts that say what all loads, or no order, would say
constexpr double kFewWaits = 0.02;     // share of requests that wait, before any is seen
constexpr double kWorthAsking = 0.05;  // share of later calls that wait, from which on each is asked
constexpr float kMost = 8.0f;          // nats that order may say, either way

}  // namespace

void PoolWait::bind(const std::vector<std::int32_t>& before_on_conn) {
    InFlight in_flight(problem_);
    of_server_.resize(std::max(of_server_.size(), static_cast<std::size_t>(problem_.servers)));
    released_.clear();
    log_waiting_.clear();
    for (std::size_t c = 0; c < before_on_conn.size(); ++c) {
        const auto before = before_on_conn[c];
        const Time at = before == kNone ? std::numeric_limits<Time>::min() : problem_.children.end[before];
        released_.push_back(at);
        log_waiting_.push_back(std::log(static_cast<float>(in_flight.at(problem_.process_of_child(c), at))));
    }
}

PoolWait::Ways PoolWait::ways(Call call, std::int32_t p, std::int32_t c, Time since,
                              int load) const noexcept {
    Ways out;
    if (!learned_) return out;
    const auto& server = of_server(c);
    const auto& shares = server.of(call);
    out.work = shares.log_free[load];
    if (!could_wait(c, since)) return out;
    out.wait = shares.log_wait[load] - log_waiting_[c];
    if (call == Call::first) out.wait += StartOrder::kTemper * server.ratio[order_.place(p, c)];
    out.gap = server.density[problem_.gaps.bin(problem_.children.begin[c] - released_[c])];
    return out;
}

float PoolWait::waited(Call call, std::int32_t p, std::int32_t c, Time since, int load,
                       float work) const noexcept {
    if (!could_wait(c, since)) return 0.0f;
    if (!learned_) return guess_;
    const auto both = ways(call, p, c, since, load);
    return 1.0f / (1.0f + std::exp(both.work + work - both.wait - both.gap));
}

void PoolWait::forget(double keep) {
    for (auto& server : of_server_) {
        for (auto* counts :
             {&server.first.waits, &server.first.calls, &server.after.waits, &server.after.calls}) {
            for (double& x : *counts) x *= keep;
        }
        for (auto* counts : {&server.chosen, &server.possible}) {
            for (double& x : *counts) x *= keep;
        }
        for (float& x : server.gaps) x *= static_cast<float>(keep);
    }
}

void PoolWait::observe(Call call, const Candidates& candidates, std::int32_t p, std::int32_t c, int load,
                       float waited) {
    auto& server = of_server_[problem_.server_of_child(static_cast<std::size_t>(c))];
    auto& shares = call == Call::first ? server.first : server.after;
    shares.calls[load] += 1;
    if (waited <= 0) return;
    shares.waits[load] += waited;
    server.gaps[problem_.gaps.bin(problem_.children.begin[c] - released_[c])] += waited;
    if (call == Call::later) return;
    server.chosen[order_.place(p, c)] += waited;
    for (const auto q : candidates.of(static_cast<std::size_t>(c))) {
        if (could_wait(c, problem_.parents.request_end[q])) server.possible[order_.place(q, c)] += waited;
    }
}

double PoolWait::Shares::find() {
    double all = kPrior, waited = kPrior * kFewWaits;
    for (int l = 0; l < kLoads; ++l) all += calls[l], waited += waits[l];
    for (int l = 0; l < kLoads; ++l) {
        const double share = (waits[l] + kPrior * waited / all) / (calls[l] + kPrior);
        log_wait[l] = static_cast<float>(std::log(share));
        log_free[l] = static_cast<float>(std::log1p(-share));
    }
    return waited / all;
}

void PoolWait::finish() {
    later_ = false;
    for (auto& server : of_server_) {
        server.first.find();
        server.later = server.after.find() > kWorthAsking;
        later_ = later_ || server.later;
        server.density = problem_.gaps.log_density(server.gaps);
        double all_chosen = 0, all_possible = 0;
        for (int b = 0; b < StartOrder::kBuckets; ++b) {
            all_chosen += server.chosen[b];
            all_possible += server.possible[b];
        }
        for (int b = 0; b < StartOrder::kBuckets; ++b) {
            const double at_large = (server.possible[b] + 1.0) / (all_possible + StartOrder::kBuckets);
            const double of_pairs = (server.chosen[b] + kPrior * at_large) / (all_chosen + kPrior);
            server.ratio[b] = std::clamp(static_cast<float>(std::log(of_pairs / at_large)), -kMost, kMost);
        }
    }
    learned_ = true;
}

}  // namespace tapscope::match
