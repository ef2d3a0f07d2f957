// Opens capture files by content, and merges several in time order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "counters.hpp"
#include "source/packet.hpp"

namespace tapscope {

// Throws SourceError for what is not a capture.
std::unique_ptr<Source> open_file(const std::string& path, std::uint16_t index, Counters& counters);

// Throws SourceError when a source had packets but every interface of it is of an unknown link type.
void check_link_types(const SourceReport& report);

// Packets of several sources by time; packets of one source keep their order. A batch ends when any source has to
// read on, because that moves its buffer.
//
// Captures are not sorted to the packet: queues of a network card are read in turn. A packet that stands before an
// earlier one of its source is taken at the earlier one's time if that is at most `reorder_ns` back and in the same
// batch of the source; so a packet out of its place by that much does not hold up the ones behind it while another
// source runs ahead. What comes more than `reorder_ns` after a later packet is counted.
class MergedSources {
public:
    static constexpr std::int64_t kReorder_ns = 10'000'000;
    MergedSources(std::vector<std::unique_ptr<Source>> sources, Counters& counters,
                  std::int64_t reorder_ns = kReorder_ns);
    void fill(std::vector<Packet>& batch);
    // Sources that are pipes are not waited for: an empty batch is the end only if not waiting().
    void do_not_wait() noexcept;
    bool waiting() const noexcept;
    std::uint64_t bytes_done() const noexcept;
    std::uint64_t bytes_total() const noexcept;
    const std::vector<std::unique_ptr<Source>>& sources() const noexcept { return sources_; }

private:
    struct Lane {
        std::vector<Packet> packets;
        std::vector<std::int64_t>
            turn_ns;  // when each packet is due: its time, or that of an earlier one behind it
        std::size_t at = 0;
        bool ended = false;
    };
    void count_late(const std::vector<Packet>& batch) noexcept;
    void take_turns(Lane& lane) const;

    std::vector<std::unique_ptr<Source>> sources_;
    std::vector<Lane> lanes_;
    Counters& counters_;
    std::int64_t reorder_ns_;
    std::int64_t newest_ns_ = INT64_MIN;
};

}  // namespace tapscope
