// Packets in, tables out: decoder, tracker and recorder behind one door. No files, no clock, no globals.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>

#include "decode/decode.hpp"
#include "reassemble/tracker.hpp"
#include "record.hpp"
#include "source/packet.hpp"

namespace tapscope {

struct Settings {
    HashKey salt;
    bool keep_text = false;
    std::unordered_map<std::uint16_t, Protocol> port_map;
    Limits limits;
    TunnelPorts tunnel_ports = assigned_tunnel_ports();
    std::int64_t reorder_window_ns =
        10'000'000;                       // how far out of place packets of a capture may be when merged
    std::shared_ptr<TlsKeyLog> tls_keys;  // null: nothing is decrypted
};

class Engine {
public:
    explicit Engine(const Settings& settings)
        : recorder_(settings.salt, settings.keep_text),
          decoder_(recorder_.counters, recorder_.tap_points, settings.tunnel_ports),
          tracker_(recorder_, settings.limits, settings.port_map) {
        recorder_.tls_keys = settings.tls_keys;
    }

    // Headers of a few packets are decoded ahead, so that their flow table slots are in the cache when they are used.
    void packets(std::span<const Packet> batch) {
        std::array<Segment, kAhead> segments;
        while (!batch.empty()) {
            const std::size_t n = std::min(batch.size(), kAhead);
            std::size_t decoded = 0;
            for (std::size_t i = 0; i < n; ++i) {
                if (decoder_.decode(batch[i], segments[decoded])) {
                    tracker_.prefetch(segments[decoded]);
                    ++decoded;
                } else {
                    tracker_.other_packet();
                }
            }
            for (std::size_t i = 0; i < decoded; ++i) payload_ += segments[i].captured;
            tracker_.segments({segments.data(), decoded});
            segments_ += decoded;
            packets_ += n;
            batch = batch.subspan(n);
        }
    }
    void tick(std::int64_t now_ns) { tracker_.tick(now_ns); }
    void finish() {
        decoder_.finish();
        tracker_.finish();
        finished_ = true;
        count_totals();
    }
    // The rows since the last call, so that memory stays bounded while packets come (Limits::handed_over). Whatever
    // becomes of their messages later comes as amendments, of their connections as rows with the same id. The
    // addresses that the rows speak of are those of tracker().addresses(); clear them when they are read.
    Tables drain() {
        if (!finished_) tracker_.describe_open();
        count_totals();
        return recorder_.hand_over();
    }

    Recorder& recorder() noexcept { return recorder_; }
    Tracker& tracker() noexcept { return tracker_; }
    std::uint64_t packet_count() const noexcept { return packets_; }
    std::uint64_t segment_count() const noexcept { return segments_; }

private:
    static constexpr std::size_t kAhead = Tracker::kMaxBatch;
    static_assert(kAhead <= PacketDecoder::kPayloadsKept);

    // Counters that the hot path keeps elsewhere: what came since the last time.
    void count_totals() {
        Counters& counters = recorder_.counters;
        const std::uint64_t refused = recorder_.classes.refused();
        counters.add("packets", packets_ - counted_.packets, Unit::packets);
        counters.add("tcp.segments", segments_ - counted_.segments, Unit::packets);
        counters.add("tcp.payload", payload_ - counted_.payload, Unit::bytes);
        if (refused > 0) counters.add("classes.beyond_bound", refused - counted_.refused, Unit::messages);
        counted_ = {packets_, segments_, payload_, refused};
    }
    struct Totals {
        std::uint64_t packets = 0, segments = 0, payload = 0, refused = 0;
    };

    Recorder recorder_;
    PacketDecoder decoder_;
    Tracker tracker_;
    bool finished_ = false;
    std::uint64_t packets_ = 0, segments_ = 0, payload_ = 0;
    Totals counted_;
};

}  // namespace tapscope
