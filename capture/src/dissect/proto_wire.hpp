// Fields of a protocol buffers message: https://protobuf.dev/programming-guides/encoding/
//
//   message = *( varint(field << 3 | wire type) value )
//   value   = varint | 8 bytes | varint n, n bytes | 4 bytes                by wire type 0, 1, 2, 5
//
// The message may be the beginning of a longer one: a field of bytes that is cut comes with what is there.
#pragma once

#include <cstdint>
#include <string_view>

#include "bytes.hpp"
#include "dissect/dissector.hpp"

namespace tapscope {

class ProtoReader {
public:
    explicit ProtoReader(Bytes bytes) noexcept : p_(bytes.data()), end_(bytes.data() + bytes.size()) {}

    // The next field; false at the end of the message, or where it is cut or malformed.
    bool next() noexcept {
        if (p_ == end_ || cut_) return false;
        std::uint64_t key = 0;
        if (!varint(key)) return false;
        field_ = static_cast<std::uint32_t>(key >> 3);
        value_ = 0;
        bytes_ = {};
        switch (key & 7) {
            case 0:
                return field_ != 0 && varint(value_);
            case 1:
                if (end_ - p_ < 8) return stop();
                value_ = load_le64(p_);
                p_ += 8;
                return field_ != 0;
            case 2: {
                std::uint64_t size = 0;
                if (!varint(size)) return false;
                const auto left = static_cast<std::uint64_t>(end_ - p_);
                if (size > left) {
                    cut_ = true;
                    size = left;
                }
                bytes_ = {p_, static_cast<std::size_t>(size)};
                p_ += size;
                return field_ != 0;
            }
            case 5:
                if (end_ - p_ < 4) return stop();
                value_ = load_le32(p_);
                p_ += 4;
                return field_ != 0;
            default:
                return stop();
        }
    }

    std::uint32_t field() const noexcept { return field_; }
    std::uint64_t value() const noexcept { return value_; }  // varint and fixed
    std::int64_t zigzag() const noexcept {                   // sint32, sint64
        return static_cast<std::int64_t>(value_ >> 1) ^ -static_cast<std::int64_t>(value_ & 1);
    }
    Bytes bytes() const noexcept { return bytes_; }  // string, bytes, embedded message
    std::string_view text() const noexcept {
        return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
    }
    bool cut() const noexcept { return cut_; }  // the field goes on behind the bytes given

private:
    bool stop() noexcept {
        p_ = end_;
        return false;
    }
    bool varint(std::uint64_t& value) noexcept {
        value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            if (p_ == end_) return false;
            const std::uint8_t byte = *p_++;
            value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
            if ((byte & 0x80) == 0) return true;
        }
        return stop();
    }

    const std::uint8_t* p_;
    const std::uint8_t* end_;
    std::uint32_t field_ = 0;
    std::uint64_t value_ = 0;
    Bytes bytes_;
    bool cut_ = false;
};

}  // namespace tapscope
