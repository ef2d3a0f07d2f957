#include "source/byte_stream.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <cerrno>
#include <cstring>

#include "source/packet.hpp"

namespace tapscope {
namespace {

class GzipDecoder : public Decoder {
public:
    GzipDecoder() { inflateInit2(&z_, 15 + 16); }
    ~GzipDecoder() override { inflateEnd(&z_); }
    GzipDecoder(const GzipDecoder&) = delete;
    GzipDecoder& operator=(const GzipDecoder&) = delete;
    Progress run(const std::uint8_t* in, std::size_t in_size, std::uint8_t* out,
                 std::size_t out_size) override {
        z_.next_in = const_cast<std::uint8_t*>(in);  // zlib does not write to it
        z_.avail_in = static_cast<unsigned>(in_size);
        z_.next_out = out;
        z_.avail_out = static_cast<unsigned>(out_size);
        const int result = inflate(&z_, Z_NO_FLUSH);
        if (in_size > z_.avail_in) inside_ = true;
        const Progress progress{in_size - z_.avail_in, out_size - z_.avail_out, nullptr};
        if (result == Z_STREAM_END) {
            inflateReset(&z_);  // gzip members may follow one another
            inside_ = false;
            return progress;
        }
        if (result != Z_OK && result != Z_BUF_ERROR)
            return {progress.used, progress.made, "broken gzip data"};
        return progress;
    }
    bool complete() override { return !inside_; }

private:
    z_stream z_{};
    bool inside_ = false;  // of a member
};

class ZstdDecoder : public Decoder {
public:
    ZstdDecoder() : stream_(ZSTD_createDStream()) {}
    ~ZstdDecoder() override { ZSTD_freeDStream(stream_); }
    ZstdDecoder(const ZstdDecoder&) = delete;
    ZstdDecoder& operator=(const ZstdDecoder&) = delete;
    Progress run(const std::uint8_t* in, std::size_t in_size, std::uint8_t* out,
                 std::size_t out_size) override {
        ZSTD_inBuffer input{in, in_size, 0};
        ZSTD_outBuffer output{out, out_size, 0};
        const std::size_t result = ZSTD_decompressStream(stream_, &output, &input);
        if (!ZSTD_isError(result)) {
            if (input.pos > 0 || output.pos > 0) inside_ = result != 0;
            return {input.pos, output.pos, nullptr};
        }
        // The library's bound of memory, which the zstd program has, too.
        const bool large = ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge;
        return {input.pos, output.pos,
                large ? "zstd data with a window above 128 MB (unpack them with zstd -d --long=31)"
                      : "broken zstd data"};
    }
    bool complete() override { return !inside_; }

private:
    ZSTD_DStream* stream_;
    bool inside_ = false;  // of a frame
};

class XzDecoder : public Decoder {
public:
    XzDecoder() { ready_ = lzma_stream_decoder(&stream_, UINT64_MAX, LZMA_CONCATENATED) == LZMA_OK; }
    ~XzDecoder() override { lzma_end(&stream_); }
    XzDecoder(const XzDecoder&) = delete;
    XzDecoder& operator=(const XzDecoder&) = delete;
    Progress run(const std::uint8_t* in, std::size_t in_size, std::uint8_t* out,
                 std::size_t out_size) override {
        stream_.next_in = in;
        stream_.avail_in = in_size;
        stream_.next_out = out;
        stream_.avail_out = out_size;
        const lzma_ret result = ready_ ? lzma_code(&stream_, LZMA_RUN) : LZMA_PROG_ERROR;
        const bool fine = result == LZMA_OK || result == LZMA_STREAM_END || result == LZMA_BUF_ERROR;
        return {in_size - stream_.avail_in, out_size - stream_.avail_out, fine ? nullptr : "broken xz data"};
    }
    bool complete() override {  // several streams may follow one another, so that only who is asked says so
        stream_.avail_in = stream_.avail_out = 0;
        return lzma_code(&stream_, LZMA_FINISH) == LZMA_STREAM_END;
    }

private:
    lzma_stream stream_ = LZMA_STREAM_INIT;
    bool ready_ = false;
};

bool begins(const std::uint8_t* p, std::size_t n, const char* magic, std::size_t magic_size) {
    return n >= magic_size && std::memcmp(p, magic, magic_size) == 0;
}

}  // namespace

ByteStream::ByteStream(const std::string& path) : path_(path == "-" ? "standard input" : path) {
    if (path == "-") {
        fd_ = STDIN_FILENO;
    } else {
        fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd_ < 0)
            throw SourceError(std::string("cannot be read: ") + std::strerror(errno), path, -1,
                              "Check the path and its permissions.");
        close_fd_ = true;
        struct stat info{};
        if (::fstat(fd_, &info) == 0 && S_ISDIR(info.st_mode)) {
            ::close(fd_);
            throw SourceError("is a directory, not a capture file", path, -1,
                              "Name the capture files in it.");
        }
        regular_ = S_ISREG(info.st_mode);
        if (regular_) file_size_ = static_cast<std::uint64_t>(info.st_size);
    }
    buffer_->resize(kBlock);
    end_ = read_file(buffer_->data(), kBlock);
    produced_ = end_;
    const std::uint8_t* p = buffer_->data();
    if (begins(p, end_, "\x1f\x8b", 2)) {
        decoder_ = std::make_unique<GzipDecoder>();
        compression_ = "gzip";
    } else if (begins(p, end_, "\x28\xb5\x2f\xfd", 4) ||
               (end_ >= 4 && (p[0] & 0xf0) == 0x50 && begins(p + 1, end_ - 1, "\x2a\x4d\x18", 3))) {
        // The other one is a frame to be skipped (RFC 8878, section 3.1.2), with which pzstd begins.
        decoder_ = std::make_unique<ZstdDecoder>();
        compression_ = "zstd";
    } else if (begins(p, end_,
                      "\xfd"
                      "7zXZ\0",
                      6)) {
        decoder_ = std::make_unique<XzDecoder>();
        compression_ = "xz";
    }
    if (decoder_) {
        packed_.assign(buffer_->begin(), buffer_->begin() + static_cast<std::ptrdiff_t>(end_));
        packed_end_ = end_;
        packed_.resize(kBlock);
        end_ = produced_ = 0;
    }
}

