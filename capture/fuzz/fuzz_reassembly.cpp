// Fuzz input -> TCP segments of a few connections, in any order and with any numbers, through the whole tracker. At
// the end every byte of every connection must be accounted for.
//
// Each segment: flags u8, side and connection u8, sequence offset s16, acknowledgement offset s16, length u8, bytes.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "bytes.hpp"
#include "dissect/dissection.hpp"
#include "hash.hpp"
#include "reassemble/tracker.hpp"

using namespace tapscope;

namespace {

constexpr std::size_t kHeader = 7;

void check(const Recorder& recorder, const Tracker& tracker) {
    const auto& messages = recorder.messages;
    const auto& connections = tracker.rows().connections;
    const auto& contents = recorder.contents;
    for (unsigned d = 0; d < 2; ++d) {
        std::vector<std::uint64_t> inside(connections.size, 0);
        for (std::size_t i = 0; i < messages.size; ++i) {
            if (messages.missing_bytes[i] > messages.wire_bytes[i]) std::abort();
            if (messages.direction[i] == d)
                inside[static_cast<std::size_t>(messages.conn[i])] +=
                    messages.wire_bytes[i] - messages.missing_bytes[i];
        }
        for (std::size_t i = 0; i < connections.size; ++i) {
            const std::uint64_t seen =
                d == 0 ? connections.bytes_to_server[i] : connections.bytes_to_client[i];
            const std::uint64_t rest = i >= contents.size ? 0
                                       : d == 0           ? contents.unparsed_to_server[i]
                                                          : contents.unparsed_to_client[i];
            if (seen != inside[i] + rest) std::abort();
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Recorder recorder({1, 2});
    Limits limits;
    limits.reorder_packets = 8;
    limits.connections = 3;
    limits.held_bytes = 2000;
    Counters counters;
    TapPoints tap_points;
    Dissection dissection;
    Tracker tracker(recorder, dissection, counters, tap_points, limits, {});
    std::int64_t time_ns = 0;
    while (size >= kHeader) {
        Segment segment{};
        const unsigned connection = data[1] >> 1 & 3u;
        segment.key = {ipv4_address(1), ipv4_address(2), static_cast<std::uint16_t>(1000 + connection), 80,
                       0};
        segment.hash = mix64(connection, 77);
        segment.side = data[1] & 1u;
        segment.flags = data[0];
        segment.missing = data[1] >> 5 == 7 ? 5 : 0;
        segment.seq = 0xfffff000u + load_host<std::uint16_t>(data + 2);
        segment.ack = 0xfffff000u + load_host<std::uint16_t>(data + 4);
        const std::size_t length = data[6] < size - kHeader ? data[6] : size - kHeader;
        const std::vector<std::uint8_t> copy(data + kHeader, data + kHeader + length);  // exact size
        segment.payload = copy.data();
        segment.captured = static_cast<std::uint32_t>(length);
        segment.time_ns = time_ns += 1000;
        segment.ip_id = data[0];
        tracker.segment(segment);
        tracker.hand_over();  // before its bytes go
        data += kHeader + length;
        size -= kHeader + length;
    }
    tracker.finish();
    check(recorder, tracker);
    return 0;
}
