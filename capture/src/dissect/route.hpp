// Route templates and evidence of HTTP-like requests; shared by HTTP and AJP, so that both give the same class text
// and the same hashes for the same request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dissect/dissector.hpp"
#include "record.hpp"

namespace tapscope {

// Class, URI, query parameter and path segment tokens of a request. The class is "GET /bb/story/{n} ?page&story":
// method, path with {n} {date} {uuid} {hex} {id} for segments that vary and {*} where too many words stand
// (route_words.hpp), then the sorted names of the query parameters, never their values ("{value}" for one without a
// name). `target` is a request target
// ("/a/b?c=d"; of an absolute "http://host/a" only "/a" counts).
void request_route(Recorder& recorder, MessageRef ref, Protocol protocol, std::string_view method,
                   std::string_view target);

// The same of a call of gRPC: the class is its path where that is "/package.Service/Method", otherwise that of a request.
void call_route(Recorder& recorder, MessageRef ref, Protocol protocol, std::string_view method,
                std::string_view target);

// The tokens alone.
void request_evidence(Recorder& recorder, MessageRef ref, std::string_view target);

// Fields of an application/x-www-form-urlencoded body (or of the part of it that is at hand: a last field that is cut
// must be left out by `complete` = false).
void form_evidence(Recorder& recorder, MessageRef ref, std::string_view body, bool complete = true);

// Every value of a Cookie header: slot = hash of the cookie's name.
void cookie_evidence(Recorder& recorder, MessageRef ref, std::string_view value);

// A header that is not a standard one (X-...), or traceparent: slot = hash of its name in lower case.
void header_evidence(Recorder& recorder, MessageRef ref, std::string_view name, std::string_view value);

// The HTTP client's address and port as evidence, for protocols that carry them (AJP: remote_addr and
// AJP_REMOTE_PORT). Hashes equal to the token of the HTTP connection itself.
void endpoint_evidence(Recorder& recorder, MessageRef ref, std::string_view address, std::string_view port);

}  // namespace tapscope
