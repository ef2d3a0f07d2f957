// AJP13 between a web server and a servlet container: https://tomcat.apache.org/connectors-doc/ajp/ajpv13a.html
#pragma once

#include <memory>

#include "http.hpp"
#include "network.hpp"

namespace generate {

class AjpClient {
public:
    AjpClient(Tap& tap, Random& random, std::uint32_t client);

    std::int64_t open(std::int64_t now) { return connection_.open(now); }
    std::int64_t ping(std::int64_t now);
    // Sends the request; the container has it at the time returned.
    std::int64_t forward(std::int64_t now, const Asked& asked);
    std::int64_t answer(std::int64_t now, int status, const std::string& body);
    Connection& connection() { return connection_; }

private:
    Random& random_;
    Connection connection_;
    std::int64_t request_ = -1;
};

std::unique_ptr<Session> ajp_session(Tap& tap, Random& random, std::uint32_t client);

}  // namespace generate
