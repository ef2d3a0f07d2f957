// Answers of FastCGI: the CGI head, END_REQUEST.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "bytes.hpp"
#include "dissect/fastcgi_message.hpp"
#include "dissect/fastcgi_wire.hpp"

namespace tapscope::fastcgi {

namespace {

// "Name: ", as the first line of a head begins.
bool starts_with_field(std::string_view text) noexcept {
    const std::size_t colon = text.find(':');
    return colon != std::string_view::npos && colon > 0 &&
           std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(colon), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_';
           });
}

}  // namespace

void AnswerHead::begin(bool seen) noexcept {
    status_ = -1;
    open_ = true;
    seen_ = seen;
    line_bytes_ = 0;
}

// "Status: 404 Not Found", "Location: ...", others; an empty line. Without Status it is 200, or 302.
void AnswerHead::read(MessageRef answer, Bytes content, Recorder& recorder) {
    if (!open_) return;
    std::string_view text = as_text(content);
    if (!seen_ && !text.empty()) [[unlikely]] {
        seen_ = true;
        if (!starts_with_field(text)) {
            recorder.count("fastcgi.answer_without_head");
            recorder.add_flags(answer, message_flag::truncated);
            open_ = false;
            return;
        }
    }
    while (!text.empty() && open_) {
        const std::size_t newline = text.find('\n');
        const auto part = text.substr(0, newline);
        const auto kept = std::min(part.size(), line_.size() - std::min(line_bytes_, line_.size()));
        if (kept > 0) std::memcpy(&line_[line_bytes_], part.data(), kept);
        line_bytes_ += part.size();
        if (newline == std::string_view::npos) break;  // the line goes on in the next record
        text.remove_prefix(newline + 1);
        take_line();
    }
    if (open_ && content.size() < kMaxHead) return;
    take_line();
    open_ = false;
    if (status_ < 0) status_ = 200;
    recorder.set_status(answer, status_);
    if (status_ >= 500) recorder.add_flags(answer, message_flag::error);
}

// An empty one ends the head.
void AnswerHead::take_line() noexcept {
    std::string_view line(line_.data(), std::min(line_bytes_, line_.size()));
    line_bytes_ = 0;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) {
        open_ = false;
    } else if (starts_folded(line, "status:")) {
        line.remove_prefix(7);
        while (line.starts_with(' ')) line.remove_prefix(1);
        if (line.size() < 3 || !all_digits(line.substr(0, 3))) return;
        status_ = static_cast<std::int16_t>((line[0] - '0') * 100 + (line[1] - '0') * 10 + (line[2] - '0'));
    } else if (status_ < 0 && starts_folded(line, "location:")) {
        status_ = 302;
    }
}

// application status u32, protocol status u8, 3 bytes.
void AnswerHead::end(MessageRef answer, Bytes content, Recorder& recorder) {
    static constexpr const char* kRefusals[] = {"fastcgi.cannot_multiplex", "fastcgi.overloaded",
                                                "fastcgi.unknown_role"};
    cut(answer, recorder);
    const std::uint32_t application = load_be32(content.data());
    const std::uint8_t refusal = content[4];  // 0: complete
    if (refusal != 0) {
        recorder.count("fastcgi.request_refused");
        if (refusal <= std::size(kRefusals)) recorder.count(kRefusals[refusal - 1]);
    }
    if (application != 0) recorder.count("fastcgi.application_status");
    if (refusal != 0 || application != 0) recorder.add_flags(answer, message_flag::error);
}

void AnswerHead::cut(MessageRef answer, Recorder& recorder) {
    const bool open = open_;
    if (open) take_line();
    if (open && status_ >= 0) recorder.set_status(answer, status_);
    open_ = false;
}

}  // namespace tapscope::fastcgi
