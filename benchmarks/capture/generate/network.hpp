// Generated traffic on its way into a capture file: connections that write their packets down, and the tap that sorts
// them by time, loses, duplicates or displaces some, and notes what became of every message.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <queue>
#include <string>
#include <string_view>
#include <vector>

namespace generate {

enum Direction : std::uint8_t { to_server = 0, to_client = 1 };
enum Protocol : std::uint8_t { http = 1, ajp = 2, mysql = 3 };  // the numbers of the engine's tables
enum Kind : std::uint8_t { request = 0, response = 1, interim = 2, one_way = 3 };

inline Direction other(Direction d) { return d == to_server ? to_client : to_server; }

// splitmix64 (Steele, Lea, Flood, OOPSLA 2014): the same sequence everywhere for one seed.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }
    std::uint64_t below(std::uint64_t n) { return next() % n; }
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low + 1)));
    }
    double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
    bool chance(double p) { return unit() < p; }
    std::int64_t exponential(double mean) {
        return static_cast<std::int64_t>(-mean * std::log(1.0 - unit()));
    }
    template <class T, std::size_t N>
    const T& pick(const std::array<T, N>& from) {
        return from[below(N)];
    }

private:
    std::uint64_t state_;
};

// One row of the truth file, little endian, 48 bytes.
struct TruthRow {
    std::int64_t begin_ns, end_ns;  // packets of the first and the last byte
    std::int64_t request;           // row of the request that it answers, -1 none
    std::uint32_t client_addr, tcp_seq, wire_bytes, connection;
    std::uint16_t client_port, server_port;
    std::uint8_t direction, protocol, kind;
    std::uint8_t
        lost;  // bit 0: the packet of the first byte never reached the capture, bit 1: some packet of it
};
static_assert(sizeof(TruthRow) == 48);

struct Impairment {
    double displaced = 0, duplicated = 0, lost = 0;  // shares of the packets
    unsigned places = 64;                            // a displaced packet moves by 1 to this many
};

class Tap {
public:
    Tap(std::FILE* file, std::uint64_t seed, const Impairment& impairment);

    // A frame whose payload holds bytes of `rows` messages of the truth from `first_row` on; `first_bytes`: bit i is
    // set when it holds the first byte of message `first_row + i` (messages beyond 64 in one packet do not occur).
    void packet(std::int64_t time_ns, std::string_view headers, std::string_view payload,
                std::uint32_t first_row, std::uint32_t rows, std::uint64_t first_bytes);
    // Everything up to this time was generated and may be written.
    void flush(std::int64_t until_ns);
    void finish();

    std::vector<TruthRow> truth;
    std::uint64_t bytes_written() const { return bytes_; }
    std::uint64_t bytes_pending() const { return pending_; }
    std::uint64_t packets() const { return packets_; }

private:
    struct Frame {
        std::int64_t time_ns = 0;
        std::uint32_t first_row = 0, rows = 0;
        std::uint64_t first_bytes = 0;
        std::string bytes;
    };
    struct Place {
        std::int64_t key;
        std::uint64_t order;
        std::uint32_t frame;
        bool operator<(const Place& o) const { return key != o.key ? key > o.key : order > o.order; }
    };
    void through(std::uint32_t frame);
    void write_until(std::int64_t slot);
    void write(const Frame& frame);
    std::uint32_t new_frame();

    std::FILE* file_;
    Random random_;
    Impairment impairment_;
    std::vector<Frame> frames_;
    std::vector<std::uint32_t> free_;
    std::priority_queue<Place> by_time_, by_slot_;
    std::uint64_t order_ = 0, bytes_ = 0, pending_ = 0, packets_ = 0;
    std::int64_t slot_ = 0;
};

// One TCP connection between kernels that lose nothing themselves. Times only move forward.
class Connection {
public:
    Connection(Tap& tap, Random& random, std::uint32_t client, std::uint32_t server,
               std::uint16_t server_port);

    std::int64_t open(std::int64_t now);   // handshake; returns when the client may send
    std::int64_t close(std::int64_t now);  // FIN from both sides

    // What is appended after `begin` belongs to that message; returns its row in the truth.
    std::uint32_t begin(Direction d, Protocol protocol, Kind kind, std::int64_t request = -1);
    std::string& out(Direction d) { return side_[d].pending; }
    // Sends what was appended, in segments, with the peer's acknowledgements. Returns when both are through.
    std::int64_t send(Direction d, std::int64_t now);
    // A packet with nothing but an acknowledgement.
    void acknowledge(Direction d, std::int64_t now) { emit(d, 0x10, {}, now, 0, 0, 0); }

    std::int64_t free_at = 0;  // for pools

private:
    struct Side {
        std::uint32_t seq = 0;
        std::uint16_t ip_id = 0;
        std::uint32_t first_row = 0;
        std::string pending;
        std::vector<std::size_t> starts;  // of the pending messages, in `pending`
        std::uint32_t clock = 0;
    };
    void emit(Direction d, std::uint8_t flags, std::string_view payload, std::int64_t now,
              std::uint32_t first_row, std::uint32_t rows, std::uint64_t first_bytes);

    Tap& tap_;
    Random& random_;
    std::uint32_t address_[2];
    std::uint16_t port_[2];
    std::uint32_t number_;
    std::array<Side, 2> side_;
    bool open_ = false;
};

inline void put_be16(std::string& out, unsigned v) {
    out += static_cast<char>(v >> 8);
    out += static_cast<char>(v);
}
inline void put_be32(std::string& out, std::uint32_t v) {
    put_be16(out, v >> 16);
    put_be16(out, v & 0xffff);
}
inline void put_le(std::string& out, std::uint64_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(v >> 8 * i);
}

// Sessions run in the order of their next time; each makes one exchange at a time.
class Session {
public:
    virtual ~Session() = default;
    virtual std::int64_t step(std::int64_t now) = 0;  // returns the time of the next step
    virtual void finish(std::int64_t) {}
};

inline constexpr std::int64_t us = 1'000, ms = 1'000'000, s = 1'000'000'000;

}  // namespace generate
