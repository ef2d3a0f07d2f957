// IP fragments to whole datagrams: RFC 791 section 3.2, RFC 8200 section 4.5, RFC 815.
//
// Overlap: the bytes that came first stay; what overlaps is counted (RFC 5722 has hosts drop such datagrams). A
// datagram is complete, and its segment is seen, with the last fragment that was missing: that is when its bytes were
// there. Bounded in time, datagrams, fragments and bytes; what does not become whole is counted when it is given up.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "counters.hpp"
#include "decode/segment.hpp"
#include "hash.hpp"

namespace tapscope {

struct FragmentKey {
    Address source, target;
    std::uint32_t id = 0;
    std::uint32_t tap_point = 0;  // copies taken elsewhere are datagrams of their own
    std::uint8_t protocol = 0;    // IPv6: 0, which marks the version too
    friend bool operator==(const FragmentKey&, const FragmentKey&) = default;
};

struct Fragment {
    const std::uint8_t* bytes;
    std::size_t captured, length;  // length: on the wire
    std::size_t offset;
    bool more;
    std::uint8_t protocol;  // what the datagram holds, as this fragment says
};

class Fragments {
public:
    explicit Fragments(Counters& counters) : counters_(counters) {}

    struct Whole {
        std::vector<std::uint8_t> bytes;  // up to the first byte that the snap length cut off
        std::size_t length;               // on the wire
        std::uint8_t protocol;
    };
    // The datagram, when this fragment completes it.
    std::optional<Whole> add(const FragmentKey& key, const Fragment& fragment, std::int64_t time_ns);
    // Counts what never became whole.
    void finish();

    static constexpr std::int64_t kWait_ns = 30'000'000'000;     // as hosts do
    static constexpr std::int64_t kRemember_ns = 1'000'000'000;  // copies of a whole datagram's fragments
    static constexpr std::size_t kDatagrams = 4096, kBytes = 16u << 20, kFragments = 1024;

private:
    struct Range {
        std::uint32_t begin, end;
    };
    struct Datagram {
        std::vector<std::uint8_t> bytes;
        std::vector<Range> came;              // every fragment, as it came
        std::vector<Range> covered;           // sorted, disjoint
        std::uint64_t kept = 0;               // captured bytes at their places
        std::uint32_t total = 0;              // 0: the last fragment was not seen
        std::uint32_t whole_to = UINT32_MAX;  // first byte that the snap length cut off
        std::uint64_t number = 0;
        std::int64_t first_ns = 0;
        std::uint8_t protocol = 0;
        bool done = false;
    };
    struct Turn {
        FragmentKey key;
        std::uint64_t number;
    };
    struct Hash {
        std::size_t operator()(const FragmentKey& key) const noexcept {
            return mix64(key.source.low ^ key.target.high ^ key.tap_point,
                         key.target.low ^ key.source.high ^ (std::uint64_t{key.id} << 8 | key.protocol));
        }
    };
    using Table = std::unordered_map<FragmentKey, Datagram, Hash>;

    void give_up(Table::iterator at);
    void make_room(std::int64_t now_ns);
    std::optional<Whole> refuse(const char* name) {
        counters_.add(name, 1, Unit::packets);
        return std::nullopt;
    }

    Counters& counters_;
    Table table_;
    std::deque<Turn> turns_;  // in order of their first fragment
    std::size_t bytes_ = 0;
    std::uint64_t number_ = 0;
};

}  // namespace tapscope
