// Packets in, tables out: decoder, tracker and recorder behind one door. No files, no clock, no globals.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>

#include "decode/decode.hpp"
#include "dissect/tls_keys.hpp"
#include "prefetch.hpp"
#include "reassemble/tracker.hpp"
#include "record.hpp"
#include "row_log.hpp"
#include "share.hpp"
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
    // One of several that see the same packets and share the flows (sharded.hpp).
    Engine(const Settings& settings, Share share)
        : recorder_(settings.salt, settings.keep_text),
          decoder_(share.mine == 0 ? recorder_.counters : not_counted_, recorder_.tap_points,
                   settings.tunnel_ports),
          tracker_(recorder_, settings.limits, settings.port_map),
          share_(share) {
        recorder_.tls_keys = settings.tls_keys;
        tracker_.keep_log(&log_);
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
    }
    // The same for one of several: `turns` are the packets of the batch that this one has to look at, in order.
    void shared_packets(std::span<const Packet> batch, std::span<const Turn> turns, std::int64_t latest_ns) {
        std::array<Segment, kAhead> segments;
        std::array<What, kAhead> what;
        std::array<std::uint32_t, kAhead> guesses;
        std::size_t at = 0;  // packets of the batch that the tracker knows of
        for (std::size_t first = 0; first < turns.size(); first += kAhead) {
            const std::size_t n = std::min(turns.size() - first, kAhead);
            for (std::size_t i = first + n; i < std::min(turns.size(), first + n + kAhead); ++i)
                prefetch_lines(batch[turns[i].packet].data, kHeaders);
            for (std::size_t i = 0; i < n; ++i) {
                const Turn& turn = turns[first + i];
                what[i] = What::other;
                if (!decoder_.decode(batch[turn.packet], segments[i])) continue;
                what[i] = turn.plain || share_.owner(segments[i]) == share_.mine ? What::own : What::foreign;
                if (what[i] == What::own) tracker_.prefetch(segments[i]);
            }
            for (std::size_t i = 0; i < n; ++i)
                if (what[i] == What::own) guesses[i] = tracker_.guess(segments[i]);
            if (tracker_.beyond_cache()) {
                for (std::size_t i = 0; i < n; ++i)
                    if (what[i] == What::own) tracker_.fetch_connection(guesses[i]);
                for (std::size_t i = 0; i < n; ++i)
                    if (what[i] == What::own) tracker_.fetch_conversation(segments[i], guesses[i]);
                for (std::size_t i = 0; i < n; ++i)
                    if (what[i] == What::own) tracker_.fetch_dissector(segments[i], guesses[i]);
            }
            for (std::size_t i = 0; i < n; ++i) {
                const Turn& turn = turns[first + i];
                pass_foreign(batch.subspan(at, turn.packet - at), turn.latest_ns);
                at = turn.packet + std::size_t{1};
                if (what[i] == What::own) {
                    ++segments_;
                    count(segments[i]);
                    tracker_.segment(segments[i], guesses[i]);
                    note_rows();
                } else if (what[i] == What::foreign) {
                    if (segments[i].flags & tcp_flag::syn) tracker_.note_listener(segments[i]);
                    tracker_.foreign_segment(segments[i].time_ns);
                } else {
                    tracker_.other_packets(1);
                }
            }
        }
        pass_foreign(batch.subspan(at), latest_ns);
        packets_ += batch.size();
        log_.end_batch();
    }
    void tick(std::int64_t now_ns) { tracker_.tick(now_ns); }
    void finish() {
        decoder_.finish();
        tracker_.finish();
        recorder_.settle_hashes();
        log_.end_batch();
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
    RowLog& log() noexcept { return log_; }
    std::uint64_t packet_count() const noexcept { return packets_; }
    std::uint64_t segment_count() const noexcept { return segments_; }

private:
    void count(const Segment& segment) {
        payload_ += segment.captured;
        if (segment.flags & tcp_flag::urg) [[unlikely]]
            recorder_.counters.add("tcp.urgent", 1, Unit::packets);
    }
    static constexpr std::size_t kAhead = Tracker::kMaxBatch;
    static constexpr std::size_t kHeaders = 128;  // bytes: of most packets, and more
    static_assert(kAhead <= PacketDecoder::kPayloadsKept);

    enum class What : std::uint8_t { own, foreign, other };

    // Plain segments of others, none of which is later than `latest_ns`.
    void pass_foreign(std::span<const Packet> packets, std::int64_t latest_ns) {
        if (tracker_.nothing_due(packets.size(), latest_ns)) [[likely]]
            return tracker_.pass(packets.size(), latest_ns);
        for (const Packet& packet : packets) tracker_.foreign_segment(packet.time_ns);
    }
    void note_rows() {
        const RowLog::Sizes rows = recorder_.row_sizes();
        const std::size_t classes = recorder_.classes.size(), addresses = tracker_.addresses().size();
        if (log_.changed(rows, classes, addresses))
            log_.note({tracker_.packets(), 0}, rows, classes, addresses);
    }

    // Counters that the hot path keeps elsewhere: what came since the last time.
    void count_totals() {
        Counters& counters = recorder_.counters;
        const std::uint64_t refused = recorder_.classes.refused();
        if (share_.mine == 0) counters.add("packets", packets_ - counted_.packets, Unit::packets);
        counters.add("tcp.segments", segments_ - counted_.segments, Unit::packets);
        counters.add("tcp.payload", payload_ - counted_.payload, Unit::bytes);
        if (refused > 0) counters.add("classes.beyond_bound", refused - counted_.refused, Unit::messages);
        TlsKeyLog::Refused keys;
        if (share_.mine == 0 && recorder_.tls_keys) keys = recorder_.tls_keys->refused();
        if (keys.unreadable > counted_.keys.unreadable)
            counters.add("tls.keylog_unreadable", keys.unreadable - counted_.keys.unreadable, Unit::events);
        if (keys.beyond_bound > counted_.keys.beyond_bound)
            counters.add("tls.keylog_beyond_bound", keys.beyond_bound - counted_.keys.beyond_bound,
                         Unit::events);
        counted_ = {packets_, segments_, payload_, refused, keys};
    }
    struct Totals {
        std::uint64_t packets = 0, segments = 0, payload = 0, refused = 0;
        TlsKeyLog::Refused keys;
    };

    Recorder recorder_;
    Counters not_counted_;  // what another engine counts
    PacketDecoder decoder_;
    Tracker tracker_;
    Share share_;
    RowLog log_;  // empty unless there are several
    bool finished_ = false;
    std::uint64_t packets_ = 0, segments_ = 0, payload_ = 0;
    Totals counted_;
};

}  // namespace tapscope
