// Handshake messages of TLS: their fields, and where they begin and end in the plaintext of records.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "bytes.hpp"

namespace tapscope::tls {

inline constexpr std::uint8_t kClientHello = 1, kServerHello = 2, kEndOfEarlyData = 5,
                              kEncryptedExtensions = 8, kFinished = 20, kKeyUpdate = 24;
inline constexpr std::size_t kEncryptThenMac = 22, kEarlyData = 42, kSupportedVersions = 43;

// Reads fields off the front; once too short, it stays empty and `good` is false.
struct Fields {
    Bytes rest;
    bool good = true;
    Bytes take(std::size_t n) noexcept {
        if (n > rest.size()) {
            good = false;
            rest = {};
            return {};
        }
        const Bytes taken = rest.first(n);
        rest = rest.subspan(n);
        return taken;
    }
    std::size_t number(std::size_t size) noexcept {
        std::size_t value = 0;
        for (const std::uint8_t byte : take(size)) value = value << 8 | byte;
        return value;
    }
};

// Calls `each(type, value)` for every extension of a list that begins with its length.
template <class Each>
void read_extensions(Fields& fields, Each each) {
    fields.rest = fields.rest.first(std::min(fields.number(2), fields.rest.size()));
    while (fields.good && !fields.rest.empty()) {
        const std::size_t extension = fields.number(2);
        const Fields value{fields.take(fields.number(2))};
        if (fields.good) each(extension, value);
    }
}

// Follows handshake messages through the plaintext of records: they may share records and be cut by them.
class HandshakeReader {
public:
    // Calls `done(type, body)` for every message that ends in these bytes. Only of EncryptedExtensions the body is kept,
    // and nothing of one that is longer than kMaxBody.
    template <class Done>
    void read(Bytes plain, Done done) {
        while (!plain.empty()) {
            if (have_ < head_.size()) {
                head_[have_++] = plain[0];
                plain = plain.subspan(1);
                if (have_ < head_.size()) continue;
                left_ = load_be32(head_.data()) & 0xffffff;
                keeps_ = head_[0] == kEncryptedExtensions && left_ <= kMaxBody;
            } else {
                const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(left_, plain.size()));
                if (keeps_) body_.insert(body_.end(), plain.begin(), plain.begin() + n);
                left_ -= n;
                plain = plain.subspan(n);
            }
            if (have_ == head_.size() && left_ == 0) {
                have_ = 0;
                done(head_[0], Bytes(body_));
                body_.clear();
            }
        }
    }

private:
    static constexpr std::uint32_t kMaxBody = 4096;
    std::array<std::uint8_t, 4> head_{};
    std::vector<std::uint8_t> body_;
    std::uint32_t have_ = 0, left_ = 0;
    bool keeps_ = false;
};

}  // namespace tapscope::tls
