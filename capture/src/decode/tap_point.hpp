// Where a packet was copied, as its outer headers tell: the outer VLAN, the tunnel's id, the mirror session.
//
// One number of 32 bits, the column `tap_point`; tapscope.store.codes decodes it:
//
//     0                            no tag, no tunnel
//     bits 24-30 kind, 0-23 id     VLAN: outer id in bits 0-11, the next tag's in bits 12-23
//     bit 31, bits 0-30 key        GRE with a key (the key's top bit does not fit)
//
// Of several the mirror's own encapsulation wins over overlays, they over MPLS and PPPoE, and these over VLANs;
// of two of one rank the outer one: what lies outside of a mirror's tunnel is only the way to the tap, and what
// lies inside belongs to the traffic.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tapscope {

// store/codes.py has the same names and numbers.
enum class TapKind : std::uint8_t {
    none = 0,
    vlan = 1,
    vxlan = 2,
    geneve = 3,
    nvgre = 4,
    erspan = 5,
    mpls = 6,
    pppoe = 7,
    gre = 8,  // without a key
    ip_in_ip = 9,
    tzsp = 10,
    gre_key = 128,
};

constexpr unsigned tap_rank(TapKind kind) noexcept {
    switch (kind) {
        case TapKind::none:
            return 0;
        case TapKind::gre:
        case TapKind::ip_in_ip:
            return 1;
        case TapKind::vlan:
            return 2;
        case TapKind::mpls:
        case TapKind::pppoe:
            return 3;
        case TapKind::vxlan:
        case TapKind::geneve:
        case TapKind::nvgre:
        case TapKind::gre_key:
            return 4;
        case TapKind::erspan:
        case TapKind::tzsp:
            return 5;
    }
    return 0;
}

constexpr std::uint32_t tap_code(TapKind kind, std::uint32_t id) noexcept {
    if (kind == TapKind::gre_key) return 0x8000'0000u | id;
    return static_cast<std::uint32_t>(kind) << 24 | (id & 0xff'ffff);
}

// What came from each tap point. Row 0 is traffic without tag and tunnel; its packets and bytes are what the other
// rows leave of the totals, so that the common case costs nothing.
class TapPoints {
public:
    static constexpr std::size_t kMost = 4096;
    struct Row {
        std::uint32_t code = 0;
        std::uint64_t packets = 0, bytes = 0;  // bytes: captured
        std::uint64_t copies = 0;              // segments that another one was the original of
    };

    // Row of a code; 0 when there are too many.
    std::uint16_t row(std::uint32_t code) {
        if (code == rows_[last_].code) return last_;
        const auto [at, fresh] = index_.try_emplace(code, static_cast<std::uint16_t>(rows_.size()));
        if (fresh) {
            if (rows_.size() == kMost) {
                index_.erase(at);
                return 0;
            }
            rows_.push_back({code});
        }
        return last_ = at->second;
    }
    Row& at(std::uint16_t row) noexcept { return rows_[row]; }
    std::uint32_t code(std::uint16_t row) const noexcept { return rows_[row].code; }
    const std::vector<Row>& rows() const noexcept { return rows_; }

private:
    std::vector<Row> rows_ = std::vector<Row>(1);
    std::unordered_map<std::uint32_t, std::uint16_t> index_{{0, 0}};
    std::uint16_t last_ = 0;
};

}  // namespace tapscope
