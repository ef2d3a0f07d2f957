// What is declared missing and when; the end of connections; memory bounds.
#include <algorithm>

#include "reassemble/tracker.hpp"

namespace tapscope {

void Tracker::queue(Connection& connection, std::uint32_t index) {
    if (connection.queued) return;
    connection.queued = true;
    const std::int64_t when = limits_.reorder_ns == INT64_MAX ? INT64_MAX : now_ns_ + limits_.reorder_ns;
    due_.push_back({packets_ + limits_.reorder_packets, when, index, connection.generation});
    set_next_due();
}

// Times of both queues only grow, so that their fronts come first. (Where the clock is set back, those from before it come
// late, by time; by the number of packets they do not.)
void Tracker::set_next_due() noexcept {
    next_due_packet_ = due_.empty() ? UINT64_MAX : due_.front().packet;
    next_due_ns_ = std::min(due_.empty() ? INT64_MAX : due_.front().time_ns,
                            forget_.empty() ? INT64_MAX : forget_.front().time_ns);
}

void Tracker::look_at_due() {
    while (!due_.empty() && (due_.front().packet <= packets_ || due_.front().time_ns <= now_ns_)) {
        round_.clear();
        while (!due_.empty() && (due_.front().packet <= packets_ || due_.front().time_ns <= now_ns_)) {
            round_.push_back(due_.front());
            due_.pop_front();
        }
        // By age, which does not depend on what else is tracked.
        if (round_.size() > 1)
            std::sort(round_.begin(), round_.end(), [&](const Due& a, const Due& b) {
                return at(a.index).first_packet < at(b.index).first_packet;
            });
        for (const Due& due : round_) {
            if (at(due.index).generation != due.generation || at(due.index).finished) continue;
            at(due.index).queued = false;
            look_at(due.index);
        }
    }
    while (!forget_.empty() &&
           (forget_.front().time_ns <= now_ns_ || forget_.size() > limits_.remember_closed)) {
        const Due due = forget_.front();
        forget_.pop_front();
        if (at(due.index).generation != due.generation) continue;
        at(due.index).id = -1;
        release(due.index);
    }
    set_next_due();
}

void Tracker::tick(std::int64_t now_ns) {
    now_ns_ = std::max(now_ns_, now_ns);
    look_at_due();
    look_for_keys();
    hand_over();
}

// Is there something that later packets, or their absence, decide?
bool Tracker::waiting(const Connection& connection) const noexcept {
    for (const Stream& stream : connection.stream) {
        if (stream.has_held()) return true;
        if (stream.ended) continue;
        if (stream.based && !stream.anchored) return true;
        if (stream.anchored && stream.acked > stream.next + (stream.fin_inferred ? 1 : 0)) return true;
    }
    return false;
}

void Tracker::look_at(std::uint32_t index) {
    Connection& connection = at(index);
    const bool late_ones_came = packets_ - connection.closing_packet >= limits_.reorder_packets ||
                                now_ns_ - connection.last_ns >= limits_.reorder_ns;
    if (connection.closing && late_ones_came && !awaits_keys(connection)) return finish_connection(index);
    if (packets_ - connection.first_packet >= limits_.reorder_packets ||
        now_ns_ - connection.first_ns >= limits_.reorder_ns)
        resolve_start(connection);
    drain(connection);
    while (declare_missing(connection, 0, false) || declare_missing(connection, 1, false)) drain(connection);
    settle(connection, index);
}

// Declares the first hole of one side missing if it is time. `force`: do not wait.
bool Tracker::declare_missing(Connection& connection, unsigned side, bool force) {
    Stream& mine = connection.stream[side];
    const Stream& peer = connection.stream[side ^ 1];
    if (!mine.anchored || mine.ended || (!force && awaits_keys(connection))) return false;
    const auto waited = [&](std::uint64_t since_packet, std::int64_t since_ns) {
        return force || packets_ - since_packet >= limits_.reorder_packets ||
               now_ns_ - since_ns >= limits_.reorder_ns;
    };
    if (mine.has_held()) {
        const HeldSegment& front = mine.held->front();
        if (front.offset == mine.next) return false;
        if (!waited(front.order, front.time_ns)) return false;
        if (mine.acked >= front.offset) {
            missing(connection, side, front.offset, "missing.acknowledged_but_not_seen");
            return true;
        }
        const bool nobody_acknowledges =
            peer.packets == 0 || now_ns_ - front.time_ns >= limits_.unacknowledged_ns;
        if (!force && !nobody_acknowledges) return false;
        missing(connection, side, front.offset, "missing.not_seen");
        return true;
    }
    if (mine.acked > mine.next) {
        if (mine.stuck_ack <= mine.next) {  // that hole was filled, this is a new one
            mine.stuck_ack = mine.acked;
            mine.stuck_packet = packets_;
        }
        if (!waited(mine.stuck_packet, connection.last_ns)) return false;
        const std::uint64_t end =
            mine.stuck_ack;  // one acknowledgement's worth: the last number may be a FIN's
        if (end == mine.next + 1 && mine.acked == end && !mine.fin_seen) {
            // One number more than there are bytes: more likely a FIN that was not seen than a byte.
            if (mine.fin_inferred) return false;
            mine.fin_inferred = true;
            counters_.add("tcp.fin_not_seen", 1, Unit::packets);
            return true;
        }
        if (mine.packets == 0) mine.absent = true;
        missing(connection, side, end, "missing.acknowledged_but_not_seen");
        return true;
    }
    if (force && mine.fin_seen && mine.fin_at > mine.next) {
        missing(connection, side, mine.fin_at, "missing.not_seen");
        return true;
    }
    return false;
}

void Tracker::missing(Connection& connection, unsigned side, std::uint64_t end, const char* why) {
    Stream& mine = connection.stream[side];
    const std::uint64_t bytes = end - mine.next;
    if (!connection.conversation) open_conversation(connection);
    give_up_keys(connection);
    hand(connection, side, Delivery::Kind::gap).offset = bytes;
    mine.next = end;
    // Whoever reads on is to know at once that there is a loss, not how large it is.
    if (limits_.handed_over && mine.missing == 0) lossy_.emplace_back(&connection, connection.generation);
    mine.missing += bytes;
    mine.fin_inferred = false;
    counters_.add(why, bytes, Unit::bytes);
    counters_.add("tcp.gap");
    if (mine.acked > mine.next) {
        mine.stuck_ack = mine.acked;
        mine.stuck_packet = packets_;
    }
}

// Delivers everything that is held, whatever is missing before it.
void Tracker::give_up_waiting(Connection& connection) {
    give_up_keys(connection);
    resolve_start(connection);
    while (true) {
        drain(connection);
        if (declare_missing(connection, 0, true) || declare_missing(connection, 1, true)) continue;
        // No hole, and still something held: each side waits for the other. The older packet goes first.
        unsigned best = 2;
        for (const unsigned side : {0u, 1u}) {
            const Stream& mine = connection.stream[side];
            if (!mine.anchored || !mine.has_held()) continue;
            if (best == 2 || mine.held->front().order < connection.stream[best].held->front().order)
                best = side;
        }
        if (best == 2) return;
        deliver_front(connection, best);
    }
}

void Tracker::relieve_memory() {
    counters_.add("reassembly.memory_bound");
    while (held_bytes_ > limits_.held_bytes / 4 * 3 && !due_.empty()) {
        const Due due = due_.front();
        due_.pop_front();
        Connection& connection = at(due.index);
        if (connection.generation != due.generation || connection.finished) continue;
        connection.queued = false;
        give_up_waiting(connection);
        if (connection.closing) finish_connection(due.index);
    }
    set_next_due();
}

void Tracker::finish_connection(std::uint32_t index) {
    Connection& connection = at(index);
    give_up_waiting(connection);
    for (const unsigned side : connection.ending_order()) {
        const Stream& mine = connection.stream[side];
        const std::int64_t time_ns = mine.fin_seen               ? mine.fin_ns
                                     : connection.closed_ns >= 0 ? connection.closed_ns
                                                                 : connection.last_ns;
        end_stream(connection, side, time_ns, !mine.fin_seen);
    }
    if (connection.client_side == kUnknownSide) find_client(connection);
    for (const unsigned side : {0u, 1u})
        if (connection.window_closed[side]) window_opened(connection, side, connection.last_ns);
    fill_row(connection);
    connection.finished = true;
    connection.plain = false;
    if (connection.conversation) deliveries_.leave(std::move(connection.conversation));
    for (Stream& stream : connection.stream) {
        if (stream.held) {
            held_bytes_ -= stream.held->bytes();
            discard("discarded.never_in_order", stream.held->bytes());
        }
        stream.held.reset();
    }
    forget_.push_back({0, now_ns_ + limits_.remember_closed_ns, index, connection.generation});
    next_due_ns_ = std::min(next_due_ns_, forget_.front().time_ns);
}

void Tracker::fill_row(const Connection& connection) {
    auto row = static_cast<std::size_t>(connection.id - rows_.first_connection);
    const bool here = row < rows_.connections.size;
    ConnectionColumns& out = here ? rows_.connections : rows_.connections_again;
    if (!here) {
        row = out.append();
        rows_.again.push_back(connection.id);
    }
    const unsigned client = connection.shown_client();
    const unsigned server = client ^ 1u;
    const Stream& to_server = connection.stream[client];
    const Stream& to_client = connection.stream[server];
    out.client_addr[row] = addresses_.index(connection.address(client));
    out.server_addr[row] = addresses_.index(connection.address(server));
    out.client_port[row] = connection.port(client);
    out.server_port[row] = connection.port(server);
    out.tap_point[row] = tap_points_.code(connection.tap);
    out.first_ns[row] = connection.first_ns;
    out.last_ns[row] = connection.last_ns;
    out.syn_ns[row] = connection.syn_ns;
    out.established_ns[row] = connection.established_ns;
    out.closed_ns[row] = connection.closed_ns;
    out.close_how[row] = static_cast<std::uint8_t>(connection.close_how);
    out.midstream[row] = !connection.syn_seen && !connection.syn_ack_seen;
    out.syn_retransmits[row] = connection.syn_retransmits;
    out.retransmits_to_server[row] = to_server.retransmits;
    out.retransmits_to_client[row] = to_client.retransmits;
    out.zero_windows_to_server[row] = to_server.zero_windows;
    out.zero_windows_to_client[row] = to_client.zero_windows;
    out.duplicates[row] = connection.duplicates;
    out.bytes_to_server[row] = to_server.seen;
    out.bytes_to_client[row] = to_client.seen;
    out.missing_to_server[row] = to_server.missing;
    out.missing_to_client[row] = to_client.missing;
    if (!connection.conversation) return;
    Delivery& delivery = hand(connection, client, Delivery::Kind::contents);
    delivery.offset = row;
    delivery.flag = !here;
}

// Rows of open connections as they are now, behind all that was handed over: of new ones until their protocol is known,
// of those that lost something for the first time, and of all others in turn.
void Tracker::describe_open() {
    for (const auto& [connection, generation] : std::exchange(lossy_, {})) {
        if (connection->generation == generation && connection->id >= 0 && !connection->finished)
            fill_row(*connection);
    }
    const std::vector<Opened> opened = std::exchange(to_describe_, {});
    for (Opened entry : opened) {
        const Connection& connection = at(entry.index);
        if (connection.generation != entry.generation || connection.id < 0 || connection.finished) continue;
        fill_row(connection);
        const bool known =
            connection.conversation && connection.conversation->exchange().protocol != Protocol::unknown;
        if (!known && ++entry.described < kDescribedAlone) to_describe_.push_back(entry);
    }
    for (std::uint32_t n = pool_used_ / kDescribeRounds + 1; n > 0 && pool_used_ > 0; --n) {
        described_ = described_ + 1 < pool_used_ ? described_ + 1 : 0;
        const Connection& connection = at(described_);
        if (connection.id >= 0 && connection.id < rows_.first_connection && !connection.finished)
            fill_row(connection);
    }
    hand_over();
}

void Tracker::finish() {
    std::vector<std::uint32_t> open;  // by age
    for (std::uint32_t index = 0; index < pool_used_; ++index)
        if (at(index).id >= 0 && !at(index).finished) open.push_back(index);
    std::sort(open.begin(), open.end(),
              [&](std::uint32_t a, std::uint32_t b) { return at(a).first_packet < at(b).first_packet; });
    for (const std::uint32_t index : open) finish_connection(index);
    hand_over();
    outlet_.wait();
}

FlowTables Tracker::hand_over_rows() {
    sort_by_time(rows_.tcp_events);
    FlowTables out = std::exchange(rows_, {});
    rows_.first_connection = out.first_connection + static_cast<std::int64_t>(out.connections.size);
    return out;
}

}  // namespace tapscope
