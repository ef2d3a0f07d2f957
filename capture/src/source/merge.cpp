#include "source/merge.hpp"

#include <algorithm>

#include "bytes.hpp"
#include "source/pcap_file.hpp"
#include "source/pcapng_file.hpp"

namespace tapscope {

std::unique_ptr<Source> open_file(const std::string& path, std::uint16_t index, Counters& counters) {
    auto stream = std::make_unique<ByteStream>(path);
    if (!stream->ensure(4)) {
        if (stream->decode_error() != nullptr)
            throw SourceError(stream->decode_error(), stream->path(), 0,
                              "Name a pcap or pcapng file (also gzip, zstd or xz).");
        // Of packed data nothing may come out before a whole block of them is there.
        const bool empty = stream->size() == 0 && stream->compression().empty();
        throw SourceError(empty ? "the file is empty" : "the file ends before a capture header",
                          stream->path(), 0, "Name a pcap or pcapng file (also gzip, zstd or xz).");
    }
    if (PcapFile::is_magic(stream->data()))
        return std::make_unique<PcapFile>(std::move(stream), index, counters);
    if (load_le32(stream->data()) == 0x0A0D0D0A)
        return std::make_unique<PcapngFile>(std::move(stream), index, counters);
    throw SourceError("this is not a capture file", stream->path(), 0,
                      "Name a pcap or pcapng file (also gzip, zstd or xz).");
}

void check_link_types(const SourceReport& report) {
    if (report.packets == 0 || report.link_types.empty()) return;
    for (const std::uint16_t type : report.link_types)
        if (link_type_known(static_cast<LinkType>(type))) return;
    throw SourceError("unknown link type " + std::to_string(report.link_types.front()), report.path, -1,
                      kKnownLinkTypes);
}

MergedSources::MergedSources(std::vector<std::unique_ptr<Source>> sources, Counters& counters,
                             std::int64_t reorder_ns)
    : sources_(std::move(sources)), lanes_(sources_.size()), counters_(counters), reorder_ns_(reorder_ns) {}

// Does `time` lie more than `window` behind `newest`? Times of broken captures may be anywhere.
static bool behind(std::int64_t newest, std::int64_t time, std::int64_t window) noexcept {
    return time<newest&& static_cast<std::uint64_t>(newest) -
                static_cast<std::uint64_t>(time)> static_cast<std::uint64_t>(window);
}

void MergedSources::count_late(const std::vector<Packet>& batch) noexcept {
    std::uint64_t late = 0;
    for (const Packet& packet : batch) {
        late += behind(newest_ns_, packet.time_ns, reorder_ns_);
        newest_ns_ = std::max(newest_ns_, packet.time_ns);
    }
    if (late > 0) counters_.add("source.late_packet", late, Unit::packets);
}

void MergedSources::take_turns(Lane& lane) const {
    lane.turn_ns.resize(lane.packets.size());
    std::int64_t earliest = INT64_MAX;
    for (std::size_t i = lane.packets.size(); i-- > 0;) {
        const std::int64_t time = lane.packets[i].time_ns;
        if (earliest >= time || behind(time, earliest, reorder_ns_)) earliest = time;
        lane.turn_ns[i] = earliest;
    }
}

void MergedSources::fill(std::vector<Packet>& batch) {
    batch.clear();
    if (sources_.size() == 1) {
        sources_[0]->fill(batch);
        return count_late(batch);
    }
    std::vector<std::size_t> heap;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        Lane& lane = lanes_[i];
        if (!lane.ended && lane.at == lane.packets.size()) {
            lane.at = 0;
            sources_[i]->fill(lane.packets);
            if (lane.packets.empty() && sources_[i]->waiting()) return;  // it may have the next one
            lane.ended = lane.packets.empty();
            take_turns(lane);
        }
        if (!lane.ended) heap.push_back(i);
    }
    const auto later = [&](std::size_t a, std::size_t b) {
        const std::int64_t x = lanes_[a].turn_ns[lanes_[a].at], y = lanes_[b].turn_ns[lanes_[b].at];
        return x != y ? x > y : a > b;
    };
    std::make_heap(heap.begin(), heap.end(), later);
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), later);
        Lane& lane = lanes_[heap.back()];
        batch.push_back(lane.packets[lane.at++]);
        if (lane.at == lane.packets.size()) break;
        std::push_heap(heap.begin(), heap.end(), later);
    }
    count_late(batch);
}

void MergedSources::do_not_wait() noexcept {
    for (const auto& source : sources_) source->do_not_wait();
}

bool MergedSources::waiting() const noexcept {
    return std::any_of(sources_.begin(), sources_.end(),
                       [](const auto& source) { return source->waiting(); });
}

std::uint64_t MergedSources::bytes_done() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& source : sources_) sum += source->bytes_done();
    return sum;
}

std::uint64_t MergedSources::bytes_total() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& source : sources_) sum += source->bytes_total();
    return sum;
}

}  // namespace tapscope
