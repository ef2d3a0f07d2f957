// Copies made by mirrors, and tap points whose addresses are their own.
//
// A segment that looks like one seen within `copy_within_ns` (RecentSegments) is a copy when
//   - IPv4 numbers its packets: the number is the same, which TCP never sends twice in so short a time; or
//   - it was seen at another tap point than the first one; or
//   - it is the same frame at the same place, and nothing could have made TCP send it again:
//       * the newest data of its side: then only a timer could, and no timer is under a millisecond
//         (RFC 6298: 1 s; Linux: 200 ms, and two clock ticks for the probe of RFC 8985, section 7);
//       * else the peer sent no duplicate acknowledgement since (RFC 5681, RFC 8985); where the peer is not seen,
//         only if other copies on the connection show that its packets are doubled.
// What is left counts as a retransmission: when in doubt, copies are counted too low, retransmissions never.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "reassemble/tracker.hpp"

namespace tapscope {
namespace {

constexpr std::int64_t kNoTimer_us = 1000;

}  // namespace

bool Tracker::is_copy(Connection& connection, const Segment& s) {
    RecentSegments::Entry* original = recent_.find(s);
    if (original == nullptr) return false;
    const auto copy = [&] {
        if (s.ip_id != 0 || s.tap != original->tap || (s.flags & tcp_flag::syn)) return true;
        const Stream& mine = connection.stream[s.side];
        const Stream& peer = connection.stream[s.side ^ 1];
        const std::int64_t behind = mine.from_next(s.seq) + std::int64_t{s.length()};
        if (mine.next + static_cast<std::uint64_t>(behind) >= mine.highest())
            return RecentSegments::apart_us(*original, s) <= kNoTimer_us;
        if (peer.packets == 0) return connection.duplicates > 0;
        return !mine.duplicate_ack ||
               static_cast<std::int32_t>(mine.duplicate_ack_us - original->time_us) < 0;
    };
    if (!copy()) return false;
    note_copy(connection, s, *original);
    return true;
}

void Tracker::note_copy(Connection& connection, const Segment& s, RecentSegments::Entry& original) {
    if (static_cast<std::int32_t>(RecentSegments::micros(s) - original.time_us) <= 0)
        stamped_earlier(connection, s, original);
    if (original.copies < UINT8_MAX) ++original.copies;
    if (s.length() > 0 || (s.flags & tcp_flag::syn))
        connection.copies_of_one = std::max(connection.copies_of_one, original.copies);
    ++connection.duplicates;
    ++tap_points_.at(s.tap).copies;
    counters_.add("tcp.mirror_copy", 1, Unit::packets);
}

// The copy was read first and stamped later: packets do not stand in the file in the order of their times. The bytes
// have the time of the earliest one.
void Tracker::stamped_earlier(Connection& connection, const Segment& s, RecentSegments::Entry& original) {
    const std::uint32_t first_us = std::exchange(original.time_us, RecentSegments::micros(s));
    Stream& mine = connection.stream[s.side];
    if (s.flags & tcp_flag::fin) {
        mine.fin_ns = std::min(mine.fin_ns, s.time_ns);
        connection.closed_ns = std::min(connection.closed_ns, s.time_ns);
    }
    if ((s.flags & (tcp_flag::syn | tcp_flag::ack)) == tcp_flag::syn)
        connection.syn_ns = std::min(connection.syn_ns, s.time_ns);
    const std::int64_t begin =
        static_cast<std::int64_t>(mine.next) + mine.from_next(s.seq + ((s.flags & tcp_flag::syn) ? 1 : 0));
    if (s.length() == 0 || begin < 0) return;
    const auto from = static_cast<std::uint64_t>(begin);
    if (mine.held) mine.held->stamped_earlier(from, from + s.length(), s.time_ns);
    if (!connection.conversation || from >= mine.next) return;
    Delivery& delivery = hand(connection, s.side, Delivery::Kind::stamped_earlier);
    delivery.offset = from;
    delivery.size = static_cast<std::uint32_t>(std::min(from + s.length(), mine.next) - from);
    delivery.first_us = first_us;
    delivery.time_ns = s.time_ns;
}

void Tracker::keep_alive(Connection& connection, const Segment& s) {
    if (is_copy(connection, s)) return;
    recent_.remember(s);
    counters_.add("tcp.keep_alive", 1, Unit::packets);
}

// An acknowledgement without data that may be a copy, or a duplicate one that tells of a loss.
void Tracker::bare_ack(Connection& connection, const Segment& s, bool advances) {
    if (connection.duplicates > 0) {
        RecentSegments::Entry* original = recent_.find(s);
        if (original != nullptr &&
            (s.ip_id != 0 || s.tap != original->tap || original->copies < connection.copies_of_one))
            return note_copy(connection, s, *original);
        recent_.remember(s);
    }
    Stream& peer = connection.stream[s.side ^ 1];
    if (advances || !peer.anchored || peer.acked >= peer.highest()) return;
    peer.duplicate_ack = true;
    peer.duplicate_ack_us = RecentSegments::micros(s);
    counters_.add("tcp.duplicate_ack", 1, Unit::packets);
}

// Does a segment from elsewhere contradict the connection that has its addresses and ports? Then the tap point is an
// address space of its own (tenants of an overlay, customers of a carrier), and there are two connections. Tap points
// are taken for views of one network until then.
bool Tracker::contradicts(Connection& connection, const Segment& s) {
    if (connection.finished || connection.closing || s.tap == connection.also_tap) return false;
    const Stream& mine = connection.stream[s.side];
    const Stream& peer = connection.stream[s.side ^ 1];
    const bool syn = (s.flags & tcp_flag::syn) != 0;
    bool far = false;
    if (mine.based)
        far = syn && mine.anchored ? mine.base_seq != s.seq + 1
                                   : std::abs(std::int64_t{mine.from_next(s.seq)}) > kInWindow;
    else if ((s.flags & tcp_flag::ack) && peer.based)
        far = std::abs(std::int64_t{peer.from_next(s.ack)}) > kInWindow;
    else
        return false;
    if (far) return s.time_ns - connection.last_ns < kInUse_ns;
    connection.also_tap = s.tap;
    return false;
}

// True when the segment was followed as one of a connection of its tap point's own.
bool Tracker::in_own_space(std::uint32_t index, const Segment& s) {
    constexpr std::uint32_t kUntagged = 1;  // is no code of a tap point
    Segment moved = s;
    moved.key.space = s.tap == 0 ? kUntagged : tap_points_.code(s.tap);
    moved.hash = mix64(s.hash, moved.key.space);
    const std::uint32_t own = own_spaces_ > 0 ? look_up(moved) : FlowTable::kNone;
    if (own == FlowTable::kNone) {
        if (index == FlowTable::kNone || !contradicts(at(index), s)) return false;
        counters_.add("tcp.same_addresses_elsewhere", 1, Unit::connections);
    }
    slow_path(own, moved);
    return true;
}

}  // namespace tapscope
