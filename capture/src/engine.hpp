// Packets in, tables out: decoder, tracker, dissection and recorder behind one door. No files, no clock, no globals.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <unordered_map>

#include "decode/decode.hpp"
#include "dissect/dissection.hpp"
#include "dissect/tls_keys.hpp"
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
    // `outlet` dissects what the tracker delivers; nullptr: the engine does so itself, behind each batch of packets.
    explicit Engine(const Settings& settings, Outlet* outlet = nullptr)
        : recorder_(settings.salt, settings.keep_text),
          decoder_(counters_, tap_points_, settings.tunnel_ports),
          tracker_(recorder_, outlet != nullptr ? *outlet : dissection_, counters_, tap_points_,
                   settings.limits, settings.port_map) {
        recorder_.tls_keys = settings.tls_keys;
    }

    // Headers of a few packets are decoded ahead, so that their flow table slots are in the cache when they are used.
    void packets(std::span<const Packet> batch) {
        std::array<Segment, kAhead> segments;
        std::array<std::uint32_t, kAhead> others;  // packets before it that are no segments
        tracker_.look_for_keys();
        while (!batch.empty()) {
            const std::size_t n = std::min(batch.size(), kAhead);
            std::size_t decoded = 0;
            std::uint32_t passed = 0;
            for (std::size_t i = 0; i < n; ++i) {
                if (decoder_.decode(batch[i], segments[decoded])) {
                    tracker_.prefetch(segments[decoded]);
                    others[decoded++] = passed;
                    passed = 0;
                } else {
                    ++passed;
                }
            }
            for (std::size_t i = 0; i < decoded; ++i) count(segments[i]);
            tracker_.segments({segments.data(), decoded}, others.data());
            tracker_.other_packets(passed);
            segments_ += decoded;
            packets_ += n;
            batch = batch.subspan(n);
        }
        tracker_.hand_over();
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
        Tables out{tracker_.hand_over_rows(), recorder_.hand_over()};
        out.contents.grow_to(out.connections.size);
        out.contents_again.grow_to(out.connections_again.size);
        return out;
    }

    // Brings counters() up to date with what the hot path keeps elsewhere: adds what came since the last time.
    void count_totals() {
        const std::uint64_t refused = recorder_.classes.refused();
        counters_.add("packets", packets_ - counted_.packets, Unit::packets);
        counters_.add("tcp.segments", segments_ - counted_.segments, Unit::packets);
        counters_.add("tcp.payload", payload_ - counted_.payload, Unit::bytes);
        if (refused > 0) counters_.add("classes.beyond_bound", refused - counted_.refused, Unit::messages);
        TlsKeyLog::Refused keys;
        if (recorder_.tls_keys) keys = recorder_.tls_keys->refused();
        if (keys.unreadable > counted_.keys.unreadable)
            counters_.add("tls.keylog_unreadable", keys.unreadable - counted_.keys.unreadable, Unit::events);
        if (keys.beyond_bound > counted_.keys.beyond_bound)
            counters_.add("tls.keylog_beyond_bound", keys.beyond_bound - counted_.keys.beyond_bound,
                          Unit::events);
        counted_ = {packets_, segments_, payload_, refused, keys};
    }

    Recorder& recorder() noexcept { return recorder_; }
    Tracker& tracker() noexcept { return tracker_; }
    const TapPoints& tap_points() const noexcept { return tap_points_; }
    // Of packets and connections; the recorder has those of messages.
    Counters& counters() noexcept { return counters_; }
    std::uint64_t packet_count() const noexcept { return packets_; }

private:
    void count(const Segment& segment) {
        payload_ += segment.captured;
        if (segment.flags & tcp_flag::urg) [[unlikely]]
            counters_.add("tcp.urgent", 1, Unit::packets);
    }
    static constexpr std::size_t kAhead = Tracker::kMaxBatch;
    static_assert(kAhead <= PacketDecoder::kPayloadsKept);

    struct Totals {
        std::uint64_t packets = 0, segments = 0, payload = 0, refused = 0;
        TlsKeyLog::Refused keys;
    };

    Recorder recorder_;
    Counters counters_;
    TapPoints tap_points_;
    PacketDecoder decoder_;
    Dissection dissection_;
    Tracker tracker_;
    bool finished_ = false;
    std::uint64_t packets_ = 0, segments_ = 0, payload_ = 0;
    Totals counted_;
};

}  // namespace tapscope
