// Feeds the ordered stream bytes of one connection to its dissector: finds the protocol, keeps what the dissector
// wants again, skips bodies by counting, and tells the Recorder which packet every byte came in.
#pragma once

#include <cstdint>
#include <vector>

#include "dissect/registry.hpp"
#include "record.hpp"

namespace tapscope {

class Conversation {
public:
    // `fixed` is the protocol by port map, or unknown to find it from content.
    Conversation(Recorder& recorder, std::int32_t conn, Protocol fixed);

    // The next bytes of one direction, from a packet of `time_ns` that acknowledges `ack` bytes of the other one.
    void bytes(Direction direction, Bytes bytes, std::int64_t time_ns, std::uint64_t ack) {
        MessageSide& side = exchange_.at(direction);
        Half& half = halves_[static_cast<unsigned>(direction)];
        const std::uint64_t end = side.delivered + bytes.size();
        recorder_.attach(exchange_);
        recorder_.arrived(direction, end, time_ns);
        if (half.skip > 0) {
            const std::uint64_t n = std::min<std::uint64_t>(half.skip, bytes.size());
            half.skip -= n;
            bytes = bytes.subspan(n);
        }
        if (!bytes.empty()) feed(direction, half, side, bytes, end, time_ns, ack);
        recorder_.delivered(direction, end, time_ns);
    }

    void gap(Direction direction, std::uint64_t missing);
    void end(Direction direction, std::int64_t time_ns, bool aborted);
    void retransmitted(Direction direction, std::uint64_t begin, std::uint64_t end, std::int64_t time_ns) {
        recorder_.attach(exchange_);
        recorder_.retransmitted(direction, begin, end, time_ns);
    }

    // Into the cache: what bytes() of `direction` needs first.
    void prefetch(Direction direction) const noexcept {
        const auto lines = [](const auto& part) {
            const char* const from = reinterpret_cast<const char*>(&part);
            for (std::size_t at = 0; at < sizeof part; at += 64) __builtin_prefetch(from + at, 1);
        };
        lines(exchange_.at(direction));
        lines(halves_[static_cast<unsigned>(direction)]);
        lines(dissector_);
    }

    Exchange& exchange() noexcept { return exchange_; }

private:
    static constexpr std::uint32_t kMaxProbes = 256;  // segments looked at before a direction is given up
    static constexpr std::size_t kMaxUndecided = 16 * 1024;

    struct Half {
        std::uint64_t skip = 0;          // bytes still to be skipped by counting
        std::vector<std::uint8_t> kept;  // bytes that must come again, at most kMaxPending
        std::vector<Mark> marks;         // the segments they came in
        std::int64_t before_ns = -1;     // packet of the byte before `kept`
        std::uint32_t probes = 0;
    };

    void feed(Direction direction, Half& half, MessageSide& side, Bytes bytes, std::uint64_t end,
              std::int64_t time_ns, std::uint64_t ack);
    bool identify(Direction direction, Half& half, Bytes& bytes, std::uint64_t end, std::int64_t time_ns,
                  std::uint64_t ack);
    bool take_proxy_header(Half& half, Bytes& bytes, bool joined, std::uint64_t end, std::int64_t time_ns,
                           std::uint64_t ack);
    bool settle(Protocol protocol, Direction direction, Half& half, bool alone);
    void parse_all(Direction direction, Half& half, Bytes bytes);
    Bytes parse_some(Direction direction, Half& half, Bytes bytes, Parsed& last);
    bool switch_to(Protocol next);
    void parse_kept(Direction direction, Half& half);
    void keep(Direction direction, Half& half, Bytes rest);
    void drop_kept(Half& half) noexcept;

    Recorder& recorder_;
    Exchange exchange_;
    Half halves_[2];
    AnyDissector dissector_;
    Protocol fixed_ = Protocol::unknown;  // by port map, until the first bytes come
};

}  // namespace tapscope
