// Codes and primitive types of AJP13, under the names of its description.
//
// https://tomcat.apache.org/connectors-doc/ajp/ajpv13a.html
//
//   to the container:  | 12 34 | length u16 | type u8, ... |         a request body packet has no type: u16 n, n bytes
//   to the web server: | 41 42 | length u16 | type u8, ... |         all integers big endian; length without the header
//   STR: u16 length, bytes, 00; length FFFF = null, with neither bytes nor 00
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../bytes.hpp"
#include "dissector.hpp"

namespace tapscope::ajp {

inline constexpr std::size_t kHeader = 4;
inline constexpr std::uint16_t kMagicToContainer = 0x1234, kMagicToServer = 0x4142;

enum class Type : std::uint8_t {
    forward_request = 2,
    send_body_chunk = 3,
    send_headers = 4,
    end_response = 5,
    get_body_chunk = 6,
    shutdown = 7,
    ping = 8,
    cpong = 9,
    cping = 10,
};

enum class Attribute : std::uint8_t {
    context = 1,
    servlet_path = 2,
    remote_user = 3,
    auth_type = 4,
    query_string = 5,
    route = 6,
    ssl_cert = 7,
    ssl_cipher = 8,
    ssl_session = 9,
    req_attribute = 10,
    ssl_key_size = 11,
    secret = 12,
    stored_method = 13,
    end = 0xFF,
};

// Request header names by code, A001 upwards.
enum class HeaderCode : std::uint16_t {
    accept = 0xA001,
    authorization = 0xA005,
    content_type = 0xA007,
    content_length = 0xA008,
    cookie = 0xA009,
    cookie2 = 0xA00A,
    last = 0xA00E,
};

inline constexpr std::uint8_t kStoredMethod = 0xFF;

// nullptr for a code that is none.
inline const char* method_name(std::uint8_t code) noexcept {
    static constexpr const char* names[] = {"OPTIONS",
                                            "GET",
                                            "HEAD",
                                            "POST",
                                            "PUT",
                                            "DELETE",
                                            "TRACE",
                                            "PROPFIND",
                                            "PROPPATCH",
                                            "MKCOL",
                                            "COPY",
                                            "MOVE",
                                            "LOCK",
                                            "UNLOCK",
                                            "ACL",
                                            "REPORT",
                                            "VERSION-CONTROL",
                                            "CHECKIN",
                                            "CHECKOUT",
                                            "UNCHECKOUT",
                                            "SEARCH",
                                            "MKWORKSPACE",
                                            "UPDATE",
                                            "LABEL",
                                            "MERGE",
                                            "BASELINE-CONTROL",
                                            "MKACTIVITY"};
    return code >= 1 && code <= sizeof names / sizeof *names ? names[code - 1] : nullptr;
}

// Reads a payload; a short read turns it bad for good and gives zeros and empty texts.
class Reader {
public:
    explicit Reader(Bytes bytes) noexcept : p_(bytes.data()), end_(bytes.data() + bytes.size()) {}

    bool ok() const noexcept { return ok_; }
    std::uint8_t u8() noexcept { return need(1) ? *p_++ : std::uint8_t{0}; }
    std::uint16_t u16() noexcept { return need(2) ? load_be16((p_ += 2) - 2) : std::uint16_t{0}; }

    std::string_view text() noexcept { return text_of(u16()); }
    // The rest of a STR whose length is read already.
    std::string_view text_of(std::uint16_t length) noexcept {
        if (length == 0xFFFF || !need(std::size_t{length} + 1)) return {};
        const auto* start = reinterpret_cast<const char*>(p_);
        p_ += std::size_t{length} + 1;
        return {start, length};
    }

private:
    bool need(std::size_t size) noexcept {
        if (ok_ && size <= static_cast<std::size_t>(end_ - p_)) return true;
        ok_ = false;
        return false;
    }
    const std::uint8_t* p_;
    const std::uint8_t* end_;
    bool ok_ = true;
};

}  // namespace tapscope::ajp
