#include "source/live.hpp"

#include <linux/if_packet.h>
#include <pcap/pcap.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace tapscope {
namespace {

constexpr std::size_t kArena = 4 * 1024 * 1024;
constexpr int kWaitMs = 100;
constexpr std::uint32_t kClocksCompared = 100;

[[noreturn]] void fail(const std::string& what, const std::string& where, const std::string& remedy) {
    throw SourceError(what, where, -1, remedy);
}

}  // namespace

struct LiveSource::Handles {
    pcap_t* pcap = nullptr;
    ~Handles() {
        if (pcap != nullptr) pcap_close(pcap);
    }
};

LiveSource::LiveSource(const LiveSettings& settings, Counters& counters)
    : handles_(std::make_unique<Handles>()), counters_(counters) {
    report_.path = settings.interface;
    report_.format = "live";
    char error[PCAP_ERRBUF_SIZE] = "";
    pcap_t* pcap = handles_->pcap = pcap_create(settings.interface.c_str(), error);
    if (pcap == nullptr)
        fail(std::string("cannot open the interface: ") + error, settings.interface, "See ip link.");
    pcap_set_snaplen(pcap, settings.snaplen);
    pcap_set_promisc(pcap, settings.promiscuous ? 1 : 0);
    pcap_set_timeout(pcap, kWaitMs);
    pcap_set_buffer_size(pcap, settings.ring_bytes);
    if (pcap_set_tstamp_precision(pcap, PCAP_TSTAMP_PRECISION_NANO) != 0) fraction_ns_ = 1000;
    choose_clock(settings);
    const int status = pcap_activate(pcap);
    if (status < 0) {
        const std::string text = pcap_geterr(pcap);
        const std::string what = std::string("cannot capture: ") + pcap_statustostr(status) +
                                 (text.empty() ? "" : " (" + text + ")");
        fail(what, settings.interface,
             status == PCAP_ERROR_PERM_DENIED ? "Run as root or give the process CAP_NET_RAW."
                                              : "See ip link.");
    }
    fraction_ns_ = pcap_get_tstamp_precision(pcap) == PCAP_TSTAMP_PRECISION_NANO ? 1 : 1000;
    report_.resolution = fraction_ns_ == 1 ? "1 ns" : "1 us";
    const int type = pcap_datalink(pcap);
    link_ = static_cast<LinkType>(type);
    report_.link_types.push_back(static_cast<std::uint16_t>(type));
    if (!link_type_known(link_))
        fail("unknown link type " + std::to_string(type), settings.interface,
             "Capture on an Ethernet interface.");
    if (!settings.filter.empty()) {
        bpf_program program{};
        if (pcap_compile(pcap, &program, settings.filter.c_str(), 1, PCAP_NETMASK_UNKNOWN) != 0)
            fail(std::string("the filter is not valid: ") + pcap_geterr(pcap), settings.interface,
                 "See man pcap-filter.");
        const int set = pcap_setfilter(pcap, &program);
        pcap_freecode(&program);
        if (set != 0)
            fail(std::string("the filter was refused: ") + pcap_geterr(pcap), settings.interface, "");
    }
    if (settings.fanout >= 0) join_fanout(settings.fanout);
    if (pcap_setnonblock(pcap, 1, error) != 0) fail(error, settings.interface, "");
    arena_.resize(kArena);
}

LiveSource::~LiveSource() = default;

int LiveSource::descriptor() const noexcept { return pcap_get_selectable_fd(handles_->pcap); }

void LiveSource::choose_clock(const LiveSettings& settings) {
    report_.clock = "kernel, when it got the packet";
    if (settings.clock.empty()) return;
    const int type = pcap_tstamp_type_name_to_val(settings.clock.c_str());
    if (type < 0)
        fail("there is no time stamp type " + settings.clock, settings.interface,
             "host, host_hiprec, adapter, or adapter_unsynced.");
    const int status = pcap_set_tstamp_type(handles_->pcap, type);
    if (status != 0)
        fail("this interface does not stamp packets by " + settings.clock + ": " + pcap_statustostr(status),
             settings.interface,
             "Leave -j out for the kernel's clock; ethtool -T tells what the card can do.");
    report_.clock = settings.clock;
}

