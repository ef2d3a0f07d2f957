#include "source/pcap_file.hpp"

#include <algorithm>

#include "bytes.hpp"

namespace tapscope {
namespace {

constexpr std::uint32_t kMicros = 0xa1b2c3d4, kNanos = 0xa1b23c4d, kModified = 0xa1b2cd34;
constexpr std::size_t kFileHeader = 24;

}  // namespace

bool link_type_known(LinkType type) noexcept {
    switch (type) {
        case LinkType::null:
        case LinkType::ethernet:
        case LinkType::raw_bsd:
        case LinkType::raw_openbsd:
        case LinkType::raw:
        case LinkType::loop:
        case LinkType::linux_cooked:
        case LinkType::ipv4:
        case LinkType::ipv6:
        case LinkType::linux_cooked2:
        case LinkType::ppp:
        case LinkType::ppp_serial:
        case LinkType::pppoe:
        case LinkType::cisco_hdlc:
        case LinkType::ppi:
            return true;
    }
    return false;
}

bool PcapFile::is_magic(const std::uint8_t* p) noexcept {
    const std::uint32_t magic = load_le32(p), swapped = load_be32(p);
    return magic == kMicros || magic == kNanos || magic == kModified || swapped == kMicros ||
           swapped == kNanos || swapped == kModified;
}

bool PcapFile::is_file_header(const std::uint8_t* p) noexcept {
    // A packet that begins like this is of one microsecond in 2055 or later. Every record is asked.
    const std::uint32_t magic = load_le32(p);
    if (magic >> 16 == 0xa1b2) return is_magic(p) && load_le16(p + 4) == 2 && load_le16(p + 6) == 4;
    if ((magic & 0xffff) == 0xb2a1) return is_magic(p) && load_be16(p + 4) == 2 && load_be16(p + 6) == 4;
    return false;
}

PcapFile::PcapFile(std::unique_ptr<ByteStream> stream, std::uint16_t index, Counters& counters)
    : stream_(std::move(stream)), counters_(counters), index_(index) {
    report_.path = stream_->path();
    report_.format = "pcap" + (stream_->compression().empty() ? "" : "+" + stream_->compression());
    if (!stream_->ensure(kFileHeader))
        throw SourceError("the pcap file header is cut", report_.path,
                          static_cast<std::int64_t>(stream_->size()),
                          "The file ends inside its first 24 bytes; capture again.");
    begin_file(stream_->data());
    if (!link_type_known(link_))
        throw SourceError("unknown link type " + std::to_string(static_cast<unsigned>(link_)), report_.path,
                          20, kKnownLinkTypes);
    stream_->skip(kFileHeader);
}

void PcapFile::begin_file(const std::uint8_t* p) {
    std::uint32_t magic = load_le32(p);
    swapped_ = magic != kMicros && magic != kNanos && magic != kModified;
    if (swapped_) magic = load_be32(p);
    fraction_ns_ = magic == kNanos ? 1 : 1000;
    record_header_ = magic == kModified ? 24 : 16;
    const std::string resolution = magic == kNanos ? "1 ns" : "1 us";
    if (report_.resolution.find(resolution) == std::string::npos)  // files in one may differ
        report_.resolution += (report_.resolution.empty() ? "" : ", ") + resolution;
    // The upper bits of the field tell the length of the frame check sequence.
    const auto type = static_cast<std::uint16_t>(swapped_ ? load_be32(p + 20) : load_le32(p + 20));
    link_ = static_cast<LinkType>(type);
    if (std::find(report_.link_types.begin(), report_.link_types.end(), type) == report_.link_types.end())
        report_.link_types.push_back(type);
}

// False when its header is not whole yet, or names a link type that cannot be read.
bool PcapFile::go_on_in_next_file() {
    if (stream_->size() < kFileHeader) return false;
    begin_file(stream_->data());
    if (!link_type_known(link_)) {
        stop("source.bad_record", "another file begins at byte " + std::to_string(stream_->offset()) +
                                      ", of the unknown link type " +
                                      std::to_string(static_cast<unsigned>(link_)) + "; it was not read");
        return false;
    }
    if (report_.warning.empty())
        report_.warning = "several capture files lie behind one another in it, the second from byte " +
                          std::to_string(stream_->offset()) + " on; all were read";
    stream_->skip(kFileHeader);
    at_file_header_ = false;
    counters_.add("source.pcap_file_behind_another");
    return true;
}

void PcapFile::stop(const char* counter, const std::string& why) {
    ended_ = true;
    counters_.add(counter);
    report_.warning += (report_.warning.empty() ? "" : "; ") + why;
}

template <bool Swapped>
void PcapFile::fill_as(std::vector<Packet>& batch) {
    const auto u32 = [](const std::uint8_t* p) { return Swapped ? load_be32(p) : load_le32(p); };
    const std::uint8_t* p = stream_->data();
    const std::uint8_t* const end = p + stream_->size();
    const std::size_t header = record_header_;
    while (batch.size() < kBatch && static_cast<std::size_t>(end - p) >= header) {
        if (is_file_header(p)) [[unlikely]] {
            at_file_header_ = true;
            break;
        }
        const std::uint32_t captured = u32(p + 8);
        if (captured > kMaxCaptured) {
            stop("source.bad_record",
                 "a packet record claims " + std::to_string(captured) + " bytes at byte " +
                     std::to_string(stream_->offset() + static_cast<std::size_t>(p - stream_->data())) +
                     "; what follows was not read");
            break;
        }
        if (static_cast<std::size_t>(end - p) - header < captured) break;
        const std::uint32_t fraction = u32(p + 4);
        if (static_cast<std::int64_t>(fraction) * fraction_ns_ >= 1'000'000'000) [[unlikely]]
            counters_.add("source.bad_timestamp", 1, Unit::packets);
        batch.push_back({p + header, captured, u32(p + 12),
                         std::int64_t{u32(p)} * 1'000'000'000 + std::int64_t{fraction} * fraction_ns_, link_,
                         index_});
        note(batch.back());
        p += header + captured;
    }
    stream_->skip(static_cast<std::size_t>(p - stream_->data()));
}

void PcapFile::fill(std::vector<Packet>& batch) {
    batch.clear();
    while (!ended_) {
        if (!at_file_header_ || go_on_in_next_file()) swapped_ ? fill_as<true>(batch) : fill_as<false>(batch);
        if (!batch.empty() || ended_) return;
        if (at_file_header_ && stream_->size() >= kFileHeader) continue;
        if (stream_->more()) continue;
        if (stream_->waiting()) return;
        if (stream_->decode_error() != nullptr)
            stop("source.truncated_file", std::string(stream_->decode_error()) + "; read up to there");
        else if (stream_->size() > 0)
            stop("source.truncated_file", "the file is cut inside a packet at byte " +
                                              std::to_string(stream_->offset()) + "; read up to there");
        ended_ = true;
    }
}

}  // namespace tapscope
