// Requests of FastCGI: parameters, forms.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "dissect/fastcgi_message.hpp"
#include "dissect/fastcgi_wire.hpp"
#include "dissect/few_fields.hpp"
#include "dissect/route.hpp"
#include "evidence.hpp"

namespace tapscope::fastcgi {

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

void RequestText::begin(Bytes content) {
    role_ = content[1];
    body_ = Body::params;
    text_.clear();
    form_ = false;
}

std::size_t RequestText::wanted(Type type, std::size_t length) const noexcept {
    if (type == Type::params) return body_ == Body::params ? length : 0;
    if (type != Type::stdin_ || body_ != Body::form) return 0;
    return std::min(length, kFormBytes - std::min(kFormBytes, text_.size()));
}

bool RequestText::params(MessageRef request, Bytes content, std::size_t length, Recorder& recorder) {
    if (length == 0) {
        end_of_params(request, recorder);
        return role_ == kAuthorizer;
    }
    if (body_ != Body::params) return false;
    if (text_.size() + content.size() > kMaxParams) {
        recorder.count("fastcgi.params_cut");
        body_ = Body::none;
        return false;
    }
    text_.append(as_text(content));
    return false;
}

void RequestText::end_of_params(MessageRef request, Recorder& recorder) {
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
            recorder.add_flags(request, message_flag::suspicious);
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
    std::string& target = recorder.scratch.target;
    if (!uri.empty()) {
        target.assign(uri);
    } else {
        target.assign(script).append(path_info);
        if (!query.empty()) target.append("?").append(query);
    }
    if (method.empty()) method = "UNKNOWN";
    request_route(recorder, request, Protocol::fastcgi, method, target);
    if (!cookie.empty()) cookie_evidence(recorder, request, cookie);
    for (const auto& [extra, value] : extras) {
        // HTTP_X_REQUEST_ID was the header X-Request-Id.
        std::array<char, 64> header;
        const std::string_view name = extra.substr(0, header.size());
        std::transform(name.begin(), name.end(), header.begin(), [](char c) { return c == '_' ? '-' : c; });
        header_evidence(recorder, request, {header.data(), name.size()}, value);
    }
    if (!address.empty() && !port.empty()) endpoint_evidence(recorder, request, address, port);
    text_.clear();
    form_bytes_ = 0;
    if (form_) body_ = Body::form;
}

bool RequestText::input(MessageRef request, Type type, Bytes content, std::size_t length,
                        Recorder& recorder) {
    // A filter's data come behind its input.
    const bool last = type == (role_ == kFilter ? Type::data : Type::stdin_) && length == 0;
    if (body_ == Body::form) {
        text_.append(as_text(content));
        form_bytes_ += length;
        if (last || text_.size() >= kFormBytes) {
            form_evidence(recorder, request, text_, last || text_.size() == form_bytes_);
            body_ = Body::none;
        }
    }
    return last;
}

bool RequestText::forget() noexcept { return std::exchange(body_, Body::none) != Body::none; }

}  // namespace tapscope::fastcgi
