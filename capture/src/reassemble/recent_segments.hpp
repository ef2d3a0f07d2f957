// Remembers what the latest segments looked like, to tell a copy made by the mirror from a retransmission made by TCP.
//
// A copy has the same sequence number and length and comes well under any retransmission timeout. Where IPv4 gives
// packets an identification, a copy has the same one and a retransmission a new one; otherwise a copy has the same
// acknowledgement, window and timestamps. Of fixed size: an entry that was overwritten makes a copy count as a
// retransmission, never the other way round.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "decode/segment.hpp"
#include "hash.hpp"

namespace tapscope {

class RecentSegments {
public:
    explicit RecentSegments(std::int64_t copy_within_ns) : copy_within_us_(copy_within_ns / 1000) {}

    void remember(std::uint32_t connection, const Segment& segment) noexcept {
        const std::uint64_t hash = place(connection, segment);
        Bucket& bucket = buckets_[hash % kBuckets];
        // The next of four entries in turn, so that the oldest one goes.
        bucket.entry[bucket.next++ % kWays] = {tag(hash), micros(segment), segment.header_mix, segment.ip_id};
    }

    bool is_copy(std::uint32_t connection, const Segment& segment) const noexcept {
        const std::uint64_t hash = place(connection, segment);
        for (const Entry& entry : buckets_[hash % kBuckets].entry) {
            if (entry.tag != tag(hash)) continue;
            const auto apart = static_cast<std::int32_t>(micros(segment) - entry.time_us);
            if (std::abs(apart) > copy_within_us_) continue;
            if (entry.ip_id != 0 || segment.ip_id != 0 ? entry.ip_id == segment.ip_id
                                                       : entry.header_mix == segment.header_mix)
                return true;
        }
        return false;
    }

private:
    static constexpr std::size_t kBuckets = 2048, kWays = 4;
    struct Entry {
        std::uint32_t tag = 0, time_us = 0, header_mix = 0;
        std::uint16_t ip_id = 0;
    };
    struct Bucket {
        std::array<Entry, kWays> entry;
        std::uint32_t next = 0;
    };
    static std::uint64_t place(std::uint32_t connection, const Segment& segment) noexcept {
        const std::uint64_t what = std::uint64_t{segment.seq} << 32 | segment.length() << 3 |
                                   (segment.flags & 7u);  // FIN, SYN, RST
        return mix64(what, std::uint64_t{connection} * 2 + segment.side);
    }
    static std::uint32_t tag(std::uint64_t hash) noexcept { return static_cast<std::uint32_t>(hash >> 32) | 1; }
    static std::uint32_t micros(const Segment& segment) noexcept {
        return static_cast<std::uint32_t>(segment.time_ns / 1000);
    }

    std::int64_t copy_within_us_;
    std::vector<Bucket> buckets_ = std::vector<Bucket>(kBuckets);
};

}  // namespace tapscope
