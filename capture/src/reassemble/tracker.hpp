// Follows every TCP connection: handshakes, ordered bytes of both sides, losses, ends. What it delivers goes to an Outlet
// in lists; nothing comes back, but where TLS waits for secrets.
//
// Order: bytes of one side are delivered only after the bytes of the other side that they acknowledge (delivered or
// declared missing), so that a response is never parsed before its request. A hole is declared missing when the peer
// acknowledged beyond it and `reorder_packets` packets came after; so packets displaced by fewer places than that
// lose nothing. The start of a connection whose SYN was not seen waits as long.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "decode/segment.hpp"
#include "decode/tap_point.hpp"
#include "prefetch.hpp"
#include "reassemble/address_list.hpp"
#include "reassemble/connection.hpp"
#include "reassemble/deliveries.hpp"
#include "reassemble/flow_table.hpp"
#include "reassemble/recent_segments.hpp"
#include "record.hpp"

namespace tapscope {

struct Limits {
    std::uint32_t reorder_packets = 256;              // captured packets that a hole waits for its bytes
    std::int64_t reorder_ns = INT64_MAX;              // or this long (live captures set it)
    std::int64_t unacknowledged_ns = 30'000'000'000;  // a hole that nobody acknowledges, at most
    std::int64_t copy_within_ns = 5'000'000;  // mirror copies come within; far below any RTO (RFC 6298: 1 s)
    std::size_t held_bytes = 32 * 1024 * 1024;  // payload that waits, all connections together
    std::size_t held_bytes_of_stream = 8 * 1024 * 1024;
    std::size_t held_segments_of_stream = 16 * 1024;
    std::size_t connections = 1'000'000;              // tracked at once; beyond it the idlest are dropped
    std::int64_t remember_closed_ns = 3'000'000'000;  // a closed connection's late packets are recognised
    std::size_t remember_closed = 16 * 1024;
    std::int64_t tls_key_wait_ns = 0;  // TLS connections wait so long for secrets (live captures set it)
    bool handed_over = false;          // rows are handed over while packets come (Engine::drain)
};

class Tracker {
public:
    // Conversations report to `recorder`; `outlet` gets them their bytes. Whoever gives segments calls hand_over() while
    // the packets are still there.
    Tracker(Recorder& recorder, Outlet& outlet, Counters& counters, TapPoints& tap_points,
            const Limits& limits, std::unordered_map<std::uint16_t, Protocol> port_map);
    void hand_over() {
        if (!deliveries_.empty()) outlet_.take(deliveries_);
    }
    // The rows since the last time, none of which is open to deliveries that were not handed over.
    FlowTables hand_over_rows();
    const FlowTables& rows() const noexcept { return rows_; }

    void prefetch(const Segment& segment) const noexcept {
        table_.prefetch(segment.hash);
        if (segment.captured == 0) return;
        recent_.prefetch(segment);
        // RecentSegments looks at the last bytes; the first ones are read in order.
        prefetch_line(segment.payload + segment.captured - 1);
    }
    static constexpr std::size_t kMaxBatch = 16;
    // At most kMaxBatch segments in the order they came, and how many packets that are no segments (they count where
    // packets are counted) came before each. What they need of their connections is fetched into the cache for all of
    // them before the first one is looked at.
    void segments(std::span<const Segment> batch, const std::uint32_t* others);
    void segment(const Segment& s) { segment(s, FlowTable::kNone); }
    void other_packets(std::uint64_t n) noexcept { packets_ += n; }
    // Time went by without packets (live captures).
    void tick(std::int64_t now_ns);
    // TLS connections that wait for secrets go on if they are there now, or if they waited long enough.
    void look_for_keys() {
        if (!awaiting_keys_.empty()) [[unlikely]]
            look_for_awaited_keys();
    }
    // The end of the input: everything that waits is delivered, everything open is ended.
    void finish();
    // Before rows are handed over.
    void describe_open();

