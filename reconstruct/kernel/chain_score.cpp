#include "chain_score.hpp"

namespace tapscope::match {

double ChainScore::operator()(std::int32_t p, std::span<const std::int32_t> chain,
                              std::vector<float>* usual) const {
    Tip tip;
    double total = 0;
    float answer = 0;
    const bool judged = length_.judges(p);
    for (const auto c : chain) {
        const auto where = candidates_.find(static_cast<std::size_t>(c), p);
        const float step = model_.step(p, tip, c) + candidates_.content[static_cast<std::size_t>(where)];
        if (usual != nullptr) (*usual)[static_cast<std::size_t>(c)] = step;
        total += step;
        model_.advance(p, tip, c);
        if (judged) answer += length_.part(p, c);
    }
    total += model_.step(p, tip, kEnd);
    return judged ? total + length_.score(p, answer) : total;
}

}  // namespace tapscope::match
