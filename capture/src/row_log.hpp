// Which packet gave which rows: lets tables that several engines filled, each from its own flows of the same packets, be
// put together in the order that one engine would have given them (merge_tables.hpp).
//
// What an engine does has a place in that order: the number of the packet; then what was due at that packet
// (connections that waited, by the number of their first packet) before what the packet itself brought.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace tapscope {

class RowLog {
public:
    // Place of a step in the order; `due` 0 for what the packet itself brought, which comes last.
    struct Place {
        std::uint64_t packet = 0, due = 0;
        bool operator<(const Place& o) const noexcept {
            return packet != o.packet ? packet < o.packet : due - 1 < o.due - 1;
        }
    };
    struct Sizes {
        std::size_t messages = 0, evidence = 0, connections = 0;
    };
    // Rows of one step: eight bytes, since nearly every packet with payload has one.
    struct Step {
        std::uint32_t ahead;  // twice the packets since the last step, plus one for something due
        std::uint16_t messages;
        std::uint16_t others;  // evidence, and kConnection
        static constexpr std::uint16_t kConnection = 0x8000;
        unsigned evidence() const noexcept { return others & (kConnection - 1u); }
        bool connection() const noexcept { return (others & kConnection) != 0; }
    };
    // Grows without moving what is there.
    class Steps {
    public:
        static constexpr std::size_t kChunk = 8192;
        void push_back(Step step) {
            if (size_ % kChunk == 0) chunks_.push_back(std::make_unique_for_overwrite<Step[]>(kChunk));
            chunks_.back()[size_++ % kChunk] = step;
        }
        const Step& operator[](std::size_t i) const noexcept { return chunks_[i / kChunk][i % kChunk]; }
        std::size_t size() const noexcept { return size_; }

    private:
        std::vector<std::unique_ptr<Step[]>> chunks_;
        std::size_t size_ = 0;
    };
    struct Fresh {  // a class or an address
        Place place;
    };
    // Where the steps behind a batch of packets begin.
    struct Border {
        std::size_t step = 0, due = 0;
        std::uint64_t packet = 0;
        Sizes rows;
    };

    bool changed(const Sizes& now, std::size_t classes, std::size_t addresses) const noexcept {
        return now.messages + now.evidence + now.connections !=
                   rows_.messages + rows_.evidence + rows_.connections ||
               classes + addresses != classes_.size() + addresses_.size();
    }
    void note(Place place, const Sizes& now, std::size_t classes, std::size_t addresses) {
        for (; classes_.size() < classes;) classes_.push_back({place});
        for (; addresses_.size() < addresses;) addresses_.push_back({place});
        Sizes fresh{now.messages - rows_.messages, now.evidence - rows_.evidence,
                    now.connections - rows_.connections};
        rows_ = now;
        while (fresh.messages + fresh.evidence + fresh.connections > 0) {
            constexpr std::size_t most = 0x7fff;
            const std::uint64_t packets = place.packet - packet_;
            if (packets > std::numeric_limits<std::uint32_t>::max() / 2) [[unlikely]] {
                packet_ += 0x4000'0000;
                steps_.push_back({0x8000'0000, 0, 0});
                continue;
            }
            packet_ = place.packet;
            const std::size_t messages = fresh.messages < most ? fresh.messages : most;
            const std::size_t evidence = fresh.evidence < most ? fresh.evidence : most;
            const bool connection = fresh.connections > 0;
            steps_.push_back({static_cast<std::uint32_t>(packets * 2 + (place.due != 0)),
                              static_cast<std::uint16_t>(messages),
                              static_cast<std::uint16_t>(evidence | (connection ? Step::kConnection : 0u))});
            if (place.due != 0) due_.push_back(place.due);
            fresh.messages -= messages;
            fresh.evidence -= evidence;
            fresh.connections -= connection;
        }
    }
    // All packets so far belong to batches that are over.
    void end_batch() { borders_.push_back({steps_.size(), due_.size(), packet_, rows_}); }

    const Steps& steps() const noexcept { return steps_; }
    const std::vector<std::uint64_t>& due() const noexcept { return due_; }
    const std::vector<Border>& borders() const noexcept { return borders_; }
    const std::vector<Fresh>& classes() const noexcept { return classes_; }
    const std::vector<Fresh>& addresses() const noexcept { return addresses_; }
    const Sizes& rows() const noexcept { return rows_; }
    void free_steps() noexcept {
        steps_ = {};
        due_ = {};
    }

private:
    Steps steps_;
    std::vector<std::uint64_t> due_;  // of the steps that have one
    std::vector<Border> borders_;
    std::vector<Fresh> classes_, addresses_;
    Sizes rows_;
    std::uint64_t packet_ = 0;
};

}  // namespace tapscope
