// Ordered delivery: the conversation that bytes go to, when those of one side may go, and the end of a side.
#include <algorithm>
#include <memory>
#include <string>

#include "reassemble/tracker.hpp"

namespace tapscope {

void Tracker::open_conversation(Connection& connection) {
    if (connection.client_side == kUnknownSide) find_client(connection);
    const unsigned client = connection.client_side;
    Protocol fixed = Protocol::unknown;
    if (!port_map_.empty()) {
        for (const unsigned side : {client ^ 1u, client}) {
            const auto found = port_map_.find(connection.port(side));
            if (found != port_map_.end() && fixed == Protocol::unknown) fixed = found->second;
        }
    }
    connection.conversation =
        std::make_unique<Conversation>(recorder_, static_cast<std::int32_t>(connection.id), fixed);
    Exchange& exchange = connection.conversation->exchange();
    exchange.keys_may_come = limits_.tls_key_wait_ns > 0;
    exchange.unasked = !connection.syn_seen && !connection.syn_ack_seen;
    for (const unsigned side : {0u, 1u})
        exchange.at(connection.direction(side)).base_seq = connection.stream[side].base_seq;
    const std::string endpoint =
        address_text(connection.address(client)) + ":" + std::to_string(connection.port(client));
    exchange.endpoint_hash = siphash13(recorder_.key(), as_bytes(endpoint));
    exchange.endpoint_known = true;
}

void Tracker::deliver(Connection& connection, unsigned side, Bytes bytes, std::uint64_t missing,
                      std::int64_t time_ns, std::uint32_t ack, bool has_ack) {
    if (!connection.conversation) open_conversation(connection);
    Stream& mine = connection.stream[side];
    const Stream& peer = connection.stream[side ^ 1];
    // The start of this side may not have been known when the conversation began (data in the peer's SYN).
    connection.conversation->exchange().at(connection.direction(side)).base_seq = mine.base_seq;
    const std::int64_t acked = static_cast<std::int64_t>(peer.next) + (has_ack ? peer.from_next(ack) : 0);
    mine.next += bytes.size();
    mine.seen += bytes.size();
    if (!bytes.empty())
        connection.conversation->bytes(connection.direction(side), bytes, time_ns,
                                       static_cast<std::uint64_t>(std::max<std::int64_t>(acked, 0)));
    if (missing > 0) this->missing(connection, side, mine.next + missing, "missing.cut_by_snaplen");
}

bool Tracker::waits_for_peer(const Stream& peer, std::uint32_t ack, bool has_ack) const noexcept {
    if (!has_ack || !peer.based || peer.ended) return false;
    const std::int32_t ahead = peer.from_next(ack);
    if (ahead <= 0 || ahead > 1 << 30) return false;
    // A FIN takes one number.
    return !(ahead == 1 && (peer.fin_inferred || (peer.fin_seen && peer.fin_at == peer.next)));
}

void Tracker::deliver_front(Connection& connection, unsigned side) {
    Stream& mine = connection.stream[side];
    const HeldSegment held = mine.held->take_front();
    held_bytes_ -= held.captured;
    if (mine.ended) {
        recorder_.counters.add("tcp.data_after_fin", 1, Unit::packets);
        return discard("discarded.after_fin", held.captured);
    }
    deliver(connection, side, {held.data.get(), held.captured}, held.missing, held.time_ns, held.ack,
            held.has_ack);
    if (held.retransmitted)
        connection.conversation->retransmitted(connection.direction(side), held.offset, held.end(),
                                               held.time_ns);
}

// Delivers everything that may be delivered; of two sides that both may, the older packet first.
void Tracker::drain(Connection& connection) {
    while (true) {
        if (awaits_keys(connection)) return;
        unsigned best = 2;
        for (const unsigned side : {0u, 1u}) {
            Stream& mine = connection.stream[side];
            if (!mine.anchored || !mine.has_held() || mine.held->front().offset != mine.next) continue;
            const HeldSegment& front = mine.held->front();
            const Stream& peer = connection.stream[side ^ 1];
            if (!peer.anchored && front.has_ack) continue;
            if (waits_for_peer(peer, front.ack, front.has_ack)) continue;
            if (best == 2 || front.order < connection.stream[best].held->front().order) best = side;
        }
        if (best == 2) break;
        deliver_front(connection, best);
    }
    for (const unsigned side : connection.ending_order()) {
        Stream& mine = connection.stream[side];
        const Stream& peer = connection.stream[side ^ 1];
        if (mine.fin_seen && !mine.ended && mine.anchored && mine.next >= mine.fin_at &&
            !waits_for_peer(peer, mine.fin_ack, peer.anchored))
            end_stream(connection, side, mine.fin_ns, false);
    }
}

void Tracker::end_stream(Connection& connection, unsigned side, std::int64_t time_ns, bool aborted) {
    Stream& mine = connection.stream[side];
    if (mine.ended) return;
    mine.ended = true;
    if (connection.conversation) connection.conversation->end(connection.direction(side), time_ns, aborted);
}

}  // namespace tapscope
