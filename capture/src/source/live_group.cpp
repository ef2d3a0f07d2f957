#include "source/live_group.hpp"

#include <poll.h>

#include <algorithm>

namespace tapscope {

void LiveGroup::fill(std::vector<Packet>& batch) {
    constexpr int wait_ms = 100;
    batch.clear();
    std::vector<pollfd> ready;
    for (const auto& input : inputs_) ready.push_back({input->descriptor(), POLLIN, 0});
    poll(ready.data(), ready.size(), wait_ms);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        if (ready[i].revents == 0) continue;
        inputs_[i]->fill(round_);
        for (Packet& packet : round_) packet.source = static_cast<std::uint16_t>(i);
        batch.insert(batch.end(), round_.begin(), round_.end());
    }
    std::stable_sort(batch.begin(), batch.end(),
                     [](const Packet& a, const Packet& b) { return a.time_ns < b.time_ns; });
}

std::uint64_t LiveGroup::bytes_done() const noexcept {
    std::uint64_t bytes = 0;
    for (const auto& input : inputs_) bytes += input->bytes_done();
    return bytes;
}

std::vector<const SourceReport*> LiveGroup::reports() const {
    std::vector<const SourceReport*> out;
    for (const auto& input : inputs_) out.push_back(&input->report());
    return out;
}

}  // namespace tapscope
