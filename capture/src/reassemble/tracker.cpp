#include "reassemble/tracker.hpp"

#include <algorithm>

namespace tapscope {
namespace {

// What a sender sends again was sent at most so many bytes before its newest: windows of 1 GB are legal (RFC 7323), but a
// number that is further behind is more likely one that is up to 4 GB ahead.
constexpr std::int64_t kLargestWindow = 1 << 28;

}  // namespace

Tracker::Tracker(Recorder& recorder, Outlet& outlet, Counters& counters, TapPoints& tap_points,
                 const Limits& limits, std::unordered_map<std::uint16_t, Protocol> port_map)
    : recorder_(recorder),
      outlet_(outlet),
      counters_(counters),
      tap_points_(tap_points),
      limits_(limits),
      port_map_(std::move(port_map)),
      recent_(limits.copy_within_ns) {}

void Tracker::segments(std::span<const Segment> batch, const std::uint32_t* others) {
    std::array<std::uint32_t, kMaxBatch> guesses;
    for (std::size_t i = 0; i < batch.size(); ++i) guesses[i] = table_.guess(batch[i].hash);
    deliveries_.far = table_.size() > kInCache;
    if (deliveries_.far)
        for (std::size_t i = 0; i < batch.size(); ++i)
            if (guesses[i] != FlowTable::kNone) at(guesses[i]).prefetch();
    for (std::size_t i = 0; i < batch.size(); ++i) {
        other_packets(others[i]);
        segment(batch[i], guesses[i]);
    }
}

void Tracker::segment(const Segment& s, std::uint32_t guess) {
    ++packets_;
    // Without sign, as times of broken captures may be anywhere.
    if (s.time_ns > now_ns_ ||
        static_cast<std::uint64_t>(now_ns_) - static_cast<std::uint64_t>(s.time_ns) > kSetBack_ns) [[likely]]
        now_ns_ = s.time_ns;
    if (packets_ >= next_due_packet_ || now_ns_ >= next_due_ns_) [[unlikely]]
        look_at_due();
    // The guess is right if the slot is still of this connection: of one key, at most one is in the table.
    std::uint32_t index = guess;
    if (index == FlowTable::kNone || at(index).id < 0 || at(index).key != s.key) [[unlikely]] {
        index = look_up(s);
        if (index == FlowTable::kNone) return slow_path(index, s);
    }
    Connection& connection = at(index);
    using namespace tcp_flag;
    if (connection.plain && (s.flags & (syn | fin | rst | ack | closed_window | fleeting)) == ack &&
        s.missing == 0) [[likely]] {
        Stream& mine = connection.stream[s.side];
        Stream& peer = connection.stream[s.side ^ 1];
        const std::int32_t ahead = peer.from_next(s.ack);
        if (s.seq == mine.base_seq + static_cast<std::uint32_t>(mine.next) && ahead <= 0) [[likely]] {
            connection.last_ns = std::max(connection.last_ns, s.time_ns);
            const std::uint64_t acked =
                peer.next - static_cast<std::uint64_t>(-static_cast<std::int64_t>(ahead));
            const bool advances = acked > peer.acked && acked <= peer.next;
            if (advances) peer.acked = acked;
            if (s.captured == 0) {
                if (!advances || connection.duplicates > 0) bare_ack(connection, s, advances);
                return;
            }
            recent_.remember(s);
            if (!connection.conversation) open_conversation(connection);
            mine.next += s.captured;
            mine.seen += s.captured;
            deliver_bytes(connection, s.side, {s.payload, s.captured}, s.time_ns, acked);
            if (awaits_keys(connection)) [[unlikely]]
                settle(connection, index);
            return;
        }
    }
    slow_path(index, s);
}

std::uint32_t Tracker::look_up(const Segment& s) noexcept {
    return table_.find(s.hash, [&](std::uint32_t index) { return at(index).key == s.key; });
}

std::uint32_t Tracker::create(const Segment& s, unsigned client_side) {
    if (table_.size() >= limits_.connections) evict_idlest();
    std::uint32_t index;
    if (free_.empty()) {
        index = pool_used_++;
        if (index / kChunk == pool_.size())
            pool_.push_back(std::make_unique<std::array<Connection, kChunk>>());
    } else {
        index = free_.back();
        free_.pop_back();
    }
    Connection& connection = at(index);
    const std::uint32_t generation = connection.generation;
    connection = Connection{};
    connection.generation = generation;
    connection.key = s.key;
    connection.hash = s.hash;
    connection.tap = s.tap;
    connection.client_side = static_cast<std::uint8_t>(client_side);
    connection.first_packet = packets_;
    connection.first_ns = connection.last_ns = s.time_ns;
    connection.id = rows_.first_connection + static_cast<std::int64_t>(rows_.connections.append());
    if (limits_.handed_over) to_describe_.push_back({index, connection.generation});
    own_spaces_ += s.key.space != 0;
    table_.insert(s.hash, index);
    return index;
}

void Tracker::release(std::uint32_t index) {
    Connection& connection = at(index);
    table_.erase(connection.hash, index);
    own_spaces_ -= connection.key.space != 0;
    ++connection.generation;
    free_.push_back(index);
}

// Approximates "the idlest": the idlest of 64 connections in rotation.
void Tracker::evict_idlest() {
    std::uint32_t idlest = FlowTable::kNone;
    for (int i = 0, looked = 0; looked < 64 && i < 4096; ++i) {
        clock_hand_ = clock_hand_ + 1 < pool_used_ ? clock_hand_ + 1 : 0;
        const Connection& candidate = at(clock_hand_);
        if (candidate.id < 0) continue;
        ++looked;
        if (idlest == FlowTable::kNone || candidate.last_ns < at(idlest).last_ns) idlest = clock_hand_;
    }
    if (idlest == FlowTable::kNone) return;
    Connection& victim = at(idlest);
    if (!victim.finished) {
        counters_.add("reassembly.evicted", 1, Unit::connections);
        victim.close_how = CloseHow::evicted;
        finish_connection(idlest);
    }
    victim.id = -1;
    release(idlest);
}

void Tracker::slow_path(std::uint32_t index, const Segment& s) {
    using namespace tcp_flag;
    if (s.key.space == 0 && (index == FlowTable::kNone ? own_spaces_ > 0 : s.tap != at(index).tap) &&
        in_own_space(index, s)) [[unlikely]]
        return;
    if (index != FlowTable::kNone) {
        const bool reused = opens_unseen(at(index), s);
        if (reused || goes_on_elsewhere(at(index), s)) [[unlikely]] {
            free_ports(index, reused ? CloseHow::reused : CloseHow::jumped);
            index = FlowTable::kNone;
        }
    }
    if (index != FlowTable::kNone && at(index).finished && !(s.flags & syn)) {
        if (is_copy(at(index), s)) return discard("discarded.mirror_copy", s.captured);
        counters_.add("tcp.after_close", 1, Unit::packets);
        return discard("discarded.after_close", s.captured);
    }
    if (s.flags & syn) {
        note_listener(s);
        if (s.flags & rst) {
            counters_.add("tcp.syn_and_rst", 1, Unit::packets);
            return discard("discarded.syn_and_rst", s.captured);
        }
        index = on_syn(index, s);
        if (index == FlowTable::kNone) return discard("discarded.mirror_copy", s.captured);
    } else if (index == FlowTable::kNone) {
        if (without_connection(s)) return;
        index = create(s, kUnknownSide);
    }
    Connection& connection = at(index);
    connection.first_ns = std::min(connection.first_ns, s.time_ns);
    before_ns_ = connection.last_ns;
    connection.last_ns = std::max(connection.last_ns, s.time_ns);
    Stream& mine = connection.stream[s.side];
    Stream& peer = connection.stream[s.side ^ 1];
    mine.packets += mine.packets < UINT32_MAX;
    mine.absent = false;
    if ((s.flags & closed_window) || connection.window_closed[s.side]) note_window(connection, s);
    if (!mine.based) mine.base_provisionally(s.seq);
    const std::uint64_t acked_before = peer.acked;
    if (s.flags & ack) note_ack(peer, s.ack);
    if (s.flags & rst) {
        on_reset(connection, s);
        discard("discarded.reason_of_reset", s.captured);  // RFC 9293, section 3.5.3: text that tells why
    } else {
        if (connection.syn_ack_seen && connection.established_ns < 0 && s.side == connection.client_side &&
            !(s.flags & syn))
            connection.established_ns = s.time_ns;
        if (s.length() > 0)
            payload(connection, s);
        else if (!(s.flags & (syn | fin)))
            mine.anchored&& mine.next > 0 && mine.from_next(s.seq) == -1
                ? keep_alive(connection, s)
                : bare_ack(connection, s, peer.acked > acked_before);
        if (s.flags & fin) {
            const std::int64_t end = static_cast<std::int64_t>(mine.next) + mine.from_next(s.seq) +
                                     s.length() + ((s.flags & syn) ? 1 : 0);
            if (!mine.fin_seen && end >= 0) {
                mine.fin_seen = true;
                mine.fin_at = static_cast<std::uint64_t>(end);
                mine.acked = std::min(mine.acked, mine.fin_at);  // the FIN's own number is no byte
                mine.stuck_ack = std::min(mine.stuck_ack, mine.fin_at);
                mine.fin_ns = s.time_ns;
                mine.fin_ack = s.ack;
                if (connection.closed_ns < 0) connection.closed_ns = s.time_ns;
                if (connection.close_how == CloseHow::open) connection.close_how = CloseHow::fin;
                if (s.length() == 0) recent_.remember(s);
            } else if (s.length() == 0) {
                repeated(connection, s, mine.fin_at + 1);
            }
        }
    }
    drain(connection);
    settle(connection, index);
}

void Tracker::note_ack(Stream& acknowledged, std::uint32_t ack) {
    if (!acknowledged.anchored) {
        if (!acknowledged.first_ack_known || static_cast<std::int32_t>(ack - acknowledged.first_ack) < 0)
            acknowledged.first_ack = ack;
        if (!acknowledged.based) {
            // One number more, and the last one: more likely a FIN that was not seen than a byte.
            const std::uint32_t more = ack - acknowledged.last_ack;
            if (!acknowledged.first_ack_known || (static_cast<std::int32_t>(more) > 0 && more != 1))
                acknowledged.last_ack = ack;
        }
        acknowledged.first_ack_known = true;
        if (!acknowledged.based) return;
    }
    const std::int64_t ahead = acknowledged.from_next(ack);
    if (ahead > std::int64_t{1} << 30) return counters_.add("tcp.ack_out_of_range", 1, Unit::packets);
    const std::int64_t offset = static_cast<std::int64_t>(acknowledged.next) + ahead;
    if (offset <= static_cast<std::int64_t>(acknowledged.acked)) return;
    acknowledged.acked = static_cast<std::uint64_t>(offset);
    if (acknowledged.fin_seen) acknowledged.acked = std::min(acknowledged.acked, acknowledged.fin_at);
    if (acknowledged.acked > acknowledged.next && acknowledged.stuck_ack <= acknowledged.next) {
        acknowledged.stuck_ack = acknowledged.acked;
        acknowledged.stuck_packet = packets_;
    }
}

void Tracker::payload(Connection& connection, const Segment& s) {
    Stream& mine = connection.stream[s.side];
    // Data in a SYN (RFC 7413) begins one number after it.
    const std::uint32_t seq = s.seq + ((s.flags & tcp_flag::syn) ? 1 : 0);
    const std::int64_t begin = static_cast<std::int64_t>(mine.next) + mine.from_next(seq);
    const std::int64_t end = begin + s.length();
    const auto next = static_cast<std::int64_t>(mine.next);
    const auto refuse = [&](const char* packet, const char* bytes) {
        counters_.add(packet, 1, Unit::packets);
        discard(bytes, s.captured);
    };
    const bool behind = next - begin > kLargestWindow || begin < -kInWindow;
    if (begin - next > std::int64_t{1} << 30 || (mine.anchored && behind)) {
        const bool follows = mine.far > 0 && seq == mine.far_next;
        mine.far = follows ? static_cast<std::uint8_t>(std::min(mine.far + 1, UINT8_MAX)) : 1;
        mine.far_acked = false;
        mine.far_next = seq + s.length();
        return refuse("tcp.seq_out_of_range", "discarded.seq_out_of_range");
    }
    mine.far = 0;
    if (mine.anchored && end <= next)
        return old_bytes(connection, s, static_cast<std::uint64_t>(std::max<std::int64_t>(begin, 0)),
                         static_cast<std::uint64_t>(std::max<std::int64_t>(end, 0)), s.captured);
    if (begin < 0) return refuse("tcp.before_stream_start", "discarded.before_stream_start");
    if (mine.ended || (mine.fin_seen && static_cast<std::uint64_t>(begin) >= mine.fin_at))
        return refuse("tcp.data_after_fin", "discarded.after_fin");
    Segment fresh = s;
    std::uint64_t offset = static_cast<std::uint64_t>(begin);
    const bool partly_old = mine.anchored && begin < next;
    if (partly_old) {
        const auto old = static_cast<std::uint32_t>(next - begin);
        const std::uint32_t cut = std::min(old, fresh.captured);
        old_bytes(connection, s, offset, mine.next, cut);
        offset = mine.next;
        fresh.payload += cut;
        fresh.captured -= cut;
        fresh.missing -= old - cut;
    }
    if (!mine.held) mine.held = std::make_unique<HeldSegments>();
    const bool behind_others = !mine.held->empty() && mine.held->back().offset > offset;
    const bool late = behind_others || mine.fin_seen;
    const std::int64_t newest_ns = behind_others ? mine.held->back().time_ns : mine.fin_ns;
    if (late && !behind_others) fresh.time_ns = std::min(fresh.time_ns, mine.fin_ns);
    const std::uint64_t before = mine.held->bytes();
    const auto added = mine.held->add(offset, fresh, packets_);
    const std::uint64_t kept = mine.held->bytes() - before;
    held_bytes_ += kept;
    if (added.overlap > 0 &&
        (partly_old || (late && added.bytes > 0))) {  // the packet is counted by its other bytes
        discard("discarded.retransmission", fresh.captured - kept);
        mine.held->retransmitted(offset, offset + fresh.length(), s.time_ns);
    } else if (added.overlap > 0) {
        old_bytes(connection, s, offset, offset + fresh.length(), fresh.captured - kept);
    }
    if (added.bytes > 0) {
        if (added.overlap > 0) counters_.add("tcp.overlap", added.overlap, Unit::bytes);
        recent_.remember(s);
        if (late && !partly_old && count_late(connection, s, newest_ns))
            mine.held->retransmitted(offset, offset + fresh.length(), fresh.time_ns);
    }
}

// Bytes that are already there, `captured` of them in this packet: a copy made by the mirror, a keep-alive probe, or a
// retransmission.
void Tracker::old_bytes(Connection& connection, const Segment& s, std::uint64_t begin, std::uint64_t end,
                        std::uint64_t captured) {
    Stream& mine = connection.stream[s.side];
    // A probe: nothing is outstanding (RFC 9293, section 3.8.4), or there is no room for it. Else it is an answer's last
    // byte. (Of a peer that is not seen neither is known.)
    const Stream& peer = connection.stream[s.side ^ 1];
    const bool probe = end <= mine.acked || connection.window_closed[s.side ^ 1] || peer.packets == 0;
    if (probe && s.length() == 1 && mine.anchored && end == mine.next && recent_.find(s) == nullptr) {
        recent_.remember(s);
        counters_.add("tcp.keep_alive", 1, Unit::packets);
        return discard("discarded.keep_alive", captured);
    }
    if (!repeated(connection, s, end)) return discard("discarded.mirror_copy", captured);
    discard("discarded.retransmission", captured);
    if (mine.held) mine.held->retransmitted(begin, end, s.time_ns);
    if (connection.conversation) came_again(connection, s.side, begin, std::min(end, mine.next), s.time_ns);
}

// After a segment on the slow path: may the fast path take over, is there something to look at later?
void Tracker::settle(Connection& connection, std::uint32_t index) {
    const Stream& a = connection.stream[0];
    const Stream& b = connection.stream[1];
    connection.plain = a.anchored && b.anchored && !a.has_held() && !b.has_held() && !a.fin_seen &&
                       !b.fin_seen && !connection.reset && a.packets > 0 && b.packets > 0 &&
                       !awaits_keys(connection) && !connection.window_closed[0] &&
                       !connection.window_closed[1] && a.far == 0 && b.far == 0 &&
                       (!connection.syn_ack_seen || connection.established_ns >= 0);
    if (!connection.closing && ((a.ended && b.ended) || connection.reset)) {
        connection.closing = true;
        connection.closing_packet = packets_;
    }
    if (awaits_keys(connection)) [[unlikely]]
        await_keys(connection, index);
    if (connection.closing || waiting(connection)) queue(connection, index);
    for (Stream& stream : connection.stream)
        if (stream.held && (stream.held->bytes() > limits_.held_bytes_of_stream ||
                            stream.held->size() > limits_.held_segments_of_stream)) {
            counters_.add("reassembly.stream_bound");
            give_up_waiting(connection);
        }
    if (held_bytes_ > limits_.held_bytes) relieve_memory();
}

}  // namespace tapscope
