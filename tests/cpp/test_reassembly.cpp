// Held segments, flow table, mirror copies and hashes against plainly right twins.
#include <array>
#include <map>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "conversation_tap.hpp"
#include "hash.hpp"
#include "reassemble/flow_table.hpp"
#include "reassemble/recent_segments.hpp"
#include "reassemble/stream.hpp"

using namespace tapscope;
using namespace tapscope::test;

namespace {

Segment segment_of(const std::vector<std::uint8_t>& bytes, std::uint32_t seq = 0) {
    Segment segment{};
    segment.payload = bytes.data();
    segment.captured = static_cast<std::uint32_t>(bytes.size());
    segment.flags = tcp_flag::ack;
    segment.seq = seq;
    return segment;
}

// The twin: one cell a byte; what came first stays.
void held_segments_keep_the_bytes_seen_first() {
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        constexpr std::size_t kSize = 200;
        std::array<int, kSize> twin;
        twin.fill(-1);
        HeldSegments held;
        std::uint64_t added = 0, overlap = 0, twin_added = 0, twin_overlap = 0;
        for (int i = 0; i < 30; ++i) {
            const std::size_t begin = random() % kSize;
            const std::size_t length = 1 + random() % std::min<std::size_t>(40, kSize - begin);
            std::vector<std::uint8_t> bytes(length);
            for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
            const auto result = held.add(begin, segment_of(bytes), static_cast<std::uint64_t>(i));
            added += result.bytes;
            overlap += result.overlap;
            for (std::size_t k = 0; k < length; ++k) {
                if (twin[begin + k] < 0) {
                    twin[begin + k] = bytes[k];
                    ++twin_added;
                } else {
                    ++twin_overlap;
                }
            }
        }
        expect(added == twin_added && overlap == twin_overlap, "bytes added and overlapping are counted");
        std::array<int, kSize> got;
        got.fill(-1);
        std::uint64_t last_end = 0;
        while (!held.empty()) {
            const HeldSegment piece = held.take_front();
            expect(piece.offset >= last_end, "pieces are sorted and disjoint");
            last_end = piece.end();
            for (std::size_t k = 0; k < piece.captured; ++k) got[piece.offset + k] = piece.data[k];
        }
        expect(got == twin, "held bytes equal the twin's");
        expect(held.bytes() == 0, "taken bytes are not counted as held");
    }
}

void rebasing_cuts_what_lies_before_the_start() {
    HeldSegments held;
    const std::vector<std::uint8_t> bytes = {1, 2, 3, 4, 5};
    held.add(10, segment_of(bytes), 1);
    held.add(20, segment_of(bytes), 2);
    held.add(30, segment_of(bytes), 3);
    expect_equal(std::to_string(held.rebase(22)), "7", "bytes before the start are dropped");
    expect_equal(std::to_string(held.front().offset) + " " + std::to_string(held.front().captured) + " " +
                     std::to_string(held.front().data[0]),
                 "0 3 3", "a segment over the start is cut");
    held.take_front();
    expect_equal(std::to_string(held.front().offset), "8", "what lies behind moves with it");
}

void streams_unwrap_numbers_beyond_4_gib() {
    Stream stream;
    stream.base_provisionally(0xfffffff0u);
    stream.anchor(Stream::kProvisional);
    stream.next = (std::uint64_t{5} << 32) + 100;
    const auto raw = static_cast<std::uint32_t>(stream.base_seq + stream.next);
    expect(stream.from_next(raw) == 0 && stream.from_next(raw + 7) == 7 && stream.from_next(raw - 7) == -7,
           "distance is modulo 2^32");
}

void flow_table_agrees_with_a_map() {
    FlowTable table;
    std::unordered_map<std::uint32_t, std::uint64_t> twin;  // index to hash
    std::mt19937_64 random(3);
    for (int i = 0; i < 60'000; ++i) {
        const auto index = static_cast<std::uint32_t>(random() % 20'000);
        const auto known = twin.find(index);
        if (known == twin.end()) {
            const std::uint64_t hash = random() % 5'000 * 0x100000001u;  // many equal hashes
            table.insert(hash, index);
            twin.emplace(index, hash);
        } else {
            table.erase(known->second, index);
            twin.erase(known);
        }
    }
    expect(table.size() == twin.size(), "sizes agree");
    for (std::uint32_t index = 0; index < 20'000; ++index) {
        const auto known = twin.find(index);
        if (known == twin.end()) continue;
        const auto found =
            table.find(known->second, [&](std::uint32_t candidate) { return candidate == index; });
        expect(found == index, "every index is found");
    }
}

void copies_are_told_from_retransmissions() {
    RecentSegments recent(5'000'000);
    const std::vector<std::uint8_t> bytes(100);
    Segment first = segment_of(bytes, 1000);
    first.hash = 42;
    first.ip_id = 7;
    first.time_ns = 1'000'000'000;
    recent.remember(first);
    Segment other = first;
    other.time_ns += 900'000;
    expect(recent.find(other) != nullptr, "the same IP identification within 5 ms");
    other.ip_id = 8;
    expect(recent.find(other) == nullptr, "a new IP identification is a retransmission");
    other = first;
    other.time_ns += 6'000'000;
    expect(recent.find(other) == nullptr, "too late for a mirror");
    other = first;
    other.side = 1;
    expect(recent.find(other) == nullptr, "the other direction is another segment");
    Segment six = first;
    six.seq = 2000;
    six.ip_id = 0;
    six.header_mix = 5;
    recent.remember(six);
    expect(recent.find(six) != nullptr, "without identification: the same header");
    six.header_mix = 6;
    expect(recent.find(six) == nullptr, "without identification: new timestamps are a retransmission");
}

// Reference values of SipHash-1-3, key 00 01 .. 0f, little endian.
void siphash_gives_the_reference_values() {
    const HashKey key{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    expect(siphash13(key, {}) == 0xabac0158050fc4dcu, "empty input");
    std::vector<std::uint8_t> bytes;
    std::map<std::uint64_t, std::size_t> seen;
    for (std::size_t n = 0; n < 64; ++n) {
        expect(seen.emplace(siphash13(key, bytes), n).second, "every length has its own hash");
        bytes.push_back(static_cast<std::uint8_t>(n));
    }
}

}  // namespace

int main() {
    held_segments_keep_the_bytes_seen_first();
    rebasing_cuts_what_lies_before_the_start();
    streams_unwrap_numbers_beyond_4_gib();
    flow_table_agrees_with_a_map();
    copies_are_told_from_retransmissions();
    siphash_gives_the_reference_values();
    return failures == 0 ? 0 : 1;
}
