#include "log_sum.hpp"

namespace tapscope::match {

const std::array<float, kLogSums> kLogOfMore = [] {
    std::array<float, kLogSums> out{};
    for (std::size_t i = 0; i < kLogSums; ++i) {
        out[i] = static_cast<float>(std::log1p(std::exp(-static_cast<double>(i) / kPerNat)));
    }
    return out;
}();

}  // namespace tapscope::match
