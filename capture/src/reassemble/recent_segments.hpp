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

    void prefetch(const Segment& segment) const noexcept {
        __builtin_prefetch(&buckets_[place(segment) % kBuckets], 1);
    }

    void remember(const Segment& segment) noexcept {
        const std::uint64_t hash = place(segment);
        Bucket& bucket = buckets_[hash % kBuckets];
        // The four entries in turn, so that the oldest one goes.
        const std::uint16_t turn = bucket.entry[0].turn;
        Entry& entry = bucket.entry[turn % kWays];
        entry.tag = tag(hash);
        entry.time_us = micros(segment);
        entry.header_mix = segment.header_mix;
        entry.ip_id = segment.ip_id;
        bucket.entry[0].turn = static_cast<std::uint16_t>(turn + 1);
    }

    bool is_copy(const Segment& segment) const noexcept {
        const std::uint64_t hash = place(segment);
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
        std::uint16_t turn = 0;  // of the first entry: which one of the bucket is written next
    };
    struct alignas(64) Bucket {  // one cache line
        std::array<Entry, kWays> entry;
    };
    static std::uint64_t place(const Segment& segment) noexcept {
        const std::uint64_t what =
            std::uint64_t{segment.seq} << 32 | segment.length() << 3 | (segment.flags & 7u);  // FIN, SYN, RST
        return mix64(what, segment.hash + segment.side);
    }
    static std::uint32_t tag(std::uint64_t hash) noexcept {
        return static_cast<std::uint32_t>(hash >> 32) | 1;
    }
    static std::uint32_t micros(const Segment& segment) noexcept {
        return static_cast<std::uint32_t>(segment.time_ns / 1000);
    }

    std::int64_t copy_within_us_;
    std::vector<Bucket> buckets_ = std::vector<Bucket>(kBuckets);
};

}  // namespace tapscope
