// Ejection chains: rings of exchanges that no pair of parents would begin.
//
// Where connections are held and requests wait for them, chains may be wrong in long rings: each has the head of one and
// the tail of another, cut at different times, so that every exchange between two of them loses, and so does passing
// whole chains on. So a parent takes what suits it best from another one, whatever that costs the other, which then does
// the same with a third, and so on (Glover 1996), until all who took part are better off together. If they are not, those
// who took part exchange what gains among them and their neighbours; if that does not help, everything is put back.
// A parent that has given a run of calls away has room for others, which were out of its reach while it was busy: whoever
// has them is asked, too.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "chain_score.hpp"
#include "chains.hpp"
#include "model.hpp"
#include "nearness.hpp"
#include "pair.hpp"
#include "problem.hpp"
#include "stop.hpp"

namespace tapscope::match {

class Ejection {
public:
    // Keeps references.
    Ejection(const Problem& problem, const Candidates& candidates, const Model& model,
             const AnswerLength& length, Nearness& nearness, PairSplit& split, const Stop& stop)
        : problem_(problem),
          candidates_(candidates),
          model_(model),
          score_(problem, candidates, model, length),
          nearness_(nearness),
          split_(split),
          stop_(stop) {}

    // From every parent that could exchange children with one within `reach` nats (see Nearness). All chains together
    // score no worse behind it. Asks each pair a few times, on average: what is left then is not tried.
    void run(Chains& chains, float reach);

private:
    struct Way {
        float gain = 0;
        std::int32_t to = kNone;
    };
    // Runs a ring that begins with an exchange between these two; whether it gained.
    bool ring(Chains& chains, std::int32_t start, std::int32_t second);
    // The neighbours from which p would take something, the best ones first, `from` left out.
    const std::vector<Way>& ways(const Chains& chains, std::int32_t p, std::int32_t from);
    // The best split of a pair, by what suits p or (not `favoured`) both; whether anything changed.
    bool exchange(Chains& chains, std::int32_t p, std::int32_t q, bool favoured);
    void settle(Chains& chains);
    void find_neighbours(const Chains& chains, float reach);
    // Neighbours of p, and who has calls that p could make now that its chain is another one: into asked_, ascending.
    void find_asked(const Chains& chains, std::int32_t p);
    // What the steps of p are worth before the ring, into usual_, where that is not known yet.
    void weigh(const Chains& chains, std::int32_t p);

    const Problem& problem_;
    const Candidates& candidates_;
    const Model& model_;
    ChainScore score_;
    Nearness& nearness_;
    PairSplit& split_;
    const Stop& stop_;
    float reach_ = 0;
    std::vector<std::int64_t> offset_;  // CSR of neighbours by parent
    std::vector<std::int32_t> neighbour_;
    std::vector<std::int32_t> asked_;    // by the parent at hand
    std::vector<float> usual_;           // by child: what its step was worth before the ring,
    std::vector<std::uint8_t> weighed_;  // and whose steps that is known of
    std::size_t splits_left_ = 0;        // that may be asked for, so that the time is bounded
    std::vector<Way> ways_;
    std::vector<std::pair<std::int32_t, std::vector<std::int32_t>>> before_;  // chains of who takes part
    double gain_ = 0;                                                         // of all who take part, so far
};

}  // namespace tapscope::match
