// Packets in, tables out: decoder, tracker and recorder behind one door. No files, no clock, no globals.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
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
};

class Engine {
public:
    explicit Engine(const Settings& settings)
        : recorder_(std::make_shared<Recorder>(settings.salt, settings.keep_text)),
          decoder_(recorder_->counters, recorder_->tap_points, settings.tunnel_ports),
          tracker_(*recorder_, settings.limits, settings.port_map) {}

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
            for (std::size_t i = 0; i < decoded; ++i) {
                payload_ += segments[i].captured;
                tracker_.segment(segments[i]);
            }
            segments_ += decoded;
            packets_ += n;
            batch = batch.subspan(n);
        }
    }
    void tick(std::int64_t now_ns) { tracker_.tick(now_ns); }
    void finish() {
        decoder_.finish();
        tracker_.finish();
        recorder_->counters.add("packets", packets_, Unit::packets);
        recorder_->counters.add("tcp.segments", segments_, Unit::packets);
        recorder_->counters.add("tcp.payload", payload_, Unit::bytes);
        if (recorder_->classes.refused() > 0)
            recorder_->counters.add("classes.beyond_bound", recorder_->classes.refused(), Unit::messages);
    }

    Recorder& recorder() noexcept { return *recorder_; }
    // The tables outlive the engine: numpy views them.
    std::shared_ptr<Recorder> share_recorder() const noexcept { return recorder_; }
    Tracker& tracker() noexcept { return tracker_; }
    std::uint64_t packet_count() const noexcept { return packets_; }
    std::uint64_t segment_count() const noexcept { return segments_; }

private:
    static constexpr std::size_t kAhead = 16;
    static_assert(kAhead <= PacketDecoder::kPayloadsKept);
    std::shared_ptr<Recorder> recorder_;
    PacketDecoder decoder_;
    Tracker tracker_;
    std::uint64_t packets_ = 0, segments_ = 0, payload_ = 0;
};

}  // namespace tapscope
