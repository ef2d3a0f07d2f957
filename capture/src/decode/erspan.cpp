// ERSPAN types II and III: https://datatracker.ietf.org/doc/html/draft-foschiano-erspan-03
//
//   II   version 1, VLAN 12 | class 3, encapsulation 2, truncated 1, session 10 | reserved 12, index 20
//   III  version 2, VLAN 12 | class 3, frame state 2, truncated 1, session 10 | timestamp u32
//        | group u16 | P 1, frame type 5, hardware 6, direction 1, granularity 2, O 1
//        O: platform 6, platform's fields 26 | platform's word u32
//
// The switch's time is taken for the packet's where the whole of it is there and it is UTC: seconds and nanoseconds
// (IEEE 1588), or a count of 100 ns or 100 us, each with its upper half in the platform's word, that lies within one
// second of the capture's time, either as it is or 37 s ahead (TAI, as IEEE 1588 counts). A clock that began with the
// switch can be tied to UTC only by the arrival of its packets; then the capture's time stays.
#include <cstdlib>

#include "bytes.hpp"
#include "decode/decode.hpp"

namespace tapscope {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000, kTaiAhead = 37 * kSecond;
constexpr std::uint32_t kSessionMask = 0x3ff;

}  // namespace

bool PacketDecoder::erspan2(Rest rest, Segment& segment) {
    constexpr std::size_t kHeader = 8;
    if (rest.captured < 4) return unreadable("decode.short_erspan");
    const unsigned version = rest.p[0] >> 4;
    if (version == 2) return erspan3(rest, segment);  // seen with the ether type of type II
    if (version != 1) return unreadable("decode.bad_erspan");
    if (rest.captured < kHeader) return unreadable("decode.short_erspan");
    note_tap(TapKind::erspan, load_be16(rest.p + 2) & kSessionMask);
    return ethernet(rest.skip(kHeader), segment);
}

bool PacketDecoder::erspan3(Rest rest, Segment& segment) {
    constexpr std::size_t kHeader = 12, kSubheader = 8;
    if (rest.captured < kHeader) return unreadable("decode.short_erspan");
    const std::uint8_t* p = rest.p;
    if (p[0] >> 4 != 2) return unreadable("decode.bad_erspan");
    note_tap(TapKind::erspan, load_be16(p + 2) & kSessionMask);
    const std::uint16_t bits = load_be16(p + 10);
    const bool more = (bits & 1) != 0;
    if (more && rest.captured < kHeader + kSubheader) return unreadable("decode.short_erspan");
    take_switch_time(bits >> 1 & 3, load_be32(p + 4), more ? p + kHeader : nullptr);
    const Rest inner = rest.skip(more ? kHeader + kSubheader : kHeader);
    constexpr unsigned kIpPacket = 2;
    return (bits >> 10 & 31) == kIpPacket ? ip(inner, segment) : ethernet(inner, segment);
}

void PacketDecoder::take_switch_time(unsigned granularity, std::uint32_t stamp,
                                     const std::uint8_t* subheader) {
    enum : unsigned { hundred_us = 0, hundred_ns = 1, ieee1588 = 2 };
    const auto keep = [&] { counters_.add("decode.erspan_timestamp_not_utc", 1, Unit::events); };
    if (subheader == nullptr) return keep();
    const unsigned platform = subheader[0] >> 2;
    const bool in_seconds = platform == 5 || platform == 6;
    if (!in_seconds && platform != 0 && platform != 3 && platform != 7) return keep();
    const std::uint64_t upper = load_be32(subheader + 4);
    __extension__ using i128 = __int128;
    i128 time = 0;
    if (granularity == ieee1588) {
        if (stamp >= kSecond) return keep();
        time = static_cast<i128>(upper) * kSecond + stamp;
    } else if (granularity != 3 && !in_seconds) {
        time = static_cast<i128>(upper << 32 | stamp) * (granularity == hundred_ns ? 100 : 100'000);
    } else {
        return keep();
    }
    for (const std::int64_t ahead : {std::int64_t{0}, kTaiAhead}) {
        const i128 utc = time - ahead;
        const i128 apart = utc - time_ns_;
        if (apart > -kSecond && apart < kSecond) {
            time_ns_ = static_cast<std::int64_t>(utc);
            return counters_.add("decode.erspan_timestamp", 1, Unit::events);
        }
    }
    keep();
}

}  // namespace tapscope