    AddressList& addresses() noexcept { return addresses_; }
    std::uint64_t connections_open() const noexcept { return table_.size(); }

private:
    struct Due {
        std::uint64_t packet;
        std::int64_t time_ns;
        std::uint32_t index, generation;
    };
    struct AwaitingKeys {
        std::uint32_t index, generation;
        std::int64_t since_ns;
    };
    struct Opened {
        std::uint32_t index, generation;
        unsigned described = 0;  // times its row was handed over
    };
    static constexpr std::size_t kInCache = 1024;  // connections, of about a kilobyte each
    static constexpr std::size_t kChunk = 256;
    static constexpr unsigned kDescribedAlone = 8;   // times that a connection without a known protocol is
    static constexpr unsigned kDescribeRounds = 60;  // within so many times every open connection is
    static constexpr std::size_t kMaxListeners = 64 * 1024;
    static constexpr std::uint32_t kMaxEvents = 10'000;  // rows of tcp_events of one connection
    static constexpr std::size_t kMaxAwaitingKeys = 16 * 1024;

    Connection& at(std::uint32_t index) noexcept { return (*pool_[index / kChunk])[index % kChunk]; }
    const Connection& at(std::uint32_t index) const noexcept {
        return (*pool_[index / kChunk])[index % kChunk];
    }
    // `guess`: where its connection may be.
    void segment(const Segment& segment, std::uint32_t guess);
    std::uint32_t look_up(const Segment& segment) noexcept;
    std::uint32_t create(const Segment& segment, unsigned client_side);
    void release(std::uint32_t index);
    void evict_idlest();

    // handshake.cpp: segments that open or break a connection
    std::uint32_t on_syn(std::uint32_t index, const Segment& segment);
    void note_listener(const Segment& segment);
    void free_ports(std::uint32_t index, CloseHow how);
    bool opens_unseen(const Connection& old, const Segment& segment) const noexcept;
    static bool goes_on_elsewhere(Connection& old, const Segment& segment) noexcept;
    void on_reset(Connection& connection, const Segment& segment);
    bool without_connection(const Segment& segment);
    void find_client(Connection& connection);
    void resolve_start(Connection& connection);
    void anchor(Stream& stream, std::uint64_t origin);

    // tracker.cpp: what a segment changes
    void slow_path(std::uint32_t index, const Segment& segment);
    void payload(Connection& connection, const Segment& segment);
    void old_bytes(Connection& connection, const Segment& segment, std::uint64_t begin, std::uint64_t end,
                   std::uint64_t captured);
    // Payload that goes into no stream. Invariant: the payload captured is what streams have seen plus "discarded.*".
    void discard(const char* why, std::uint64_t bytes) {
        if (bytes > 0) counters_.add(why, bytes, Unit::bytes);
    }
    void note_ack(Stream& acknowledged, std::uint32_t ack);
    void settle(Connection& connection, std::uint32_t index);

    // delivery.cpp: ordered bytes to the conversation
    Delivery& hand(const Connection& connection, unsigned side, Delivery::Kind kind);
    void open_conversation(Connection& connection);
    void deliver_bytes(Connection& connection, unsigned side, Bytes bytes, std::int64_t time_ns,
                       std::uint64_t acked);
    void came_again(Connection& connection, unsigned side, std::uint64_t begin, std::uint64_t end,
                    std::int64_t time_ns);
    void deliver(Connection& connection, unsigned side, HeldSegment held);
    bool waits_for_peer(const Stream& peer, std::uint32_t ack, bool has_ack) const noexcept;
    void drain(Connection& connection);
    void deliver_front(Connection& connection, unsigned side);
    void end_stream(Connection& connection, unsigned side, std::int64_t time_ns, bool aborted);

    // tcp_events.cpp: what kept somebody waiting
    void event(Connection& connection, unsigned side, TcpEventKind kind, std::int64_t begin_ns,
               std::int64_t end_ns, std::uint32_t packets = 1, std::uint32_t bytes = 0);
    void note_window(Connection& connection, const Segment& segment);
    void window_opened(Connection& connection, unsigned side, std::int64_t time_ns);
    bool repeated(Connection& connection, const Segment& segment, std::uint64_t end);
    bool count_late(Connection& connection, const Segment& segment, std::int64_t newest_ns);

