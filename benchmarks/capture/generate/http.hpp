// HTTP/1.1 traffic: a web client's and a web service's heads, and bodies of three kinds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "network.hpp"

namespace generate {

// What one request asks for; the tiers behind it get the same values.
struct Asked {
    std::string method, path, query, body, session;
    std::uint64_t item = 0, user = 0;
};

Asked ask(Random& random);
// A request with a browser's headers.
void append_http_request(std::string& out, const Asked& asked, Random& random);
// The head of a response up to and with the blank line. `length` < 0: chunked.
void append_http_response(std::string& out, int status, const char* type, std::int64_t length, bool gzip,
                          std::int64_t now, Random& random);
// JSON as services answer it, `size` bytes.
std::string json_body(std::size_t size, Random& random);
const std::string& gzip_body(Random& random);
void append_chunked(std::string& out, const std::string& body, Random& random);

enum class HttpKind { small, chunked, window, large };
std::unique_ptr<Session> http_session(Tap& tap, Random& random, HttpKind kind, std::uint32_t client);

}  // namespace generate
