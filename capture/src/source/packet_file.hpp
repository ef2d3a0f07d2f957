// Packets to pcap files with nanoseconds, in one file or in turns of a size or a time, as tcpdump's -C, -G and -W.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "source/packet.hpp"

namespace tapscope {

struct Rotation {
    std::uint64_t bytes = 0;   // a new file at this size; 0: never
    std::int64_t seconds = 0;  // a new file after this time of the packets' clock; 0: never
    std::uint32_t files = 0;  // by size alone: so many files in a ring; else: stop after so many; 0: no bound
};

class PacketFile {
public:
    // `path` may hold strftime's conversions where files turn by time; "-" is standard output. Throws SourceError.
    PacketFile(std::string path, const Rotation& rotation, LinkType link, std::uint32_t snaplen);

    // How many were written: fewer than given when the last file that may be written is full. Throws SourceError when
    // the disk is.
    std::size_t write(std::span<const Packet> packets);
    void flush();
    // Of the open file; empty before the first packet where names have the time in them.
    const std::string& open_path() const noexcept { return open_path_; }
    // Whether the open file was removed or replaced since: what is written has no name any more.
    bool lost() const noexcept;

private:
    struct Close {
        void operator()(std::FILE* file) const noexcept { std::fclose(file); }
    };
    bool timed() const noexcept { return rotation_.seconds > 0; }
    bool turn(std::int64_t time_ns);
    void open(std::int64_t time_ns);
    std::string name(std::int64_t time_ns);
    void put(const void* data, std::size_t size);
    [[noreturn]] void fail();

    std::string path_, open_path_;
    Rotation rotation_;
    LinkType link_;
    std::uint32_t snaplen_;
    std::unique_ptr<std::FILE, Close> file_;
    std::uint64_t written_ = 0;    // bytes of the open file
    std::uint64_t number_ = 0;     // of the open file
    std::int64_t turned_ns_ = -1;  // first packet of the time that the open file is of
    std::string stem_;             // what strftime made of `path_` for the open file
    std::uint64_t of_stem_ = 0;    // files of this stem before the open one
    bool full_ = false, failed_ = false;
};

}  // namespace tapscope
