// Bodies of HTTP/1.x: those that are shown to Avatica, chunks, and trailers.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "dissect/http.hpp"
#include "evidence.hpp"

namespace tapscope {
namespace {

constexpr std::size_t kMaxChunkLine = 16 * 1024;

}  // namespace

// Shows a body, or a chunk of one, as far as it is wanted; what is left is skipped by counting.
Parsed HttpDissector::watched(Direction direction, Bytes bytes, Recorder& recorder) {
    Half& side = half(direction);
    const bool chunk = side.state == State::watched_chunk;
    const std::uint64_t n = std::min<std::uint64_t>(side.left, bytes.size());
    if (watching(direction) && avatica_->body(direction, bytes.first(static_cast<std::size_t>(n)))) {
        side.left -= n;
        if (side.left > 0) return {Step::ok, n};
        if (!chunk) return finish(direction, n, recorder);
        side.state = State::chunk_end;
        return {Step::ok, n};
    }
    if (watching(direction)) finish_watching(direction, !chunk && n == side.left, recorder);
    if (!chunk) return finish(direction, side.left, recorder);
    side.state = State::chunk_end;
    return {Step::ok, side.left};
}

// chunk-size [ chunk-ext ] CRLF, chunk-size = 1*HEXDIG
Parsed HttpDissector::chunk_size(Direction direction, Bytes bytes, Recorder& recorder) {
    Half& side = half(direction);
    const std::string_view text = as_text(bytes);
    std::uint64_t size = 0;
    std::size_t digits = 0;
    for (; digits < text.size() && is_hex(text[digits]); ++digits) {
        const char c = text[digits];
        if (size >> 58 != 0) return malformed(direction, 0, "http.chunk_size_too_large", recorder);
        size = size * 16 + static_cast<unsigned>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (digits > 16) recorder.add_flags(side.message, message_flag::suspicious);
    if (digits == 0 && direction == Direction::to_client && starts_response(bytes) != Probe::no) {
        // Another answer where a chunk should be: this was one to a HEAD that was not seen.
        if (starts_response(bytes) == Probe::need_more) return {Step::ok, 0};
        recorder.add_flags(side.message, message_flag::suspicious);
        recorder.end(side.message, 0);
        side.state = State::start;
        return start(direction, bytes, recorder);
    }
    if (digits == 0) return malformed(direction, 0, "http.bad_chunk_size", recorder);
    const auto* newline =
        static_cast<const char*>(std::memchr(text.data() + digits, '\n', text.size() - digits));
    if (newline == nullptr) {
        if (text.size() > kMaxChunkLine) return malformed(direction, 0, "http.chunk_line_too_long", recorder);
        return {Step::ok, 0};
    }
    const std::size_t line = static_cast<std::size_t>(newline - text.data()) + 1;
    const char next = text[digits];
    if (next != '\r' && next != ';' && next != ' ' && next != '\t' && next != '\n')
        return malformed(direction, 0, "http.bad_chunk_size", recorder);
    if (next != '\r' && next != ';') recorder.add_flags(side.message, message_flag::suspicious);
    if (size == 0) {
        side.state = State::trailer;
        return {Step::ok, line};
    }
    if (watching(direction)) {
        side.left = size;
        side.state = State::watched_chunk;
        return {Step::ok, line};
    }
    side.state = State::chunk_end;
    return {Step::ok, line + size};
}

Parsed HttpDissector::trailer(Direction direction, Bytes bytes, Recorder& recorder) {
    std::size_t at = 0;
    while (at < bytes.size()) {
        const auto* newline =
            static_cast<const std::uint8_t*>(std::memchr(&bytes[at], '\n', bytes.size() - at));
        if (newline == nullptr) break;
        const std::size_t next = static_cast<std::size_t>(newline - bytes.data()) + 1;
        const std::size_t length = next - at;
        const bool empty = length == 1 || (length == 2 && bytes[at] == '\r');
        at = next;
        if (empty) return finish(direction, at, recorder);
    }
    if (bytes.size() - at > kMaxHead) return malformed(direction, at, "http.trailer_too_long", recorder);
    return {Step::ok, at};
}

}  // namespace tapscope