    // copies.cpp: copies made by mirrors, and tap points with addresses of their own
    bool is_copy(Connection& connection, const Segment& segment);  // counts it
    void note_copy(Connection& connection, const Segment& segment, RecentSegments::Entry& original);
    void stamped_earlier(Connection& connection, const Segment& segment, RecentSegments::Entry& original);
    void bare_ack(Connection& connection, const Segment& segment, bool advances);
    bool contradicts(Connection& connection, const Segment& segment);
    void keep_alive(Connection& connection, const Segment& segment);
    bool in_own_space(std::uint32_t index, const Segment& segment);

    // awaited_keys.cpp: TLS connections whose secrets may still come
    // What was delivered may have begun the wait.
    bool awaits_keys(const Connection& connection) {
        if (limits_.tls_key_wait_ns == 0 || connection.conversation == nullptr) [[likely]]
            return false;
        hand_over();
        return connection.conversation->awaits_keys();
    }
    void look_for_keys_of(Connection& connection, bool may_still_come);
    void await_keys(Connection& connection, std::uint32_t index);
    void look_for_awaited_keys();
    void give_up_keys(Connection& connection);

    // loss.cpp: what is declared missing, and when
    void look_at_due();
    void set_next_due() noexcept;
    void look_at(std::uint32_t index);
    bool declare_missing(Connection& connection, unsigned side, bool force);
    void missing(Connection& connection, unsigned side, std::uint64_t end, const char* why);
    void give_up_waiting(Connection& connection);
    bool waiting(const Connection& connection) const noexcept;
    void finish_connection(std::uint32_t index);
    void fill_row(const Connection& connection);
    void relieve_memory();
    void queue(Connection& connection, std::uint32_t index);

    Recorder& recorder_;
    Outlet& outlet_;
    Deliveries deliveries_;
    Counters& counters_;
    TapPoints& tap_points_;
    FlowTables rows_;
    Limits limits_;
    std::unordered_map<std::uint16_t, Protocol> port_map_;
    AddressList addresses_;
    FlowTable table_;
    std::vector<std::unique_ptr<std::array<Connection, kChunk>>> pool_;
    std::vector<std::uint32_t> free_;
    std::uint32_t pool_used_ = 0;
    RecentSegments recent_;
    struct ClosedWindow {
        std::int64_t since_ns;
        std::uint32_t packets;
    };
    std::unordered_map<std::uint64_t, ClosedWindow> closed_windows_;  // by connection's id and side
    std::int64_t before_ns_ = -1;  // of the segment that is looked at: the connection's last packet before it
    std::uint32_t own_spaces_ = 0;            // connections tracked whose key has a space
    std::deque<Due> due_;                     // connections to look at, in order of time
    std::vector<Due> round_;                  // those of them that are looked at now
    std::deque<AwaitingKeys> awaiting_keys_;  // in order of time
    std::deque<Due> forget_;                  // finished connections that are still recognised
    std::unordered_map<std::uint64_t, std::uint32_t>
        listeners_;  // address and port: connections accepted there
    std::uint64_t packets_ = 0;
    std::uint64_t next_due_packet_ = UINT64_MAX;
    std::int64_t next_due_ns_ = INT64_MAX;
    // Time of the newest packet. One that is stamped so much before it says that the clock was set back, or that the newest
    // stamp was wrong: else no hole behind it would be waited for.
    static constexpr std::uint64_t kSetBack_ns = 1'000'000'000;
    std::int64_t now_ns_ = 0;
    std::uint64_t held_bytes_ = 0;
    std::uint32_t clock_hand_ = 0;
    std::vector<Opened> to_describe_;
    std::vector<std::pair<const Connection*, std::uint32_t>> lossy_;  // and generation; the pool moves none
    std::uint32_t described_ = 0;  // pool index that describe_open() was at
};

}  // namespace tapscope
