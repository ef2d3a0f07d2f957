// What TCP did that may have kept somebody waiting, with times: rows of tcp_events. Such packets are rare, and none of
// them takes the fast path.
#include <algorithm>

#include "reassemble/tracker.hpp"

namespace tapscope {
namespace {

constexpr std::uint32_t kShortestTimer_us = 200'000;  // Linux's least; RFC 6298 says 1 s

}  // namespace

void Tracker::event(Connection& connection, unsigned side, TcpEventKind kind, std::int64_t begin_ns,
                    std::int64_t end_ns, std::uint32_t packets, std::uint32_t bytes) {
    // A connection on which nothing but this happens must not fill the memory.
    if (connection.events >= kMaxEvents) return counters_.add("tcp.events_not_kept");
    ++connection.events;
    const Direction direction =
        side == connection.shown_client() ? Direction::to_server : Direction::to_client;
    TcpEventColumns& out = rows_.tcp_events;
    const std::size_t row = out.append();
    out.conn[row] = static_cast<std::int32_t>(connection.id);
    out.kind[row] = static_cast<std::uint8_t>(kind);
    out.direction[row] = static_cast<std::uint8_t>(direction);
    out.begin_ns[row] = std::min(begin_ns, end_ns);
    out.end_ns[row] = end_ns;
    out.packets[row] = packets;
    out.bytes[row] = bytes;
}

// A segment that announces a closed receive window, or comes from a side that did. A window counts as closed until its
// side says something else; what says less than was acknowledged before is older than that.
void Tracker::note_window(Connection& connection, const Segment& s) {
    using namespace tcp_flag;
    if (s.flags & (syn | rst)) return;
    const std::uint64_t key = static_cast<std::uint64_t>(connection.id) << 1 | s.side;
    if (s.flags & closed_window) {
        if ((s.flags & fin) || recent_.find(s) != nullptr) return;
        ++connection.stream[s.side].zero_windows;
        counters_.add("tcp.zero_window", 1, Unit::packets);
        connection.window_closed[s.side] = true;
        ++closed_windows_.try_emplace(key, ClosedWindow{s.time_ns, 0}).first->second.packets;
        return;
    }
    const Stream& peer = connection.stream[s.side ^ 1];
    const bool older =
        peer.anchored && (s.flags & ack) &&
        static_cast<std::int64_t>(peer.next) + peer.from_next(s.ack) < static_cast<std::int64_t>(peer.acked);
    if (!older) window_opened(connection, s.side, s.time_ns);
}

void Tracker::window_opened(Connection& connection, unsigned side, std::int64_t time_ns) {
    const auto closed = closed_windows_.find(static_cast<std::uint64_t>(connection.id) << 1 | side);
    event(connection, side, TcpEventKind::zero_window, closed->second.since_ns, time_ns,
          closed->second.packets);
    closed_windows_.erase(closed);
    connection.window_closed[side] = false;
}

// A segment with new bytes behind which others, or the FIN, were there already. Soon after those it was out of order;
// later it was sent again, and the tap did not see it the first time (true). tshark draws the line in the same place: at
// the round trip time of the handshake, or 3 ms.
bool Tracker::count_late(Connection& connection, const Segment& s, std::int64_t newest_ns) {
    constexpr std::int64_t kUnknownRoundTrip_ns = 3'000'000;
    const bool timed = connection.syn_ns >= 0 && connection.established_ns > connection.syn_ns;
    const std::int64_t soon_ns = timed ? connection.established_ns - connection.syn_ns : kUnknownRoundTrip_ns;
    if (s.time_ns - newest_ns < soon_ns) {
        counters_.add("tcp.out_of_order", 1, Unit::packets);
        return false;
    }
    ++connection.stream[s.side].retransmits;
    counters_.add("tcp.retransmission", 1, Unit::packets);
    counters_.add("tcp.retransmission_of_unseen", 1, Unit::packets);
    event(connection, s.side, TcpEventKind::resent_unseen, before_ns_, s.time_ns, 1, s.length());
    return true;
}

// A segment that came before, with bytes up to stream offset `end`: true for a retransmission, false for a copy made by
// the mirror. Counts either. The receiver had everything (its acknowledgement was lost, or came late); or it asked for
// more than once for what it had not; or nobody asked, so that it was a timer.
bool Tracker::repeated(Connection& connection, const Segment& s, std::uint64_t end) {
    if (is_copy(connection, s)) return false;
    Stream& mine = connection.stream[s.side];
    ++mine.retransmits;
    counters_.add("tcp.retransmission", 1, Unit::packets);
    const bool asked =
        mine.duplicate_ack && RecentSegments::micros(s) - mine.duplicate_ack_us < kShortestTimer_us;
    const TcpEventKind kind = mine.anchored && end <= mine.acked ? TcpEventKind::resent_needless
                              : asked                            ? TcpEventKind::resent_asked
                                                                 : TcpEventKind::resent;
    event(connection, s.side, kind, before_ns_, s.time_ns, 1, s.length());
    recent_.remember(s);
    return true;
}

}  // namespace tapscope
