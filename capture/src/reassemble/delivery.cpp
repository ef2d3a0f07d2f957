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
    const std::string endpoint =
        address_text(connection.address(client)) + ":" + std::to_string(connection.port(client));
    exchange.endpoint_hash = siphash13(recorder_.key(), as_bytes(endpoint));
    exchange.endpoint_known = true;
}

// A new record, for a connection with a conversation.
Delivery& Tracker::hand(const Connection& connection, unsigned side, Delivery::Kind kind) {
    if (deliveries_.full()) [[unlikely]]
        outlet_.take(deliveries_);
    return deliveries_.push(connection.conversation.get(), kind, connection.direction(side),
                            connection.stream[side].base_seq);
}

void Tracker::deliver_bytes(Connection& connection, unsigned side, Bytes bytes, std::int64_t time_ns,
                            std::uint64_t acked) {
    Delivery& delivery = hand(connection, side, Delivery::Kind::bytes);
    delivery.data = bytes.data();
    delivery.size = static_cast<std::uint32_t>(bytes.size());
    delivery.time_ns = time_ns;
    delivery.offset = acked;
}

// Bytes of [begin, end), which were delivered before; those that wait yet are marked where they wait.
void Tracker::came_again(Connection& connection, unsigned side, std::uint64_t begin, std::uint64_t end,
                         std::int64_t time_ns) {
    if (begin >= end) return;
    Delivery& delivery = hand(connection, side, Delivery::Kind::again);
    delivery.offset = begin;
    delivery.size = static_cast<std::uint32_t>(end - begin);
    delivery.time_ns = time_ns;
}

void Tracker::deliver(Connection& connection, unsigned side, HeldSegment held) {
    if (!connection.conversation) open_conversation(connection);
    Stream& mine = connection.stream[side];
    const Stream& peer = connection.stream[side ^ 1];
    const std::int64_t acked =
        static_cast<std::int64_t>(peer.next) + (held.has_ack ? peer.from_next(held.ack) : 0);
    mine.next += held.captured;
    mine.seen += held.captured;
    if (held.captured > 0) {
        deliver_bytes(connection, side, {held.data.get(), held.captured}, held.time_ns,
                      static_cast<std::uint64_t>(std::max<std::int64_t>(acked, 0)));
        deliveries_.keep(std::move(held.data));
    }
    if (held.missing > 0) missing(connection, side, mine.next + held.missing, "missing.cut_by_snaplen");
    if (held.retransmitted) came_again(connection, side, held.offset, held.end(), held.time_ns);
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
    HeldSegment held = mine.held->take_front();
    held_bytes_ -= held.captured;
    if (mine.ended) {
        counters_.add("tcp.data_after_fin", 1, Unit::packets);
        return discard("discarded.after_fin", held.captured);
    }
    deliver(connection, side, std::move(held));
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
    if (!connection.conversation) return;
    Delivery& delivery = hand(connection, side, Delivery::Kind::end);
    delivery.time_ns = time_ns;
    delivery.flag = aborted;
}

}  // namespace tapscope
