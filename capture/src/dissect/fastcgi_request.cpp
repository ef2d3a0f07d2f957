// Requests of FastCGI: parameters, forms.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "dissect/fastcgi.hpp"
#include "dissect/fastcgi_wire.hpp"
#include "dissect/few_fields.hpp"
#include "dissect/route.hpp"
#include "evidence.hpp"

namespace tapscope {

using namespace fastcgi;

namespace {

// One length of a name-value pair: a byte below 128, or four bytes with the highest bit set.
bool take_length(std::string_view& text, std::size_t& length) noexcept {
    if (text.empty()) return false;
    const auto first = static_cast<std::uint8_t>(text[0]);
    if (first < 0x80) {
        length = first;
        text.remove_prefix(1);
        return true;
    }
    if (text.size() < 4) return false;
    length = load_be32(reinterpret_cast<const std::uint8_t*>(text.data())) & 0x7fffffff;
    text.remove_prefix(4);
    return true;
}

}  // namespace

// role u16, flags u8 (1: keep the connection), five zero bytes.
void FastcgiDissector::begin_request(std::uint16_t id, Bytes content, std::uint64_t at, Recorder& recorder) {
    if (recorder.has_request()) recorder.count("fastcgi.multiplexed");
    began_since_loss_ = true;
    request_id_ = id;
    role_ = content[1];
    request_ = recorder.begin(Direction::to_server, MessageKind::request, at, id);
    body_ = Body::params;
    text_.clear();
    form_ = false;
}

void FastcgiDissector::end_of_params(Recorder& recorder) {
    if (body_ != Body::params) return;
    body_ = Body::none;
    FewFields<24> extras;
    std::string_view method, uri, script, path_info, query, cookie, address, port;
    std::string_view rest = text_;
    while (!rest.empty()) {
        std::size_t name_size = 0, value_size = 0;
        if (!take_length(rest, name_size) || !take_length(rest, value_size) || name_size > rest.size() ||
            value_size > rest.size() - name_size) {
            recorder.count("fastcgi.bad_params");
            recorder.add_flags(request_, message_flag::suspicious);
            break;
        }
        const std::string_view name = rest.substr(0, name_size), value = rest.substr(name_size, value_size);
        rest.remove_prefix(name_size + value_size);
        if (name == "REQUEST_METHOD") {
            method = value;
        } else if (name == "REQUEST_URI") {
            uri = value;
        } else if (name == "SCRIPT_NAME") {
            script = value;
        } else if (name == "PATH_INFO") {
            path_info = value;
        } else if (name == "QUERY_STRING") {
            query = value;
        } else if (name == "CONTENT_TYPE") {
            form_ = starts_folded(value, "application/x-www-form-urlencoded");
        } else if (name == "REMOTE_ADDR") {
            address = value;
        } else if (name == "REMOTE_PORT") {
            port = value;
        } else if (name == "HTTP_COOKIE") {
            cookie = value;
        } else if (name.starts_with("HTTP_X_") || name == "HTTP_TRACEPARENT") {
            extras.add({name.substr(5), value});
        }
    }
    thread_local std::string target;
    if (!uri.empty()) {
        target.assign(uri);
    } else {
        target.assign(script).append(path_info);
        if (!query.empty()) target.append("?").append(query);
    }
    if (method.empty()) method = "UNKNOWN";
    request_route(recorder, request_, protocol, method, target);
    if (!cookie.empty()) cookie_evidence(recorder, request_, cookie);
    for (const auto& [extra, value] : extras) {
        // HTTP_X_REQUEST_ID was the header X-Request-Id.
        std::array<char, 64> header;
        const std::string_view name = extra.substr(0, header.size());
        std::transform(name.begin(), name.end(), header.begin(), [](char c) { return c == '_' ? '-' : c; });
        header_evidence(recorder, request_, {header.data(), name.size()}, value);
    }
    if (!address.empty() && !port.empty()) endpoint_evidence(recorder, request_, address, port);
    text_.clear();
    form_bytes_ = 0;
    if (form_) body_ = Body::form;
}

// `length` 0 ends the request; `content` is the part of it that is looked at.
void FastcgiDissector::stdin_record(Bytes content, std::size_t length, std::uint64_t next,
                                    Recorder& recorder) {
    if (body_ == Body::form) {
        text_.append(as_text(content));
        form_bytes_ += length;
        if (length == 0 || text_.size() >= kFormBytes) {
            form_evidence(recorder, request_, text_, length == 0 || text_.size() == form_bytes_);
            body_ = Body::none;
        }
    }
    if (length > 0) return;
    recorder.end(request_, next);
    request_ = kNoMessage;
}

}  // namespace tapscope
