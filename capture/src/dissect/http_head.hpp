// The head of an HTTP/1.x message: start line and the header fields that framing and evidence need.
// https://www.rfc-editor.org/rfc/rfc9112 (message syntax), section 6.3 (body length), section 11 (ambiguities)
//
//     method SP target SP HTTP/1.x CRLF         HTTP/1.x SP status SP reason CRLF
//     *( field-name ":" OWS value OWS CRLF )    CRLF
#pragma once

#include <cstdint>
#include <string_view>

#include "dissect/dissector.hpp"
#include "dissect/few_fields.hpp"

namespace tapscope {

struct HttpHead {
    static constexpr std::size_t kMaxExtras = 24;

    std::size_t size = 0;  // bytes, the empty line included
    std::string_view method, target;
    std::int32_t status = -1;
    std::uint64_t content_length = 0;
    bool has_length = false;
    bool has_coding = false;  // Transfer-Encoding is there
    bool chunked = false;     // and its last coding is "chunked"
    bool expects_continue = false;
    bool upgrade_h2c = false;      // Upgrade names HTTP/2 in the clear
    bool form = false;             // application/x-www-form-urlencoded
    bool call = false;             // a type of content that Avatica's calls have
    bool compressed = false;       // Content-Encoding
    bool suspicious = false;       // RFC 9112 section 11: two readings are possible
    FewFields<kMaxExtras> extras;  // Cookie, X-... and traceparent; views into the bytes given
};

enum class HeadStep : std::uint8_t { complete, incomplete, malformed };

inline constexpr std::size_t kMaxHead = 200 * 1024;  // below kMaxPending, so that we name the reason

// Does a request line (status line) start here? `yes` is given as soon as it is plain, before the line is complete.
Probe starts_request(Bytes bytes) noexcept;
Probe starts_response(Bytes bytes) noexcept;

// Where a message starts within a segment, behind one whose start was not seen; bytes.size(): nowhere. `in_body`: what
// comes before is a body, where an answer must be more than a line.
std::size_t start_inside(Bytes bytes, Direction direction, bool in_body) noexcept;

inline constexpr std::string_view kLastChunk =
    "\r\n0\r\n\r\n";  // without trailers, and the end of the one before

// HTTP/0.9: the line "GET /path" and nothing else but an empty line, without a version. Returns its size, else 0.
std::size_t simple_request(Bytes bytes) noexcept;

// "PRI * HTTP/2.0": the client's preface of HTTP/2, RFC 9113 section 3.4, as far as its first line goes.
bool is_http2_preface(Bytes bytes) noexcept;

HeadStep parse_head(Direction direction, Bytes bytes, HttpHead& head, const char*& label) noexcept;

// Looks for the empty line that ends a head, from `from` on; true when it is there. For heads that come in pieces.
bool head_is_complete(Bytes bytes, std::size_t from) noexcept;

}  // namespace tapscope
