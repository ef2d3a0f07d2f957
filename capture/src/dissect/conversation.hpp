// Feeds the ordered stream bytes of one connection to its dissector: finds the protocol, keeps what the dissector
// wants again, skips bodies by counting, and tells the Recorder which packet every byte came in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "dissect/registry.hpp"
#include "prefetch.hpp"
#include "record.hpp"

namespace tapscope {

// In the order of use: every packet is of another connection than the last one, as a rule. (Not on cache lines of its own:
// what that pads, a million times, is more than the memory that a million open connections may have.)
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

    // [begin, end), read from a packet of the microsecond `first_us` (modulo 2^32), came in one of `time_ns` before.
    void stamped_earlier(Direction direction, std::uint64_t begin, std::uint64_t end, std::uint32_t first_us,
                         std::int64_t time_ns);

    void tell_contents(std::size_t row, bool again) {
        recorder_.attach(exchange_);
        recorder_.contents_of(row, again);
    }

    // Into the cache: what bytes() of `direction` needs.
    void prefetch(Direction direction) const noexcept {
        prefetch_lines(&exchange_.at(direction), sizeof(MessageSide));
        prefetch_lines(&exchange_.requests, sizeof *this - offsetof(Exchange, requests));
    }
    // What the dissector keeps elsewhere, when the rest is there.
    void prefetch_dissector() const noexcept {
        std::visit(
            [](const auto& dissector) {
                if constexpr (requires { dissector.prefetch(); }) dissector.prefetch();
            },
            dissector_);
    }

    // While TLS waits for its secrets, bytes() and gap() must not be called.
    bool awaits_keys() const noexcept { return exchange_.keys_awaited; }
    // Goes on if they are there now, or without them when they will not come.
    void look_for_keys(bool may_still_come);

    Exchange& exchange() noexcept { return exchange_; }

private:
    static constexpr std::uint16_t kMaxProbes = 256;  // segments looked at before a direction is given up
    static constexpr std::size_t kMaxUndecided = 16 * 1024;
    static constexpr std::size_t kMaxIdleRoom = 4096;  // of Pending when it is empty

    // Bytes that must come again, at most kMaxPending, and the segments they came in.
    struct Pending {
        std::vector<std::uint8_t> kept;
        std::vector<Mark> marks;
        std::int64_t before_ns = -1;  // packet of the byte before `kept`
    };
    struct Half {
        std::uint64_t skip = 0;            // bytes still to be skipped by counting
        std::unique_ptr<Pending> pending;  // from the first time that bytes were kept on

        bool keeps() const noexcept { return pending != nullptr && !pending->kept.empty(); }
        std::size_t kept_size() const noexcept { return pending != nullptr ? pending->kept.size() : 0; }
        void start_keeping(Bytes bytes, std::int64_t before_ns, const Mark& mark) {
            if (pending == nullptr) pending = std::make_unique<Pending>();
            pending->kept.assign(bytes.begin(), bytes.end());
            pending->marks.assign(1, mark);
            pending->before_ns = before_ns;
        }
        void keep_more(Bytes bytes, const Mark& mark) {
            pending->kept.insert(pending->kept.end(), bytes.begin(), bytes.end());
            pending->marks.push_back(mark);
        }
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
    void leave(Direction direction, Half& half, Bytes bytes, Parsed& last);
    bool switch_to(Protocol next);
    void parse_kept(Direction direction, Half& half);
    void keep(Direction direction, Half& half, Bytes rest);
    void drop_kept(Half& half) noexcept;

    Exchange exchange_;
    Half halves_[2];
    AnyDissector dissector_;
    Recorder& recorder_;
    std::uint16_t probes_[2] = {};        // segments of each direction that were looked at for a protocol
    Protocol fixed_ = Protocol::unknown;  // by port map, until the first bytes come
};

}  // namespace tapscope
