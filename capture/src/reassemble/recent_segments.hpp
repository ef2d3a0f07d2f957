// Remembers what the latest segments looked like, so that one that comes again can be judged: a copy made by the mirror
// is the same packet, a retransmission is a new one with the same bytes.
//
// Two segments look the same when flow, direction, sequence number, length and flags agree, acknowledgement, window and
// the last options (usually the timestamps), the first and the last bytes of the payload, and IPv4's identification.
// MAC addresses, tags, tunnels, TTL and checksums are not looked at: they differ between places. copies.cpp decides
// what looking the same means. Of fixed size: an entry that was overwritten makes a copy count as a retransmission,
// never the other way round.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "decode/segment.hpp"
#include "hash.hpp"
#include "prefetch.hpp"

namespace tapscope {

class RecentSegments {
public:
    struct Entry {
        std::uint32_t tag = 0, time_us = 0, look = 0;
        std::uint16_t tap = 0;    // where it was seen first
        std::uint8_t copies = 0;  // saturating
        std::uint8_t turn = 0;    // of a bucket's first entry: which one is written next
    };

    explicit RecentSegments(std::int64_t copy_within_ns) : copy_within_us_(copy_within_ns / 1000) {}

    void prefetch(const Segment& segment) const noexcept {
        prefetch_line(&buckets_[place(segment) % kBuckets]);
    }

    void remember(const Segment& segment) noexcept {
        const std::uint64_t hash = place(segment);
        Bucket& bucket = buckets_[hash % kBuckets];
        // The four entries in turn, so that the oldest one goes.
        const std::uint8_t turn = bucket.entry[0].turn;
        Entry& entry = bucket.entry[turn % kWays];
        entry.tag = tag(hash);
        entry.time_us = micros(segment);
        entry.look = look(segment);
        entry.tap = segment.tap;
        entry.copies = 0;
        bucket.entry[0].turn = static_cast<std::uint8_t>(turn + 1);
    }

    // The nearest in time of those that look the same and came within the time of a copy; nullptr: none.
    Entry* find(const Segment& segment) noexcept {
        const std::uint64_t hash = place(segment);
        Entry* best = nullptr;
        for (Entry& entry : buckets_[hash % kBuckets].entry) {
            if (entry.tag != tag(hash) || apart_us(entry, segment) > copy_within_us_) continue;
            if (entry.look != look(segment)) continue;
            if (best == nullptr || apart_us(entry, segment) < apart_us(*best, segment)) best = &entry;
        }
        return best;
    }

    // Time between the two, whichever came first.
    static std::int64_t apart_us(const Entry& entry, const Segment& segment) noexcept {
        return std::abs(std::int64_t{static_cast<std::int32_t>(micros(segment) - entry.time_us)});
    }
    static std::uint32_t micros(const Segment& segment) noexcept {
        return static_cast<std::uint32_t>(segment.time_ns / 1000);
    }

private:
    static constexpr std::size_t kBuckets = 2048, kWays = 4;
    struct alignas(64) Bucket {  // one cache line
        std::array<Entry, kWays> entry;
    };
    static std::uint64_t place(const Segment& segment) noexcept {
        constexpr std::uint8_t kMarks = tcp_flag::fin | tcp_flag::syn | tcp_flag::rst;
        const std::uint64_t what =
            std::uint64_t{segment.seq} << 32 | segment.length() << 3 | (segment.flags & kMarks);
        // Acknowledgements without data share a sequence number: the rest of their look spreads them.
        return mix64(segment.length() == 0 ? what ^ look(segment) : what, segment.hash + segment.side);
    }
    static std::uint32_t tag(std::uint64_t hash) noexcept {
        return static_cast<std::uint32_t>(hash >> 32) | 1;
    }
    static std::uint32_t look(const Segment& segment) noexcept {
        std::uint64_t payload = 0;
        if (segment.captured >= 8) {
            payload = load_host<std::uint64_t>(segment.payload);
            if (segment.missing == 0)
                payload += detail::rotl(load_host<std::uint64_t>(segment.payload + segment.captured - 8), 23);
        } else if (segment.captured > 0) {
            payload = detail::tail_word(segment.payload, segment.captured);
        }
        return static_cast<std::uint32_t>(
            mix64(payload, std::uint64_t{segment.header_mix} << 16 | segment.ip_id));
    }

    std::int64_t copy_within_us_;
    std::vector<Bucket> buckets_ = std::vector<Bucket>(kBuckets);
};

}  // namespace tapscope
