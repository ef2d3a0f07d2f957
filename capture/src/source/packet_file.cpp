#include "source/packet_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace tapscope {
namespace {

constexpr std::size_t kBuffer = 256 * 1024;
constexpr std::int64_t kSecond = 1'000'000'000;

struct FileHeader {
    std::uint32_t magic = 0xa1b23c4d;  // nanoseconds, in the byte order of this machine
    std::uint16_t major = 2, minor = 4;
    std::uint32_t zone = 0, accuracy = 0, snaplen, link;
};
struct RecordHeader {
    std::uint32_t seconds, nanoseconds, captured, length;
};

}  // namespace

PacketFile::PacketFile(std::string path, const Rotation& rotation, LinkType link, std::uint32_t snaplen)
    : path_(std::move(path)), rotation_(rotation), link_(link), snaplen_(snaplen) {
    // Opened now, while there is the right to: an error comes before the capture begins. With the time in its name a
    // file waits for its first packet.
    if (!timed()) open(0);
}

std::string PacketFile::name(std::int64_t time_ns) {
    if (timed()) {
        const std::time_t seconds = time_ns / kSecond;
        std::tm broken{};
        localtime_r(&seconds, &broken);
        std::array<char, 4096> text;
        const std::size_t n = std::strftime(text.data(), text.size(), path_.c_str(), &broken);
        std::string stem = n > 0 ? std::string(text.data(), n) : path_;
        // Without a conversion, or with several files in what it tells apart, names would be the same and files would
        // write over each other.
        of_stem_ = number_ > 0 && stem == stem_ ? of_stem_ + 1 : 0;
        stem_ = std::move(stem);
        return of_stem_ == 0 ? stem_ : stem_ + "." + std::to_string(of_stem_);
    }
    if (rotation_.bytes > 0) {
        if (rotation_.files == 0) return number_ == 0 ? path_ : path_ + std::to_string(number_);
        const std::string digits = std::to_string(number_ % rotation_.files);
        const std::size_t width = std::to_string(rotation_.files - 1).size();
        return path_ + std::string(width - std::min(width, digits.size()), '0') + digits;
    }
    return path_;
}

void PacketFile::open(std::int64_t time_ns) {
    open_path_ = name(time_ns);
    // A descriptor of its own: closing the file must not close standard output.
    file_.reset(open_path_ == "-" ? fdopen(dup(STDOUT_FILENO), "wb") : std::fopen(open_path_.c_str(), "wb"));
    if (!file_)
        throw SourceError(
            std::string("cannot be written: ") + std::strerror(errno), open_path_, -1,
            "Check the path and its permissions; after giving up root (-Z) the folder must belong "
            "to that user.");
    std::setvbuf(file_.get(), nullptr, _IOFBF, kBuffer);
    written_ = 0;
    FileHeader header{};
    header.snaplen = snaplen_;
    header.link = static_cast<std::uint32_t>(link_);
    put(&header, sizeof header);
}

// A new file if it is time for one; false when there may be no more.
bool PacketFile::turn(std::int64_t time_ns) {
    if (turned_ns_ < 0) turned_ns_ = time_ns;
    if (!file_) {
        open(time_ns);
        return true;
    }
    const bool by_size = rotation_.bytes > 0 && written_ >= rotation_.bytes;
    const bool by_time = timed() && time_ns - turned_ns_ >= rotation_.seconds * kSecond;
    if (!by_size && !by_time) return true;
    if (timed() && rotation_.files > 0 && number_ + 1 >= rotation_.files) return false;
    flush();
    ++number_;
    if (by_time) turned_ns_ = time_ns;
    // A file that its size ended goes on under the name of its time.
    open(turned_ns_);
    return true;
}

std::size_t PacketFile::write(std::span<const Packet> packets) {
    std::size_t written = 0;
    for (const Packet& packet : packets) {
        full_ = full_ || !turn(packet.time_ns);
        if (full_) break;
        const RecordHeader header{static_cast<std::uint32_t>(packet.time_ns / kSecond),
                                  static_cast<std::uint32_t>(packet.time_ns % kSecond), packet.captured,
                                  packet.length};
        put(&header, sizeof header);
        put(packet.data, packet.captured);
        ++written;
    }
    return written;
}

void PacketFile::put(const void* data, std::size_t size) {
    if (std::fwrite(data, 1, size, file_.get()) != size) fail();
    written_ += size;
}

void PacketFile::flush() {
    if (file_ && !failed_ && std::fflush(file_.get()) != 0) fail();
}

bool PacketFile::lost() const noexcept {
    if (!file_ || open_path_ == "-") return false;
    struct stat ours{}, there{};
    if (::fstat(fileno(file_.get()), &ours) != 0) return false;
    // A folder that we may not look into any more (-Z) says nothing.
    if (::stat(open_path_.c_str(), &there) != 0) return errno == ENOENT || errno == ENOTDIR;
    return ours.st_dev != there.st_dev || ours.st_ino != there.st_ino;
}

// Told once: what is behind it, a spool's last rows, is still to be written.
void PacketFile::fail() {
    const int error = errno;
    failed_ = true;
    const std::string where = open_path_ == "-" ? "standard output" : open_path_;
    if (error == EINTR)
        throw SourceError(
            "a signal ended the capture while writing waited for the reader", where, -1,
            "The last packets are lost, at most 256 KiB of them; what was written before can be read.");
    if (error == EPIPE)
        throw SourceError("who read the packets is gone", where, -1,
                          "End the capture first, or let the reader go on to the end of its input.");
    throw SourceError(std::string("writing failed: ") + std::strerror(error), where, -1,
                      "Is the disk full? What was written before can be read.");
}

}  // namespace tapscope
