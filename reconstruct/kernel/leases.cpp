#include "leases.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapscope::match {
namespace {

constexpr int kRounds = 120;     // of prices, at most
constexpr int kPatience = 6;     // of them without a lower bound, before the steps are halved,
constexpr double kLeast = 0.02;  // down to such a part of the first ones
constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr int kSettle = 50;      // looks for who is lent two connections, at most
constexpr float kMustBe = 1e6f;  // nats against nobody, for a call that has a parent for certain

}  // namespace

void Leases::ask(const Chains& chains) {
    const auto& children = problem_.children;
    const auto size = children.size();
    std::int32_t connections = 0;
    for (const auto conn : children.conn) connections = std::max(connections, conn + 1);
    calls_.assign(static_cast<std::size_t>(connections), {});
    ways_.clear();
    fixed_.assign(size, 0);
    empty_.resize(problem_.parents.size());
    for (std::size_t p = 0; p < empty_.size(); ++p) {
        empty_[p] = model_.step(static_cast<std::int32_t>(p), kStart, kEnd);
    }
    for (std::size_t i = 0; i < size; ++i) {
        const auto c = static_cast<std::int32_t>(i);
        const auto holder = chains.parent_of()[i];
        const bool beside = holder != kNone && model_.fans_out(holder);
        const bool settled = i < problem_.decided() || candidates_.certain(i);
        fixed_[i] = settled || beside;
        auto& calls = calls_[static_cast<std::size_t>(children.conn[i])];
        const auto from = static_cast<std::int32_t>(ways_.size());
        Call call{c, fixed_[i] ? -kMustBe : model_.orphan(c), from, from, kNone};
        if (beside || (settled && holder == kNone)) call.nobody = 0;  // whatever it is worth, it stays there
        const Call* before = calls.empty() ? nullptr : &calls.back();
        auto at = before ? before->from : 0;
        for (auto k = candidates_.offset[i]; !beside && k < candidates_.offset[i + 1]; ++k) {
            const auto p = candidates_.parent[static_cast<std::size_t>(k)];
            if (settled ? p != holder : model_.fans_out(p) || nearness_.apart(p)) continue;
            const float content = candidates_.content[static_cast<std::size_t>(k)];
            Way way;
            way.parent = p;
            way.start = model_.step(p, kStart, c) + content - empty_[static_cast<std::size_t>(p)];
            way.end = model_.step(p, c, kEnd);
            // Both calls have their ways in the order of the candidates.
            while (before && at < before->to && ways_[static_cast<std::size_t>(at)].parent < p) ++at;
            if (before && at < before->to && ways_[static_cast<std::size_t>(at)].parent == p) {
                way.before = at;
                way.stay = model_.step(p, before->child, c) + content;
            }
            ways_.push_back(way);
        }
        call.to = static_cast<std::int32_t>(ways_.size());
        calls.push_back(call);
    }
}

double Leases::score(const std::vector<std::int32_t>& parent_of) const {
    std::vector<Tip> tip(problem_.parents.size());
    double out = 0;
    for (std::size_t i = 0; i < parent_of.size(); ++i) {
        const auto c = static_cast<std::int32_t>(i);
        const auto p = parent_of[i];
        if (p == kNone) {
            if (!fixed_[i]) out += static_cast<double>(model_.orphan(c));
            continue;
        }
        if (model_.fans_out(p)) continue;
        auto& last = tip[static_cast<std::size_t>(p)];
        out += static_cast<double>(model_.step(p, last, c) +
                                   candidates_.content[static_cast<std::size_t>(candidates_.find(i, p))]);
        model_.advance(p, last, c);
    }
    for (std::size_t p = 0; p < tip.size(); ++p) {
        if (tip[p].last == kStart) continue;
        out += static_cast<double>(model_.step(static_cast<std::int32_t>(p), tip[p], kEnd) - empty_[p]);
    }
    return out;
}

double Leases::share(std::vector<Call>& calls) {
    double best = 0;
    for (auto& call : calls) {
        double top = best + static_cast<double>(call.nobody);
        call.last = kNone;
        for (auto w = call.from; w < call.to; ++w) {
            auto& way = ways_[static_cast<std::size_t>(w)];
            way.value = kNever;
            if (way.barred) continue;
            const double start =
                best + static_cast<double>(way.start) - price_[static_cast<std::size_t>(way.parent)];
            const double stay = way.before == kNone ? kNever
                                                    : ways_[static_cast<std::size_t>(way.before)].value +
                                                          static_cast<double>(way.stay);
            way.starts = start >= stay;
            way.value = std::max(start, stay);
            const double here = way.value + static_cast<double>(way.end);
            if (here > top) top = here, call.last = w;
        }
        best = top;
    }
    return best;
}

