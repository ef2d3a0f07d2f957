// TLS connections whose secrets may still come: a live capture can be ahead of the log that the servers write. Their
// packets are held as those behind a hole are, with the same bounds of memory, and at most for Limits::tls_key_wait_ns.
#include "dissect/tls_keys.hpp"
#include "reassemble/tracker.hpp"

namespace tapscope {

void Tracker::await_keys(Connection& connection, std::uint32_t index) {
    if (connection.awaiting_keys) return;
    connection.awaiting_keys = true;
    awaiting_keys_.push_back({index, connection.generation, now_ns_});
    counters_.add("tls.secrets_awaited", 1, Unit::connections);
}

void Tracker::look_for_awaited_keys() {
    const bool grown = recorder_.tls_keys->refresh();
    for (std::size_t n = awaiting_keys_.size(); n > 0; --n) {
        const AwaitingKeys entry = awaiting_keys_.front();
        const bool over = now_ns_ - entry.since_ns >= limits_.tls_key_wait_ns || n > kMaxAwaitingKeys;
        // Without news only the oldest, whose time may be over, are looked at.
        if (!grown && !over) return;
        awaiting_keys_.pop_front();
        Connection& connection = at(entry.index);
        if (connection.generation != entry.generation || !awaits_keys(connection)) continue;
        look_for_keys_of(connection, !over);
        if (awaits_keys(connection)) {
            awaiting_keys_.push_back(entry);
            continue;
        }
        connection.awaiting_keys = false;
        drain(connection);
        settle(connection, entry.index);
    }
}

void Tracker::look_for_keys_of(Connection& connection, bool may_still_come) {
    hand(connection, connection.client_side, Delivery::Kind::keys).flag = may_still_come;
}

void Tracker::give_up_keys(Connection& connection) {
    if (awaits_keys(connection)) look_for_keys_of(connection, false);
    connection.awaiting_keys = false;
}

}  // namespace tapscope
