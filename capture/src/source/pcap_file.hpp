// Classic pcap: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/
//
//     magic u32 | major u16 | minor u16 | reserved u32 | reserved u32 | snaplen u32 | link type u32
//     then per packet: seconds u32 | fraction u32 | captured u32 | length u32 | bytes
//
// Files that were simply put one behind the other (cat) are read one after the other: a file header where a record would
// begin.
#pragma once

#include <memory>

#include "source/byte_stream.hpp"
#include "source/packet.hpp"

namespace tapscope {

class PcapFile final : public Source {
public:
    PcapFile(std::unique_ptr<ByteStream> stream, std::uint16_t index, Counters& counters);
    void fill(std::vector<Packet>& batch) override;
    void do_not_wait() noexcept override { stream_->do_not_wait(); }
    bool waiting() const noexcept override { return stream_->waiting(); }
    std::shared_ptr<const void> hold() const noexcept override { return stream_->hold(); }
    std::uint64_t bytes_done() const noexcept override { return stream_->file_bytes_read(); }
    std::uint64_t bytes_total() const noexcept override { return stream_->file_size(); }
    static bool is_magic(const std::uint8_t* p) noexcept;
    // Whether these 8 bytes begin a file: a magic number and version 2.4.
    static bool is_file_header(const std::uint8_t* p) noexcept;

private:
    template <bool Swapped>
    void fill_as(std::vector<Packet>& batch);
    void begin_file(const std::uint8_t* header);
    bool go_on_in_next_file();
    void stop(const char* counter, const std::string& why);

    std::unique_ptr<ByteStream> stream_;
    Counters& counters_;
    std::uint16_t index_;
    LinkType link_ = LinkType::ethernet;
    bool swapped_ = false, ended_ = false;
    bool at_file_header_ = false;  // another file begins at the stream's next byte
    std::int64_t fraction_ns_ = 1000;
    std::size_t record_header_ = 16;  // 24 in a variant of the format with three more fields
};

// A record that claims more captured bytes than this is broken.
inline constexpr std::uint32_t kMaxCaptured = 16 * 1024 * 1024;

}  // namespace tapscope
