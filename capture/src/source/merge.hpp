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
class MergedSources {
public:
    explicit MergedSources(std::vector<std::unique_ptr<Source>> sources);
    void fill(std::vector<Packet>& batch);
    std::uint64_t bytes_done() const noexcept;
    std::uint64_t bytes_total() const noexcept;
    const std::vector<std::unique_ptr<Source>>& sources() const noexcept { return sources_; }

private:
    struct Lane {
        std::vector<Packet> packets;
        std::size_t at = 0;
        bool ended = false;
    };
    std::vector<std::unique_ptr<Source>> sources_;
    std::vector<Lane> lanes_;
};

}  // namespace tapscope
