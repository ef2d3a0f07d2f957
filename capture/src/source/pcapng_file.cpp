#include "source/pcapng_file.hpp"

#include <algorithm>

#include "bytes.hpp"
#include "source/pcap_file.hpp"

namespace tapscope {
namespace {

enum Block : std::uint32_t {
    kInterface = 1,
    kObsoletePacket = 2,
    kSimplePacket = 3,
    kStatistics = 5,
    kEnhancedPacket = 6,
    kSecrets = 10,
    kSection = 0x0A0D0D0A,
};
constexpr std::uint32_t kByteOrder = 0x1A2B3C4D;
constexpr std::size_t kMaxBlock = kMaxCaptured + 4096;
enum Option : std::uint16_t {
    kEnd = 0,
    kTimeResolution = 9,
    kTimeOffset = 14,
    kReceived = 4,
    kInterfaceDrops = 5,
    kKernelDrops = 7,
    kDropsBefore = 4,  // of a packet
};

}  // namespace

PcapngFile::PcapngFile(std::unique_ptr<ByteStream> stream, std::uint16_t index, Counters& counters)
    : stream_(std::move(stream)), counters_(counters), index_(index) {
    report_.path = stream_->path();
    report_.format = "pcapng" + (stream_->compression().empty() ? "" : "+" + stream_->compression());
    if (!stream_->ensure(12))
        throw SourceError("the pcapng section header is cut", report_.path,
                          static_cast<std::int64_t>(stream_->size()),
                          "The file ends inside its first block; capture again.");
    const std::uint32_t order = load_le32(stream_->data() + 8);
    if (order != kByteOrder && load_be32(stream_->data() + 8) != kByteOrder)
        throw SourceError("the pcapng section header is broken", report_.path, 8,
                          "The byte-order magic is missing; capture again.");
    swapped_ = order != kByteOrder;
}

std::uint16_t PcapngFile::u16(const std::uint8_t* p) const noexcept {
    return swapped_ ? load_be16(p) : load_le16(p);
}
std::uint32_t PcapngFile::u32(const std::uint8_t* p) const noexcept {
    return swapped_ ? load_be32(p) : load_le32(p);
}
std::uint64_t PcapngFile::u64(const std::uint8_t* p) const noexcept {
    return swapped_ ? load_be64(p) : load_le64(p);
}

void PcapngFile::stop(const char* counter, const std::string& why) {
    ended_ = true;
    counters_.add(counter);
    report_.warning = why;
}

template <class Visit>
void PcapngFile::options(const std::uint8_t* p, const std::uint8_t* end, Visit visit) const {
    while (end - p >= 4) {
        const std::uint16_t code = u16(p), size = u16(p + 2);
        const std::size_t padded = (std::size_t{size} + 3) & ~std::size_t{3};
        if (code == kEnd || static_cast<std::size_t>(end - p) - 4 < size) return;
        visit(code, p + 4, size);
        if (static_cast<std::size_t>(end - p) - 4 < padded) return;
        p += 4 + padded;
    }
}

void PcapngFile::section() {
    sum_drops();
    interfaces_.clear();
    counters_.add("source.pcapng_section");
}

void PcapngFile::interface_description(const std::uint8_t* body, std::size_t size) {
    if (size < 8) return counters_.add("source.bad_block");
    Interface fresh;
    fresh.link = static_cast<LinkType>(u16(body));
    fresh.snaplen = u32(body + 4);
    options(body + 8, body + size, [&](std::uint16_t code, const std::uint8_t* value, std::uint16_t length) {
        if (code == kTimeResolution && length >= 1) {
            const unsigned exponent = value[0] & 0x7f;
            if (value[0] & 0x80) {
                fresh.shift = std::min(exponent, 63u);
                if (exponent == 0) fresh.ticks_per_s = 1;
            } else {
                fresh.ticks_per_s = 1;
                for (unsigned i = 0; i < std::min(exponent, 19u); ++i) fresh.ticks_per_s *= 10;
            }
        } else if (code == kTimeOffset && length >= 8) {
            fresh.offset_s = static_cast<std::int64_t>(u64(value));
        }
    });
    if (!link_type_known(fresh.link)) counters_.add("source.unknown_link_type");
    const std::string resolution = fresh.shift > 0 ? "2^-" + std::to_string(fresh.shift) + " s"
                                   : fresh.ticks_per_s >= 1'000'000'000 ? "1 ns"
                                   : fresh.ticks_per_s == 1'000'000
                                       ? "1 us"
                                       : "1/" + std::to_string(fresh.ticks_per_s) + " s";
    if (report_.resolution.find(resolution) == std::string::npos)  // interfaces may differ
        report_.resolution += (report_.resolution.empty() ? "" : ", ") + resolution;
    report_.link_types.push_back(static_cast<std::uint16_t>(fresh.link));
    interfaces_.push_back(fresh);
}

void PcapngFile::interface_statistics(const std::uint8_t* body, std::size_t size) {
    if (size < 12 || u32(body) >= interfaces_.size()) return counters_.add("source.bad_block");
    Interface& interface = interfaces_[u32(body)];
    options(body + 12, body + size, [&](std::uint16_t code, const std::uint8_t* value, std::uint16_t length) {
        if (length < 8) return;
        if (code == kReceived) interface.received = u64(value);
        if (code == kInterfaceDrops) interface.dropped_by_interface = u64(value);
        if (code == kKernelDrops) interface.dropped_by_kernel = u64(value);
        if (code == kInterfaceDrops || code == kKernelDrops) interface.drops_known = true;
    });
}

// `data`: the packet with its options behind it.
void PcapngFile::dropped_before(std::uint32_t interface, const std::uint8_t* data, const std::uint8_t* end,
                                std::uint32_t captured) {
    const std::size_t padded = (std::size_t{captured} + 3) & ~std::size_t{3};
    if (static_cast<std::size_t>(end - data) <= padded || interface >= interfaces_.size()) [[likely]]
        return;
    options(data + padded, end, [&](std::uint16_t code, const std::uint8_t* value, std::uint16_t length) {
        if (code == kDropsBefore && length >= 8) interfaces_[interface].dropped_between += u64(value);
    });
}

void PcapngFile::sum_drops() {
    for (Interface& interface : interfaces_) {
        report_.received += interface.received;
        report_.dropped_by_interface += interface.dropped_by_interface;
        report_.dropped_by_kernel += interface.dropped_by_kernel;
        // Statistics of the interface count the same packets again, and say who dropped them.
        if (!interface.drops_known) report_.dropped_by_kernel += interface.dropped_between;
        report_.drops_known = report_.drops_known || interface.drops_known || interface.dropped_between > 0;
        interface.dropped_between = interface.received = interface.dropped_by_interface =
            interface.dropped_by_kernel = 0;
    }
}

void PcapngFile::packet(std::uint32_t interface, std::uint64_t ticks, const std::uint8_t* data,
                        std::size_t room, std::uint32_t captured, std::uint32_t length,
                        std::vector<Packet>& batch) {
    if (interface >= interfaces_.size())
        return counters_.add("source.packet_of_unknown_interface", 1, Unit::packets);
    if (captured > room) {
        counters_.add("source.bad_block");
        captured = static_cast<std::uint32_t>(room);
    }
    const Interface& from = interfaces_[interface];
    __extension__ using u128 = unsigned __int128;
    std::uint64_t whole, ns;
    if (from.shift > 0) {
        whole = ticks >> from.shift;
        ns = static_cast<std::uint64_t>(
            (u128{ticks & ((std::uint64_t{1} << from.shift) - 1)} * 1'000'000'000) >> from.shift);
    } else {
        whole = ticks / from.ticks_per_s;
        ns = static_cast<std::uint64_t>(u128{ticks % from.ticks_per_s} * 1'000'000'000 / from.ticks_per_s);
    }
    const std::uint64_t seconds = whole + static_cast<std::uint64_t>(from.offset_s);
    if (seconds > 9'000'000'000) [[unlikely]]
        counters_.add("source.bad_timestamp", 1, Unit::packets);
    last_ns_ = static_cast<std::int64_t>(seconds * 1'000'000'000 + ns);
    if (!link_type_known(from.link)) {
        ++report_.packets;
        return counters_.add("decode.unknown_link_type", 1, Unit::packets);
    }
    batch.push_back({data, captured, std::max(length, captured), last_ns_, from.link, index_});
    note(batch.back());
}

void PcapngFile::block(std::uint32_t type, const std::uint8_t* body, std::size_t size,
                       std::vector<Packet>& batch) {
    switch (type) {
        case kSection:
            return section();
        case kInterface:
            return interface_description(body, size);
        case kStatistics:
            return interface_statistics(body, size);
        case kEnhancedPacket:
            if (size < 20) return counters_.add("source.bad_block");
            dropped_before(u32(body), body + 20, body + size, u32(body + 12));
            return packet(u32(body), std::uint64_t{u32(body + 4)} << 32 | u32(body + 8), body + 20, size - 20,
                          u32(body + 12), u32(body + 16), batch);
        case kObsoletePacket:  // interface u16, drops u16, then as above
            if (size < 20) return counters_.add("source.bad_block");
            if (u16(body + 2) != 0xffff && u16(body) < interfaces_.size())  // 0xffff: not known
                interfaces_[u16(body)].dropped_between += u16(body + 2);
            return packet(u16(body), std::uint64_t{u32(body + 4)} << 32 | u32(body + 8), body + 20, size - 20,
                          u32(body + 12), u32(body + 16), batch);
        case kSimplePacket: {
            if (size < 4 || interfaces_.empty()) return counters_.add("source.bad_block");
            const std::uint32_t length = u32(body), snaplen = interfaces_[0].snaplen;
            const std::uint32_t captured = snaplen > 0 ? std::min(length, snaplen) : length;
            counters_.add("source.packet_without_time", 1, Unit::packets);
            const std::int64_t time = last_ns_;
            const std::size_t before = batch.size();
            packet(0, 0, body + 4, size - 4, captured, length, batch);
            last_ns_ = time;
            if (batch.size() > before) batch.back().time_ns = time;
            return;
        }
        case kSecrets: {  // type u32, length u32, data
            constexpr std::uint32_t tls_key_log = 0x544c534b;
            if (size < 8 || u32(body + 4) > size - 8) return counters_.add("source.bad_block");
            if (u32(body) != tls_key_log) return counters_.add("source.other_secrets");
            secrets_.append(reinterpret_cast<const char*>(body) + 8, u32(body + 4)).push_back('\n');
            return;
        }
        default:
            counters_.add("source.other_block");
            return;
    }
}

void PcapngFile::fill(std::vector<Packet>& batch) {
    batch.clear();
    while (!ended_ && batch.size() < kBatch) {
        const std::uint8_t* p = stream_->data();
        const std::size_t have = stream_->size();
        if (have >= 12) {
            if (load_le32(p) == kSection) swapped_ = load_le32(p + 8) != kByteOrder;
            const std::uint32_t type = u32(p), total = u32(p + 4);
            if (total < 12 || total % 4 != 0 || total > kMaxBlock ||
                (type == kSection && u32(p + 8) != kByteOrder)) {
                const bool large = total % 4 == 0 && total > kMaxBlock;
                stop("source.bad_record",
                     std::string(large ? "a block of " : "a block of impossible length ") +
                         std::to_string(total) + (large ? " bytes" : "") + " at byte " +
                         std::to_string(stream_->offset()) +
                         (large ? ", more than the " + std::to_string(kMaxBlock) + " that are read" : "") +
                         "; what follows was not read");
                break;
            }
            if (have >= total) {
                block(type, p + 8, total - 12, batch);
                stream_->skip(total);
                continue;
            }
        }
        if (!batch.empty()) return;  // the packets borrow the buffer that `more` moves
        if (stream_->more()) continue;
        if (stream_->waiting()) return;
        if (stream_->decode_error() != nullptr)
            stop("source.truncated_file", std::string(stream_->decode_error()) + "; read up to there");
        else if (stream_->size() > 0)
            stop("source.truncated_file", "the file is cut inside a block at byte " +
                                              std::to_string(stream_->offset()) + "; read up to there");
        ended_ = true;
    }
    if (ended_) {
        sum_drops();
        interfaces_.clear();
    }
}

}  // namespace tapscope
