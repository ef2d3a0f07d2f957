// Several live inputs as one: packets of a round are put in order of time.
#pragma once

#include <memory>
#include <vector>

#include "source/live_input.hpp"

namespace tapscope {

// Between rounds packets of different interfaces may still be out of order, by as long as the kernel keeps a block of
// its ring (100 ms at most); reassembly waits longer than that for what is missing.
class LiveGroup final : public LiveInput {
public:
    // At least one.
    explicit LiveGroup(std::vector<std::unique_ptr<LiveInput>> inputs) : inputs_(std::move(inputs)) {}

    void fill(std::vector<Packet>& batch) override;
    void taken(std::span<const Packet> packets) override {
        for (const Packet& packet : packets) inputs_[packet.source]->taken({&packet, 1});
    }
    void update_counters() override {
        for (const auto& input : inputs_) input->update_counters();
    }
    int descriptor() const noexcept override { return -1; }
    std::uint64_t bytes_done() const noexcept override;
    std::vector<const SourceReport*> reports() const override;

private:
    std::vector<std::unique_ptr<LiveInput>> inputs_;
    std::vector<Packet> round_;
};

}  // namespace tapscope
