// pcapng: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/
//
//     block: type u32 | total length u32 | body, padded to 4 bytes | total length u32
//     a section header block gives the byte order of what follows and starts a new list of interfaces
#pragma once

#include <memory>

#include "source/byte_stream.hpp"
#include "source/packet.hpp"

namespace tapscope {

class PcapngFile final : public Source {
public:
    PcapngFile(std::unique_ptr<ByteStream> stream, std::uint16_t index, Counters& counters);
    void fill(std::vector<Packet>& batch) override;
    void do_not_wait() noexcept override { stream_->do_not_wait(); }
    bool waiting() const noexcept override { return stream_->waiting(); }
    std::shared_ptr<const void> hold() const noexcept override { return stream_->hold(); }
    std::uint64_t bytes_done() const noexcept override { return stream_->file_bytes_read(); }
    std::uint64_t bytes_total() const noexcept override { return stream_->file_size(); }

private:
    struct Interface {
        LinkType link = LinkType::ethernet;
        std::uint32_t snaplen = 0;
        std::uint64_t ticks_per_s = 1'000'000;
        unsigned shift = 0;  // > 0: 2^-shift seconds a tick instead
        std::int64_t offset_s = 0;
        std::uint64_t received = 0, dropped_by_interface = 0,
                      dropped_by_kernel = 0;  // of the latest statistics
        bool drops_known = false;
        std::uint64_t dropped_between = 0;  // told by packets: lost before them, by whomever
    };
    std::uint16_t u16(const std::uint8_t* p) const noexcept;
    std::uint32_t u32(const std::uint8_t* p) const noexcept;
    std::uint64_t u64(const std::uint8_t* p) const noexcept;
    void block(std::uint32_t type, const std::uint8_t* body, std::size_t size, std::vector<Packet>& batch);
    void section();
    void interface_description(const std::uint8_t* body, std::size_t size);
    void interface_statistics(const std::uint8_t* body, std::size_t size);
    void packet(std::uint32_t interface, std::uint64_t ticks, const std::uint8_t* data, std::size_t room,
                std::uint32_t captured, std::uint32_t length, std::vector<Packet>& batch);
    void dropped_before(std::uint32_t interface, const std::uint8_t* data, const std::uint8_t* end,
                        std::uint32_t captured);
    void sum_drops();
    void stop(const char* counter, const std::string& why);
    template <class Visit>
    void options(const std::uint8_t* p, const std::uint8_t* end, Visit visit) const;

    std::unique_ptr<ByteStream> stream_;
    Counters& counters_;
    std::uint16_t index_;
    bool swapped_ = false, ended_ = false;
    std::vector<Interface> interfaces_;
    std::int64_t last_ns_ = 0;  // time for simple packet blocks, which have none
};

}  // namespace tapscope
