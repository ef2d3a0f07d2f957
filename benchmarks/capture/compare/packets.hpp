// What the programs to compare with share: the walk over a classic pcap file, the TCP header, the table of flows.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace compare {

inline std::uint32_t le32(const std::uint8_t* p) {
    std::uint32_t v;
    std::memcpy(&v, p, 4);
    return v;
}
inline std::uint16_t be16(const std::uint8_t* p) { return static_cast<std::uint16_t>(p[0] << 8 | p[1]); }
inline std::uint32_t be32(const std::uint8_t* p) {
    return static_cast<std::uint32_t>(be16(p)) << 16 | be16(p + 2);
}

// Calls visit(bytes, captured, time_ns) for every packet; returns their number. Blocks of 256 KiB by read(2).
template <class Visit>
std::uint64_t walk(const char* path, Visit visit) {
    constexpr std::size_t block = 256 * 1024;
    const int file = open(path, O_RDONLY);
    if (file < 0) {
        std::perror(path);
        return 0;
    }
    std::vector<std::uint8_t> buffer(block + 512 * 1024);
    std::uint64_t packets = 0;
    std::size_t have = 0, header = 24;
    for (ssize_t got; (got = read(file, buffer.data() + have, block)) > 0;) {
        have += static_cast<std::size_t>(got);
        const std::uint8_t *p = buffer.data() + header, *end = buffer.data() + have;
        header = 0;
        while (end - p >= 16) {
            const std::uint32_t captured = le32(p + 8);
            if (static_cast<std::size_t>(end - p) < 16 + std::size_t{captured}) break;
            visit(p + 16, captured, std::int64_t{le32(p)} * 1'000'000'000 + le32(p + 4));
            ++packets;
            p += 16 + captured;
        }
        have = static_cast<std::size_t>(end - p);
        std::memmove(buffer.data(), p, have);
    }
    close(file);
    return packets;
}

struct Parsed {
    std::uint64_t low, high;  // both ends, the same for both directions
    const std::uint8_t* payload;
    std::uint32_t size, seq;
    bool from_low;
    std::uint16_t source_port, target_port;
};

// Ethernet (with VLAN tags), IPv4, TCP; false for everything else.
inline bool parse(const std::uint8_t* p, std::uint32_t n, Parsed& out) {
    if (n < 54) return false;
    std::uint32_t at = 14;
    std::uint16_t type = be16(p + 12);
    while ((type == 0x8100 || type == 0x88a8) && n >= at + 44) {
        type = be16(p + at + 2);
        at += 4;
    }
    if (type != 0x0800 || p[at + 9] != 6) return false;
    const std::uint32_t ip_header = (p[at] & 15u) * 4, total = be16(p + at + 2), tcp = at + ip_header;
    if (n < tcp + 20) return false;
    out.source_port = be16(p + tcp);
    out.target_port = be16(p + tcp + 2);
    const std::uint64_t source = std::uint64_t{be32(p + at + 12)} << 16 | out.source_port;
    const std::uint64_t target = std::uint64_t{be32(p + at + 16)} << 16 | out.target_port;
    out.from_low = source < target;
    out.low = out.from_low ? source : target;
    out.high = out.from_low ? target : source;
    const std::uint32_t tcp_header = p[tcp + 12] / 16u * 4;
    if (total < ip_header + tcp_header || n < at + total) return false;
    out.seq = be32(p + tcp + 4);
    out.payload = p + tcp + tcp_header;
    out.size = total - ip_header - tcp_header;
    return true;
}

// Open addressing; State is made once per flow.
template <class State>
class Flows {
public:
    State& find(const Parsed& packet) {
        std::size_t i = place(packet.low, packet.high);
        while (slots_[i].high != 0) {
            if (slots_[i].low == packet.low && slots_[i].high == packet.high) return slots_[i].state;
            i = (i + 1) & mask_;
        }
        if (++used_ * 2 > slots_.size()) {
            grow();
            return find(packet);
        }
        slots_[i].low = packet.low;
        slots_[i].high = packet.high;
        return slots_[i].state;
    }
    std::size_t size() const { return used_; }

private:
    struct Slot {
        std::uint64_t low = 0, high = 0;
        State state{};
    };
    std::size_t place(std::uint64_t low, std::uint64_t high) const {
        std::uint64_t h = (low ^ high * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
        return (h ^ h >> 32) & mask_;
    }
    void grow() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        mask_ = slots_.size() - 1;
        used_ = 0;
        for (Slot& slot : old) {
            if (slot.high == 0) continue;
            std::size_t i = place(slot.low, slot.high);
            while (slots_[i].high != 0) i = (i + 1) & mask_;
            slots_[i] = std::move(slot);
            ++used_;
        }
    }
    std::vector<Slot> slots_ = std::vector<Slot>(4096);
    std::size_t mask_ = 4095, used_ = 0;
};

}  // namespace compare
