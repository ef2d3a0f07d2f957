// Segments that open or break a connection, and connections whose opening was not seen.
#include <algorithm>

#include "reassemble/tracker.hpp"

namespace tapscope {
namespace {

constexpr std::uint8_t kFarInARow = 2;           // segments that are refused before the next one is believed
constexpr std::int64_t kMaxFirstLoss = 1 << 20;  // bytes; more is no hole but an idle peer's old number

std::uint64_t listener_key(const Address& address, std::uint16_t port) noexcept {
    return mix64(address.high + port, address.low);
}

}  // namespace

// Returns the connection that the SYN belongs to, or kNone when nothing more is to be done with it.
std::uint32_t Tracker::on_syn(std::uint32_t index, const Segment& s) {
    const bool answer = (s.flags & tcp_flag::ack) != 0;
    const unsigned client = answer ? s.side ^ 1u : s.side;
    if (index != FlowTable::kNone) {
        Connection& old = at(index);
        Stream& mine = old.stream[s.side];
        const bool same_start = mine.anchored && mine.base_seq == s.seq + 1;
        const std::int64_t offset = static_cast<std::int64_t>(mine.next) + mine.from_next(s.seq + 1);
        // A SYN behind its own data (displaced packets), or the first one of a side that was held for it.
        const bool late = mine.based && !mine.anchored && offset >= 0 &&
                          offset <= static_cast<std::int64_t>(Stream::kProvisional);
        const bool first_of_side = !mine.based && !old.closing;
        if (old.finished || (!same_start && !late && !first_of_side)) {
            free_ports(index, CloseHow::reused);
            index = FlowTable::kNone;
        } else if (same_start && (answer ? mine.syn_ack : old.syn_seen)) {
            if (is_copy(old, s)) return FlowTable::kNone;
            recent_.remember(s);
            if (!answer) ++old.syn_retransmits;
            event(old, s.side, answer ? TcpEventKind::syn_answer_again : TcpEventKind::syn_again, old.last_ns,
                  s.time_ns);
            counters_.add(answer ? "tcp.syn_ack_retransmission" : "tcp.syn_retransmission", 1, Unit::packets);
            return index;
        }
    }
    if (index == FlowTable::kNone) index = create(s, client);
    Connection& connection = at(index);
    recent_.remember(s);
    if (connection.client_side == kUnknownSide) connection.client_side = static_cast<std::uint8_t>(client);
    Stream& mine = connection.stream[s.side];
    Stream& peer = connection.stream[s.side ^ 1];
    if (!mine.based) mine.base_provisionally(s.seq + 1);
    if (!mine.anchored)
        anchor(mine,
               mine.next + static_cast<std::uint64_t>(static_cast<std::int64_t>(mine.from_next(s.seq + 1))));
    if (answer) {
        connection.syn_ack_seen = mine.syn_ack = true;
        // It acknowledges exactly the SYN, so it tells where the client's stream starts.
        if (!peer.based) peer.base_provisionally(s.ack);
        if (!peer.anchored) {
            const std::int64_t origin = static_cast<std::int64_t>(peer.next) + peer.from_next(s.ack);
            if (origin >= 0) anchor(peer, static_cast<std::uint64_t>(origin));
        }
    } else {
        connection.syn_seen = true;
        if (connection.syn_ns < 0) connection.syn_ns = s.time_ns;
    }
    return index;
}

// From here on the ports are another connection's, or that of the same one behind a jump.
void Tracker::free_ports(std::uint32_t index, CloseHow how) {
    Connection& old = at(index);
    if (!old.finished) {
        counters_.add(how == CloseHow::jumped ? "tcp.jumped" : "tcp.port_reused", 1, Unit::connections);
        if (old.close_how == CloseHow::open) old.close_how = how;
        finish_connection(index);
    }
    old.id = -1;
    release(index);
}

// Is the segment one of a later connection with the same addresses and ports, whose opening was not seen? Its numbers
// are far from those of both sides, and the old connection is closed, or has been silent for long.
bool Tracker::opens_unseen(const Connection& old, const Segment& s) const noexcept {
    const Stream& mine = old.stream[s.side];
    const Stream& peer = old.stream[s.side ^ 1];
    if ((s.flags & (tcp_flag::syn | tcp_flag::rst | tcp_flag::ack)) != tcp_flag::ack) return false;
    if (!mine.anchored || !peer.anchored) return false;
    if (!old.closing && !old.finished && s.time_ns - old.last_ns < kInUse_ns) return false;
    return std::abs(std::int64_t{mine.from_next(s.seq)}) > kInWindow &&
           std::abs(std::int64_t{peer.from_next(s.ack)}) > kInWindow;
}

// Did one side go on far from where its stream stands, because the capture stood still meanwhile? One segment may be damaged
// or forged: it takes three in a row, or the peer that acknowledges the last one. What comes then is joined midstream.
bool Tracker::goes_on_elsewhere(Connection& old, const Segment& s) noexcept {
    Stream& mine = old.stream[s.side];
    Stream& peer = old.stream[s.side ^ 1];
    if (mine.far + peer.far == 0) return false;
    if ((s.flags & tcp_flag::ack) && peer.far > 0 && s.ack == peer.far_next) peer.far_acked = true;
    if (s.length() == 0 || (s.flags & (tcp_flag::syn | tcp_flag::rst))) return false;
    const bool follows = mine.far > 0 && s.seq == mine.far_next;
    return peer.far_acked || (follows && (mine.far_acked || mine.far >= kFarInARow));
}

void Tracker::note_listener(const Segment& s) {
    const unsigned server = (s.flags & tcp_flag::ack) != 0 ? s.side : s.side ^ 1u;
    const std::uint64_t key =
        server == 0 ? listener_key(s.key.a, s.key.port_a) : listener_key(s.key.b, s.key.port_b);
    if (listeners_.size() < kMaxListeners || listeners_.contains(key)) ++listeners_[key];
}

void Tracker::on_reset(Connection& connection, const Segment& s) {
    const Stream& mine = connection.stream[s.side];
    if (mine.anchored && std::abs(std::int64_t{mine.from_next(s.seq)}) > kInWindow && mine.packets > 1)
        return counters_.add("tcp.rst_out_of_window", 1, Unit::packets);
    if (is_copy(connection, s)) return;
    recent_.remember(s);
    counters_.add("tcp.rst", 1, Unit::packets);
    event(connection, s.side, TcpEventKind::rst, s.time_ns, s.time_ns);
    if (connection.reset) return;
    connection.reset = true;
    if (connection.closed_ns < 0) connection.closed_ns = s.time_ns;
    if (!(connection.stream[0].ended && connection.stream[1].ended)) connection.close_how = CloseHow::rst;
}

// True when a segment that belongs to no connection starts none.
bool Tracker::without_connection(const Segment& s) {
    if (s.length() > 0) return false;
    counters_.add(s.flags & tcp_flag::rst   ? "tcp.rst_without_connection"
                  : s.flags & tcp_flag::fin ? "tcp.fin_without_connection"
                                            : "tcp.ack_without_connection",
                  1, Unit::packets);
    return true;
}

// Who opened a connection whose SYN was not seen: port map, then content, then known listeners, then the port number.
void Tracker::find_client(Connection& connection) {
    const auto settle_on = [&](unsigned client, const char* how) {
        connection.client_side = static_cast<std::uint8_t>(client);
        counters_.add(how, 1, Unit::connections);
    };
    const bool mapped[2] = {port_map_.contains(connection.port(0)), port_map_.contains(connection.port(1))};
    if (mapped[0] != mapped[1]) return settle_on(mapped[0] ? 1 : 0, "tcp.client_by_port_map");
    std::uint64_t best_order = UINT64_MAX;
    unsigned best = kUnknownSide;
    for (const unsigned side : {0u, 1u}) {
        if (!connection.stream[side].has_held()) continue;
        int looked = 0;
        for (const HeldSegment& held : *connection.stream[side].held) {
            if (++looked > 16 || held.order >= best_order) break;
            const Bytes bytes{held.data.get(), held.captured};
            if (bytes.empty()) continue;
            const bool asks = probe_all(bytes, Direction::to_server).answer == Probe::yes;
            const bool answers = probe_all(bytes, Direction::to_client).answer == Probe::yes;
            if (asks == answers) continue;
            best_order = held.order;
            best = asks ? side : side ^ 1u;
        }
    }
    if (best != kUnknownSide) return settle_on(best, "tcp.client_by_content");
    const auto popularity = [&](unsigned side) {
        const auto found = listeners_.find(listener_key(connection.address(side), connection.port(side)));
        return found == listeners_.end() ? 0u : found->second;
    };
    const std::uint32_t known[2] = {popularity(0), popularity(1)};
    if (known[0] != known[1]) return settle_on(known[0] > known[1] ? 1 : 0, "tcp.client_by_known_listener");
    settle_on(connection.port(0) <= connection.port(1) ? 1 : 0, "tcp.client_by_port_number");
}

void Tracker::anchor(Stream& stream, std::uint64_t origin) {
    const std::uint64_t dropped = stream.anchor(origin);
    held_bytes_ -= dropped;
    discard("discarded.before_stream_start", dropped);
}

// The wait for a SYN is over: streams start with what was seen first.
void Tracker::resolve_start(Connection& connection) {
    if (connection.client_side == kUnknownSide) find_client(connection);
    for (const unsigned side : {0u, 1u}) {
        Stream& stream = connection.stream[side];
        if (stream.anchored) continue;
        const bool unseen = !stream.based;
        if (unseen) {
            if (!stream.first_ack_known) continue;  // nothing is known of this side yet
            stream.base_provisionally(stream.first_ack);
        }
        std::uint64_t origin = stream.has_held() ? stream.held->front().offset : stream.next;
        // With a handshake half seen, the lowest acknowledgement tells the start better than the first data.
        if (connection.syn_seen && stream.first_ack_known) {
            const std::int64_t acked =
                static_cast<std::int64_t>(stream.next) + stream.from_next(stream.first_ack);
            if (acked >= 0 && acked < static_cast<std::int64_t>(origin))
                origin = static_cast<std::uint64_t>(acked);
        }
        // Joined midstream: what the peer's first data did not acknowledge was sent behind them. A hole there is a loss,
        // such as the first answer.
        const Stream& peer = connection.stream[side ^ 1];
        if (peer.has_held() && peer.held->front().has_ack && stream.has_held() &&
            peer.held->front().order < stream.held->front().order) {
            const std::int64_t acked =
                static_cast<std::int64_t>(stream.next) + stream.from_next(peer.held->front().ack);
            if (acked >= 0 && acked < static_cast<std::int64_t>(origin) &&
                static_cast<std::int64_t>(origin) - acked <= kMaxFirstLoss)
                origin = static_cast<std::uint64_t>(acked);
        }
        anchor(stream, origin);
        if (unseen) note_ack(stream, stream.last_ack);
        if (stream.acked > stream.next && stream.stuck_ack <= stream.next) {
            stream.stuck_ack = stream.acked;
            stream.stuck_packet = packets_;
        }
    }
}

}  // namespace tapscope
