// Bytes of a file, a pipe or standard input in order, with gzip, zstd and xz undone on the way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tapscope {

// While a pipe has nothing to read, asked a few times a second on the reading thread: true ends the input there.
// nullptr: wait as long as it takes.
inline thread_local bool (*stop_waiting)() = nullptr;

// A stage that turns compressed bytes into plain ones.
class Decoder {
public:
    virtual ~Decoder() = default;
    struct Progress {
        std::size_t used, made;
        const char* error;  // nullptr: fine
    };
    virtual Progress run(const std::uint8_t* in, std::size_t in_size, std::uint8_t* out,
                         std::size_t out_size) = 0;
    // Whether the data may end here. Nothing is run behind it.
    virtual bool complete() = 0;
};

// A contiguous window on the stream that moves forward. Memory: one block, or the largest record asked for.
class ByteStream {
public:
    static constexpr std::size_t kBlock = 256 * 1024;
    explicit ByteStream(const std::string& path);  // "-" is standard input; throws SourceError
    ~ByteStream();
    ByteStream(const ByteStream&) = delete;
    ByteStream& operator=(const ByteStream&) = delete;

    const std::uint8_t* data() const noexcept { return buffer_->data() + begin_; }
    std::size_t size() const noexcept { return end_ - begin_; }
    void skip(std::size_t n) noexcept { begin_ += n; }
    // Reads one more block behind what is there; moves what is there to the front, so that old pointers die, unless
    // somebody holds the block that they point into. False at the end of the input.
    bool more();
    // Keeps the bytes that data() gives now for as long as the result lives. Let it go only where no other thread
    // reads from this stream at the same time.
    std::shared_ptr<const void> hold() const noexcept { return buffer_; }
    // At least `n` bytes at data(), or false when the input ends before.
    bool ensure(std::size_t n) {
        while (size() < n)
            if (!more()) return false;
        return true;
    }
    // Of a pipe from now on more() reads what is there, and does not wait for more: false then, and waiting().
    void do_not_wait() noexcept { waits_ = false; }
    bool waiting() const noexcept { return waiting_; }
    std::uint64_t offset() const noexcept { return produced_ - size(); }  // of data() in the plain stream
    std::uint64_t file_bytes_read() const noexcept { return file_read_; }
    std::uint64_t file_size() const noexcept { return file_size_; }
    const std::string& path() const noexcept { return path_; }
    const std::string& compression() const noexcept { return compression_; }
    const char* decode_error() const noexcept {
        return decode_error_;
    }  // the compressed input is broken from here

private:
    using Block = std::vector<std::uint8_t>;
    std::size_t read_file(std::uint8_t* to, std::size_t n);
    bool wait_for_input();
    bool produce();
    std::shared_ptr<Block> free_block();

    std::string path_, compression_;
    int fd_ = -1;
    bool close_fd_ = false, file_ended_ = false, regular_ = false;
    bool waits_ = true, waiting_ = false;
    std::uint64_t file_read_ = 0, file_size_ = 0, produced_ = 0;
    std::shared_ptr<Block> buffer_ = std::make_shared<Block>();
    std::vector<std::shared_ptr<Block>> blocks_;  // all that there are, when blocks were held
    std::size_t begin_ = 0, end_ = 0;
    std::unique_ptr<Decoder> decoder_;
    std::vector<std::uint8_t> packed_;  // compressed input not yet used
    std::size_t packed_begin_ = 0, packed_end_ = 0;
    const char* decode_error_ = nullptr;
};

}  // namespace tapscope