// Processes of one group share the packets of the interface; both directions of a connection go to the same one, by a
// hash of addresses and ports that does not know which is which. See packet(7), PACKET_FANOUT.
void LiveSource::join_fanout(int group) {
    const int what = (group & 0xffff) | (PACKET_FANOUT_HASH | PACKET_FANOUT_FLAG_DEFRAG) << 16;
    if (setsockopt(pcap_fileno(handles_->pcap), SOL_PACKET, PACKET_FANOUT, &what, sizeof what) != 0)
        fail(std::string("cannot join fan-out group ") + std::to_string(group) + ": " + std::strerror(errno),
             report_.path, "Every process of a group must capture on the same interface.");
}

// A card's clock may count from the machine's start, or be hours off: then times of messages are no UTC. Delays are
// right all the same.
void LiveSource::compare_clocks(const Packet& packet) {
    constexpr std::int64_t bearable_ns = 1'000'000'000;
    ++clocks_compared_;
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const std::int64_t apart = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - packet.time_ns;
    if (std::abs(apart) < bearable_ns) return;
    counters_.add("source.clock_off", 1, Unit::packets);
    if (report_.warning.empty())
        report_.warning = "packets are stamped " + std::to_string(apart / 1'000'000) +
                          " ms before the system's clock (" + report_.clock + "): their times are not UTC";
}

void LiveSource::take(std::uint32_t captured, std::uint32_t length, std::int64_t time_ns,
                      const std::uint8_t* data) {
    std::memcpy(arena_.data() + used_, data, captured);
    batch_->push_back({arena_.data() + used_, captured, length, time_ns, link_, 0});
    used_ += captured;
    if (clocks_compared_ < kClocksCompared) [[unlikely]]
        compare_clocks(batch_->back());
}

void LiveSource::fill(std::vector<Packet>& batch) {
    batch.clear();
    batch_ = &batch;
    used_ = 0;
    const auto callback = [](u_char* self, const pcap_pkthdr* header, const u_char* data) {
        auto* source = reinterpret_cast<LiveSource*>(self);
        const std::int64_t time_ns = std::int64_t{header->ts.tv_sec} * 1'000'000'000 +
                                     std::int64_t{header->ts.tv_usec} * source->fraction_ns_;
        source->take(header->caplen, header->len, time_ns, data);
        if (source->used_ + 262144 + 64 > source->arena_.size()) pcap_breakloop(source->handles_->pcap);
    };
    // On Linux a blocking pcap_dispatch waits for the first packet, however long that takes, whatever the timeout says:
    // wait here, so that the caller can look at the clock and at Ctrl-C on a silent wire.
    pollfd ready{pcap_get_selectable_fd(handles_->pcap), POLLIN, 0};
    poll(&ready, 1, kWaitMs);
    const int got =
        pcap_dispatch(handles_->pcap, static_cast<int>(kBatch), callback, reinterpret_cast<u_char*>(this));
    if (got == PCAP_ERROR) {
        counters_.add("source.live_error");
        fail(std::string("capturing stopped: ") + pcap_geterr(handles_->pcap), report_.path, "See ip link.");
    }
}

void LiveSource::update_counters() {
    pcap_stat stat{};
    if (pcap_stats(handles_->pcap, &stat) == 0) {
        report_.drops_known = true;
        report_.received = received_(stat.ps_recv);
        report_.dropped_by_kernel = dropped_by_kernel_(stat.ps_drop);
        report_.dropped_by_interface = dropped_by_interface_(stat.ps_ifdrop);
    }
}

}  // namespace tapscope