void Leases::read(const std::vector<Call>& calls) {
    auto at = kNone;
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
        const auto c = static_cast<std::size_t>(call->child);
        if (at == kNone) at = call->last;
        begins_[c] = 0;
        found_[c] = kNone;
        if (at == kNone) continue;
        const auto& way = ways_[static_cast<std::size_t>(at)];
        found_[c] = way.parent;
        begins_[c] = way.starts;
        at = way.starts ? kNone : way.before;
    }
}

std::vector<std::int32_t> Leases::lent() const {
    std::vector<std::int32_t> out(problem_.parents.size(), 0);
    for (std::size_t c = 0; c < found_.size(); ++c) {
        if (begins_[c]) ++out[static_cast<std::size_t>(found_[c])];
    }
    return out;
}

void Leases::raise_prices(double worth) {
    price_.assign(problem_.parents.size(), 0.0);
    bound_ = std::numeric_limits<double>::infinity();
    auto best = price_;
    double pace = 1;
    int waited = 0;
    for (int round = 0; round < kRounds; ++round) {
        stop_.poll();
        double here = 0;
        for (const double price : price_) here += price;
        for (auto& calls : calls_) {
            here += share(calls);
            read(calls);
        }
        if (here < bound_) {
            bound_ = here;
            best = price_;
            waited = 0;
        } else if (++waited == kPatience) {
            pace /= 2;
            waited = 0;
        }
        if (bound_ - before_ <= worth || pace < kLeast) break;
        const auto lent_to = lent();
        double far = 0;
        for (std::size_t p = 0; p < price_.size(); ++p) {
            const double over = lent_to[p] - 1;
            if (over > 0 || price_[p] > 0) far += over * over;
        }
        if (far == 0) break;  // nobody is lent two, and nobody who is lent none has a price
        const double step = pace * (here - before_) / far;
        for (std::size_t p = 0; p < price_.size(); ++p) {
            price_[p] = std::max(0.0, price_[p] + step * (lent_to[p] - 1));
        }
    }
    price_ = best;
    for (auto& calls : calls_) {
        share(calls);
        read(calls);
    }
}

void Leases::bar(const std::vector<Call>& calls, std::int32_t p, bool barred) {
    for (const auto& call : calls) {
        for (auto w = call.from; w < call.to; ++w) {
            auto& way = ways_[static_cast<std::size_t>(w)];
            if (way.parent == p) way.barred = barred;
        }
    }
}

// Who is lent two connections all the same keeps the one that would lose more without it.
void Leases::settle() {
    const auto& conn = problem_.children.conn;
    std::size_t left = static_cast<std::size_t>(kRounds) * calls_.size();
    for (int look = 0; look < kSettle; ++look) {
        std::vector<std::vector<std::size_t>> of(problem_.parents.size());
        for (std::size_t c = 0; c < found_.size(); ++c) {
            if (begins_[c])
                of[static_cast<std::size_t>(found_[c])].push_back(static_cast<std::size_t>(conn[c]));
        }
        bool any = false;
        for (std::size_t i = 0; i < of.size(); ++i) {
            stop_.poll();
            auto& lent_to = of[i];
            std::sort(lent_to.begin(), lent_to.end());
            lent_to.erase(std::unique(lent_to.begin(), lent_to.end()), lent_to.end());
            if (lent_to.size() < 2 || left < 3 * lent_to.size()) continue;
            any = true;
            left -= 3 * lent_to.size();
            const auto p = static_cast<std::int32_t>(i);
            double most = kNever;
            auto keeps = lent_to.front();
            for (const auto each : lent_to) {
                const double with = share(calls_[each]);
                bar(calls_[each], p, true);
                const double loss = with - share(calls_[each]);
                if (loss > most) most = loss, keeps = each;
            }
            bar(calls_[keeps], p, false);
            for (const auto each : lent_to) {
                share(calls_[each]);
                read(calls_[each]);
            }
        }
        if (!any) return;
    }
}

void Leases::run(Chains& chains, double worth) {
    const auto known = chains.parent_of();
    found_.assign(known.size(), kNone);
    begins_.assign(known.size(), 0);
    ask(chains);
    before_ = behind_ = score(known);
    worth *= static_cast<double>(known.size());
    raise_prices(worth);
    const bool worth_it = bound_ - before_ > worth;
    if (worth_it) settle();
    std::vector<Way>().swap(
        ways_);  // 32 bytes for each candidate of each call: not kept until the next stretch
    if (!worth_it) return;
    auto out = known;
    for (std::size_t c = 0; c < out.size(); ++c) {
        if (!fixed_[c]) out[c] = found_[c];
    }
    behind_ = score(out);
    chains.restore(out);
}

}  // namespace tapscope::match
