// What a source gives: packets, borrowed from its buffer until the next call of `fill`.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "counters.hpp"

namespace tapscope {

// Link types by their numbers in capture files: https://www.tcpdump.org/linktypes.html
enum class LinkType : std::uint16_t {
    null = 0,
    ethernet = 1,
    ppp = 9,
    raw_bsd = 12,
    raw_openbsd = 14,
    ppp_serial = 50,
    pppoe = 51,  // begins with the PPPoE header
    raw = 101,
    cisco_hdlc = 104,
    loop = 108,
    linux_cooked = 113,
    ppi = 192,
    ipv4 = 228,
    ipv6 = 229,
    linux_cooked2 = 276,
};

struct Packet {
    const std::uint8_t* data;  // points into the source's buffer
    std::uint32_t captured;    // bytes at `data`
    std::uint32_t length;      // bytes on the wire
    std::int64_t time_ns;
    LinkType link;
    std::uint16_t source;  // index of the source in the order given
};

// What can be told about a source when it was read.
struct SourceReport {
    std::string path, format;
    std::uint64_t packets = 0, bytes = 0;  // bytes: captured bytes of packets
    std::int64_t first_ns = -1, last_ns = -1;
    std::vector<std::uint16_t> link_types;  // one per interface
    std::string resolution;
    std::string clock;                    // live: whose clock stamped the packets
    std::uint64_t truncated_packets = 0;  // cut by the snap length
    bool drops_known = false;
    std::uint64_t dropped_by_kernel = 0, dropped_by_interface = 0, received = 0;
    std::string warning;  // why reading stopped early, if it did, and what else is odd about it
};

// Unusable input: which file, where in it, and what to do.
struct SourceError : std::runtime_error {
    SourceError(const std::string& what, std::string at_path, std::int64_t at_offset, std::string what_to_do)
        : std::runtime_error(what),
          path(std::move(at_path)),
          offset(at_offset),
          remedy(std::move(what_to_do)) {}
    std::string path;
    std::int64_t offset;  // -1: nowhere in particular
    std::string remedy;
};

class Source {
public:
    static constexpr std::size_t kBatch = 512;
    virtual ~Source() = default;
    // Replaces `batch` by the next packets (at most kBatch); leaves it empty at the end of the input.
    virtual void fill(std::vector<Packet>& batch) = 0;
    // From now on fill() of a pipe does not wait for packets: an empty batch is the end only if not waiting().
    virtual void do_not_wait() noexcept {}
    virtual bool waiting() const noexcept { return false; }
    // Keeps the bytes of the last batch for as long as the result lives (see ByteStream::hold); nullptr: cannot.
    virtual std::shared_ptr<const void> hold() const noexcept { return nullptr; }
    virtual std::uint64_t bytes_done() const noexcept = 0;   // of the file as it lies on the disk
    virtual std::uint64_t bytes_total() const noexcept = 0;  // 0: not known
    const SourceReport& report() const noexcept { return report_; }
    // Lines of a TLS key log that came with the packets, since the last call.
    std::string take_secrets() { return std::exchange(secrets_, {}); }

protected:
    std::string secrets_;
    // Every packet passes here once.
    void note(const Packet& packet) noexcept {
        ++report_.packets;
        report_.bytes += packet.captured;
        report_.truncated_packets += packet.captured < packet.length;
        if (report_.first_ns < 0 || packet.time_ns < report_.first_ns) report_.first_ns = packet.time_ns;
        if (packet.time_ns > report_.last_ns) report_.last_ns = packet.time_ns;
    }
    SourceReport report_;
};

bool link_type_known(LinkType type) noexcept;
inline constexpr const char* kKnownLinkTypes =
    "Known are Ethernet, Linux cooked v1/v2, raw IP, BSD loopback, PPP, PPPoE, Cisco HDLC and PPI; capture "
    "on such "
    "an interface.";

}  // namespace tapscope
