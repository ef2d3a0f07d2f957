// What the records of one request or one answer of FastCGI say, filled as they come.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "dissect/dissector.hpp"
#include "dissect/fastcgi_wire.hpp"
#include "record.hpp"

namespace tapscope::fastcgi {

// Parameters, then the start of a form.
class RequestText {
public:
    // The content of BEGIN_REQUEST: role u16, flags u8 (1: keep the connection), five zero bytes.
    void begin(Bytes content);
    // Of the content of such a record so many bytes are looked at.
    std::size_t wanted(Type type, std::size_t length) const noexcept;
    // Records of `length` bytes, of which `content` are looked at: PARAMS; STDIN or DATA. True when it ends the request.
    bool params(MessageRef request, Bytes content, std::size_t length, Recorder& recorder);
    bool input(MessageRef request, Type type, Bytes content, std::size_t length, Recorder& recorder);
    // Nothing more is read. False when nothing was going to be.
    bool forget() noexcept;
    bool in_params() const noexcept { return body_ == Body::params; }
    bool collects() const noexcept { return body_ != Body::none; }
    // Bytes of memory that the text takes, and an end of that.
    std::size_t kept() const noexcept { return text_.capacity() - std::string().capacity(); }
    void release() noexcept { std::string().swap(text_); }

private:
    enum class Body : std::uint8_t { none, params, form };  // what `text_` collects

    void end_of_params(MessageRef request, Recorder& recorder);

    std::string text_;
    std::uint64_t form_bytes_ = 0;  // of the form seen so far
    std::uint8_t role_ = kResponder;
    Body body_ = Body::none;
    bool form_ = false;  // the body of the request is a form
};

// The CGI head in STDOUT, and END_REQUEST.
class AnswerHead {
public:
    // `seen` false: bytes before this answer were lost, and may have been its head.
    void begin(bool seen) noexcept;
    std::size_t wanted(std::size_t length) const noexcept { return open_ ? std::min(length, kMaxHead) : 0; }
    // STDOUT.
    void read(MessageRef answer, Bytes content, Recorder& recorder);
    // STDOUT of which a part was lost.
    void forget() noexcept { open_ = false; }
    // The content of END_REQUEST.
    void end(MessageRef answer, Bytes content, Recorder& recorder);
    // There comes no more.
    void cut(MessageRef answer, Recorder& recorder);

private:
    void take_line() noexcept;

    std::int16_t status_ = -1;  // as far as the head was read
    // The beginning of the line at hand, which may go on in the next record; and how long it is so far.
    std::array<char, 32> line_{};
    std::size_t line_bytes_ = 0;
    bool open_ = false;  // the head is not complete
    bool seen_ = true;
};

}  // namespace tapscope::fastcgi
