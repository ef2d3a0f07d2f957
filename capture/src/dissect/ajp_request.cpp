// FORWARD_REQUEST: method, target, headers and attributes; and the form that may follow.
#include <string>

#include "../evidence.hpp"
#include "ajp.hpp"
#include "few_fields.hpp"
#include "route.hpp"

namespace tapscope {

using namespace ajp;

namespace {

bool equals_ignoring_case(std::string_view text, std::string_view lower) noexcept {
    return text.size() == lower.size() &&
           std::equal(text.begin(), text.end(), lower.begin(), [](char a, char b) {
               return (a >= 'A' && a <= 'Z' ? static_cast<char>(a | 0x20) : a) == b;
           });
}

bool starts_ignoring_case(std::string_view text, std::string_view lower) noexcept {
    return text.size() >= lower.size() && equals_ignoring_case(text.substr(0, lower.size()), lower);
}

std::uint64_t decimal(std::string_view text) noexcept {
    std::uint64_t value = 0;
    for (const char c : text) {
        if (!is_digit(c) || value > (std::uint64_t{1} << 56)) return value;
        value = value * 10 + static_cast<std::uint64_t>(c - '0');
    }
    return value;
}

enum class Header : std::uint8_t { other, content_length, content_type, cookie, coding, named };

// Nearly all headers of a request have a code.
Header coded_header(std::uint16_t code) noexcept {
    switch (static_cast<HeaderCode>(code)) {
        case HeaderCode::content_length:
            return Header::content_length;
        case HeaderCode::content_type:
            return Header::content_type;
        case HeaderCode::cookie:
            return Header::cookie;
        default:
            return Header::other;
    }
}

Header named_header(std::string_view name) noexcept {
    if (starts_ignoring_case(name, "x-") || equals_ignoring_case(name, kTraceParent)) return Header::named;
    if (equals_ignoring_case(name, "content-length")) return Header::content_length;
    if (equals_ignoring_case(name, "content-type")) return Header::content_type;
    if (equals_ignoring_case(name, "cookie")) return Header::cookie;
    return equals_ignoring_case(name, "transfer-encoding") ? Header::coding : Header::other;
}

constexpr bool is_header_code(std::uint16_t word) noexcept {
    return word >= static_cast<std::uint16_t>(HeaderCode::accept) &&
           word <= static_cast<std::uint16_t>(HeaderCode::last);
}

}  // namespace

void AjpDissector::forward_request(Bytes payload, Recorder& recorder) {
    constexpr std::size_t kMaxHeaders = 32;  // that become evidence
    FewFields<kMaxHeaders> extras, attributes;
    std::string_view stored_method;

    Reader reader(payload.subspan(1));
    const std::uint8_t method_code = reader.u8();
    const char* method = method_name(method_code);
    reader.text();  // protocol
    const std::string_view uri = reader.text();
    const std::string_view remote_address = reader.text();
    reader.text();  // remote host
    reader.text();  // server name
    reader.u16();   // server port
    reader.u8();    // is_ssl
    const std::uint16_t headers = reader.u16();

    std::uint64_t content_length = 0;
    bool chunked = false;
    bool form = false;
    for (std::uint16_t i = 0; i < headers && reader.ok(); ++i) {
        const std::uint16_t code = reader.u16();  // or the length of a name
        const std::string_view name = is_header_code(code) ? std::string_view{} : reader.text_of(code);
        const std::string_view value = reader.text();
        switch (is_header_code(code) ? coded_header(code) : named_header(name)) {
            case Header::content_length:
                content_length = decimal(value);
                break;
            case Header::content_type:
                form = starts_ignoring_case(value, "application/x-www-form-urlencoded");
                break;
            case Header::cookie:
                extras.add({"c", value});
                break;
            case Header::named:
                extras.add({name, value});
                break;
            case Header::coding:
                chunked = true;
                break;
            case Header::other:
                break;
        }
    }

    std::string_view query;
    bool has_query = false;
    std::string_view port;
    while (reader.ok()) {
        const auto code = static_cast<Attribute>(reader.u8());
        if (code == Attribute::end || !reader.ok()) break;
        if (code == Attribute::ssl_key_size) {
            reader.u16();
            continue;
        }
        const std::string_view text = reader.text();
        if (code == Attribute::query_string) {
            query = text;
            has_query = true;
        } else if (code == Attribute::stored_method && method_code == kStoredMethod) {
            method = nullptr;
            if (!text.empty()) stored_method = text;
        } else if (code == Attribute::req_attribute) {
            const std::string_view value = reader.text();
            if (text == "AJP_REMOTE_PORT") {
                port = value;
            } else if (!text.starts_with("AJP_") && !text.starts_with("JK_")) {
                attributes.add({text, value});
            }
        } else if (code > Attribute::stored_method || code < Attribute::context) {
            recorder.count("ajp.unknown_attribute");
            break;  // its length is not known
        }
    }
    if (!reader.ok()) {
        recorder.count("ajp.bad_forward_request");
        recorder.add_flags(request_, message_flag::suspicious);
    }

    std::string& target = recorder.scratch.target;
    target.assign(uri);
    if (has_query) target.append("?").append(query);
    const std::string_view method_text = method != nullptr       ? std::string_view(method)
                                         : stored_method.empty() ? std::string_view("UNKNOWN")
                                                                 : stored_method;
    request_route(recorder, request_, protocol, method_text, target);
    for (const auto& [name, value] : extras) {
        if (name == "c") {
            cookie_evidence(recorder, request_, value);
        } else {
            header_evidence(recorder, request_, name, value);
        }
    }
    for (const auto& [name, value] : attributes) {
        if (value.empty()) continue;
        recorder.token(request_, slot_of_name(name), TokenKind::text, as_bytes(value));
    }
    if (!remote_address.empty() && !port.empty()) endpoint_evidence(recorder, request_, remote_address, port);

    // With a content length the first body packet comes unasked; a chunked body is fetched piece by piece.
    if (content_length > 0) owed_ = 1;
    form_ = form && (content_length > 0 || chunked);
    form_bytes_ = content_length;
}

void AjpDissector::body(std::size_t length, Bytes payload, Recorder& recorder) {
    if (owed_ > 0) --owed_;
    if (answer_ == kNoMessage && !recorder.has_request()) recorder.count("ajp.late_body");
    if (!form_) return;
    form_ = false;
    if (length <= 2) return;
    const Bytes data = payload.subspan(2);
    form_evidence(recorder, request_, as_text(data), data.size() == form_bytes_);
}

}  // namespace tapscope
