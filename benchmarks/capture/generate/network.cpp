#include "network.hpp"

#include <algorithm>
#include <cstring>

namespace generate {
namespace {

constexpr std::size_t kMss = 1448;
constexpr std::uint8_t kFin = 1, kSyn = 2, kPsh = 8, kAck = 16;

}  // namespace

// --- tap ---------------------------------------------------------------------------------------------------------

Tap::Tap(std::FILE* file, std::uint64_t seed, const Impairment& impairment)
    : file_(file), random_(seed ^ 0x7461700000000000u), impairment_(impairment) {
    std::string head;
    put_le(head, 0xa1b23c4d, 4);  // nanoseconds
    put_le(head, 2, 2);
    put_le(head, 4, 2);
    put_le(head, 0, 8);
    put_le(head, 262144, 4);
    put_le(head, 1, 4);  // Ethernet
    std::fwrite(head.data(), 1, head.size(), file_);
    bytes_ = head.size();
}

std::uint32_t Tap::new_frame() {
    if (free_.empty()) {
        frames_.emplace_back();
        return static_cast<std::uint32_t>(frames_.size() - 1);
    }
    const std::uint32_t frame = free_.back();
    free_.pop_back();
    return frame;
}

void Tap::packet(std::int64_t time_ns, std::string_view headers, std::string_view payload,
                 std::uint32_t first_row, std::uint32_t rows, std::uint64_t first_bytes) {
    const std::uint32_t index = new_frame();
    Frame& frame = frames_[index];
    frame.time_ns = time_ns;
    frame.first_row = first_row;
    frame.rows = rows;
    frame.first_bytes = first_bytes;
    frame.bytes.assign(headers);
    frame.bytes.append(payload);
    pending_ += frame.bytes.size() + 16;
    by_time_.push({time_ns, order_++, index});
}

void Tap::flush(std::int64_t until_ns) {
    while (!by_time_.empty() && by_time_.top().key <= until_ns) {
        const std::uint32_t frame = by_time_.top().frame;
        by_time_.pop();
        through(frame);
    }
}

// Slots are sixteenths of a place, so that a moved packet stands between two others.
void Tap::through(std::uint32_t index) {
    Frame& frame = frames_[index];
    slot_ += 16;
    pending_ -= frame.bytes.size() + 16;
    if (impairment_.lost > 0 && random_.chance(impairment_.lost)) {
        for (std::uint32_t i = 0; i < frame.rows; ++i)
            truth[frame.first_row + i].lost |= static_cast<std::uint8_t>(2 | (frame.first_bytes >> i & 1));
        free_.push_back(index);
    } else {
        const auto slot = [&] {
            if (impairment_.displaced <= 0 || !random_.chance(impairment_.displaced)) return slot_;
            return slot_ + random_.between(1, impairment_.places) * 16 + 8;
        };
        if (impairment_.duplicated > 0 && random_.chance(impairment_.duplicated)) {
            const std::uint32_t copy = new_frame();
            frames_[copy] = frames_[index];
            frames_[copy].time_ns += random_.between(1, 30) * us;  // of the switch's mirror
            by_slot_.push({slot() + random_.between(0, 8) * 16 + 4, order_++, copy});
        }
        by_slot_.push({slot(), order_++, index});
    }
    write_until(slot_);
}

void Tap::write_until(std::int64_t slot) {
    while (!by_slot_.empty() && by_slot_.top().key <= slot) {
        const std::uint32_t frame = by_slot_.top().frame;
        by_slot_.pop();
        write(frames_[frame]);
        free_.push_back(frame);
    }
}

void Tap::write(const Frame& frame) {
    std::uint32_t head[4] = {
        static_cast<std::uint32_t>(frame.time_ns / s), static_cast<std::uint32_t>(frame.time_ns % s),
        static_cast<std::uint32_t>(frame.bytes.size()), static_cast<std::uint32_t>(frame.bytes.size())};
    std::fwrite(head, 1, sizeof head, file_);
    std::fwrite(frame.bytes.data(), 1, frame.bytes.size(), file_);
    bytes_ += sizeof head + frame.bytes.size();
    ++packets_;
}

void Tap::finish() {
    flush(INT64_MAX);
    write_until(INT64_MAX);
}

// --- connection --------------------------------------------------------------------------------------------------

namespace {

// Ephemeral ports of a client host are used in turn, so that none comes again soon.
std::uint16_t ephemeral_port(std::uint32_t client) {
    static std::vector<std::uint16_t> next(1 << 20, 32768);
    std::uint16_t& port = next[client & ((1 << 20) - 1)];
    const std::uint16_t taken = port;
    port = port >= 60999 ? 32768 : static_cast<std::uint16_t>(port + 1);
    return taken;
}

std::uint32_t connections_made = 0;

}  // namespace

Connection::Connection(Tap& tap, Random& random, std::uint32_t client, std::uint32_t server,
                       std::uint16_t server_port)
    : tap_(tap),
      random_(random),
      address_{client, server},
      port_{ephemeral_port(client), server_port},
      number_(connections_made++) {
    for (Side& side : side_) {
        side.seq = static_cast<std::uint32_t>(random_.next());
        side.ip_id = static_cast<std::uint16_t>(random_.next());
        side.clock = static_cast<std::uint32_t>(random_.next());
    }
}

void Connection::emit(Direction d, std::uint8_t flags, std::string_view payload, std::int64_t now,
                      std::uint32_t first_row, std::uint32_t rows, std::uint64_t first_bytes) {
    Side& mine = side_[d];
    const Side& peer = side_[other(d)];
    char head[74];
    const auto be16 = [&](int at, unsigned v) {
        head[at] = static_cast<char>(v >> 8);
        head[at + 1] = static_cast<char>(v);
    };
    const auto be32 = [&](int at, std::uint32_t v) {
        be16(at, v >> 16);
        be16(at + 2, v & 0xffff);
    };
    const auto mac = [&](int at, std::uint32_t address) {
        be16(at, 0x0200);
        be32(at + 2, address);
    };
    mac(0, address_[other(d)]);
    mac(6, address_[d]);
    be16(12, 0x0800);
    const bool syn = flags & kSyn;
    const int options = syn ? 20 : 12;
    const int size = 54 + options;
    be16(14, 0x4500);
    be16(16, static_cast<unsigned>(40 + options) + static_cast<unsigned>(payload.size()));
    be16(18, mine.ip_id++);
    be16(20, 0x4000);  // do not fragment
    be16(22, 0x4006);  // time to live 64, TCP
    be16(24, 0);       // checksums are left to the card, as with offloading
    be32(26, address_[d]);
    be32(30, address_[other(d)]);
    be16(34, port_[d]);
    be16(36, port_[other(d)]);
    be32(38, mine.seq);
    be32(42, (flags & kAck) ? peer.seq : 0);
    be16(46, static_cast<unsigned>((20 + options) / 4) << 12 | flags);
    be16(48, syn ? 64240 : 501);
    be32(50, 0);
    int at = 54;
    if (syn) {
        be32(at, 0x020405b4);  // maximum segment size 1460
        be16(at + 4, 0x0402);  // selective acknowledgement permitted
        at += 6;
    } else {
        be16(at, 0x0101);
        at += 2;
    }
    be16(at, 0x080a);  // timestamps
    be32(at + 2, mine.clock + static_cast<std::uint32_t>(now / ms));
    be32(at + 6, (flags & kAck) ? peer.clock + static_cast<std::uint32_t>(now / ms) : 0);
    if (syn) be32(at + 10, 0x01030307);  // window scale 7
    tap_.packet(now, {head, static_cast<std::size_t>(size)}, payload, first_row, rows, first_bytes);
}

std::int64_t Connection::open(std::int64_t now) {
    const std::int64_t round = random_.between(60, 300) * us;
    emit(to_server, kSyn, {}, now, 0, 0, 0);
    ++side_[to_server].seq;
    emit(to_client, kSyn | kAck, {}, now + 10 * us, 0, 0, 0);
    ++side_[to_client].seq;
    emit(to_server, kAck, {}, now + round, 0, 0, 0);
    open_ = true;
    free_at = now + round + 5 * us;
    return free_at;
}

std::int64_t Connection::close(std::int64_t now) {
    if (!open_) return now;
    open_ = false;
    now = std::max(now, free_at);
    emit(to_server, kFin | kAck, {}, now, 0, 0, 0);
    ++side_[to_server].seq;
    emit(to_client, kFin | kAck, {}, now + 20 * us, 0, 0, 0);
    ++side_[to_client].seq;
    emit(to_server, kAck, {}, now + 100 * us, 0, 0, 0);
    return now + 110 * us;
}

std::uint32_t Connection::begin(Direction d, Protocol protocol, Kind kind, std::int64_t request) {
    const auto row = static_cast<std::uint32_t>(tap_.truth.size());
    Side& side = side_[d];
    if (side.starts.empty()) side.first_row = row;
    side.starts.push_back(side.pending.size());
    const auto seq = side.seq + static_cast<std::uint32_t>(side.pending.size());
    tap_.truth.push_back({0, 0, request, address_[0], seq, 0, number_, port_[0], port_[1],
                          static_cast<std::uint8_t>(d), static_cast<std::uint8_t>(protocol),
                          static_cast<std::uint8_t>(kind), 0});
    return row;
}

// The messages of one call must have been begun one after the other, with none of another connection between.
std::int64_t Connection::send(Direction d, std::int64_t now) {
    Side& side = side_[d];
    const std::string bytes = std::move(side.pending);
    side.pending.clear();
    const std::vector<std::size_t> starts = std::move(side.starts);
    side.starts.clear();
    const std::int64_t to_ack = random_.between(20, 60) * us;
    std::int64_t last = now;
    std::size_t row = 0;  // the message that holds the byte `at`
    int unacknowledged = 0;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t n = std::min(kMss, bytes.size() - at), end = at + n;
        std::uint64_t first_bytes = 0;
        std::size_t behind = row;
        while (behind < starts.size() && starts[behind] < end) {
            TruthRow& truth = tap_.truth[side.first_row + behind];
            if (starts[behind] >= at) {
                first_bytes |= std::uint64_t{1} << (behind - row);
                truth.begin_ns = now;
            }
            const std::size_t stop = behind + 1 < starts.size() ? starts[behind + 1] : bytes.size();
            truth.wire_bytes = static_cast<std::uint32_t>(stop - starts[behind]);
            truth.end_ns = now;
            ++behind;
        }
        emit(d, static_cast<std::uint8_t>(kAck | (end == bytes.size() ? kPsh : 0)), {bytes.data() + at, n},
             now, side.first_row + static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(behind - row),
             first_bytes);
        side.seq += static_cast<std::uint32_t>(n);
        last = std::max(last, now);
        if (++unacknowledged == 2) {
            last = std::max(last, now + to_ack);
            emit(other(d), kAck, {}, now + to_ack, 0, 0, 0);
            unacknowledged = 0;
        }
        at = end;
        row =
            behind - (behind > row && (behind < starts.size() ? starts[behind] : bytes.size()) > at ? 1 : 0);
        now += 1'200 + static_cast<std::int64_t>(random_.below(800));  // 10 Gbit/s
    }
    return last + 2 * us;
}

}  // namespace generate