ByteStream::~ByteStream() {
    if (close_fd_) ::close(fd_);
}

std::size_t ByteStream::read_file(std::uint8_t* to, std::size_t n) {
    while (!file_ended_) {
        if (!regular_ && !wait_for_input()) break;
        if (waiting_) return 0;
        const ssize_t got = ::read(fd_, to, n);
        if (got > 0) {
            file_read_ += static_cast<std::uint64_t>(got);
            return static_cast<std::size_t>(got);
        }
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            throw SourceError(std::string("reading failed: ") + std::strerror(errno), path_,
                              static_cast<std::int64_t>(file_read_),
                              "Check the disk or the other end of the pipe.");
        file_ended_ = true;
    }
    return 0;
}

// False when the wait was given up.
bool ByteStream::wait_for_input() {
    constexpr int wait_ms = 200;
    pollfd ready{fd_, POLLIN, 0};
    if (!waits_) {
        waiting_ = poll(&ready, 1, 0) <= 0;
        return true;
    }
    while (!file_ended_ && stop_waiting != nullptr && poll(&ready, 1, wait_ms) <= 0)
        file_ended_ = stop_waiting();
    return !file_ended_;
}

bool ByteStream::produce() {
    if (!decoder_) {
        const std::size_t got = read_file(buffer_->data() + end_, buffer_->size() - end_);
        end_ += got;
        produced_ += got;
        return got > 0;
    }
    while (decode_error_ == nullptr) {
        if (packed_begin_ == packed_end_) {
            packed_begin_ = 0;
            packed_end_ = read_file(packed_.data(), packed_.size());
        }
        const auto [used, made, error] =
            decoder_->run(packed_.data() + packed_begin_, packed_end_ - packed_begin_, buffer_->data() + end_,
                          buffer_->size() - end_);
        packed_begin_ += used;
        end_ += made;
        produced_ += made;
        decode_error_ = error;
        if (made > 0) return true;
        if (waiting_ && packed_begin_ == packed_end_) return false;
        if (used == 0 && packed_begin_ == packed_end_ && file_ended_) {
            if (!decoder_->complete()) decode_error_ = "the compressed data are cut";
            return false;
        }
        if (used == 0 && packed_begin_ != packed_end_) return false;
    }
    return false;
}

std::shared_ptr<ByteStream::Block> ByteStream::free_block() {
    if (blocks_.empty()) blocks_.push_back(buffer_);
    for (const std::shared_ptr<Block>& block : blocks_)
        if (block != buffer_ && block.use_count() == 1) return block;
    return blocks_.emplace_back(std::make_shared<Block>(kBlock));
}

bool ByteStream::more() {
    const bool held = buffer_.use_count() > (blocks_.empty() ? 1 : 2);
    if (held) {
        std::shared_ptr<Block> fresh = free_block();
        if (fresh->size() < size() + kBlock) fresh->resize(size() + kBlock);
        std::memcpy(fresh->data(), data(), size());
        buffer_ = std::move(fresh);
    } else if (begin_ > 0) {
        std::memmove(buffer_->data(), data(), size());
    }
    end_ -= begin_;
    begin_ = 0;
    if (buffer_->size() - end_ < kBlock) buffer_->resize(end_ + kBlock);
    return produce();
}

}  // namespace tapscope
