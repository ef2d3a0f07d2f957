// Four tiers: browsers, a web server, a servlet container with a pool of database connections, a database.
#pragma once

#include <memory>

#include "ajp.hpp"
#include "mysql.hpp"
#include "network.hpp"

namespace generate {

// The connections that the tiers keep open to each other.
class Pools {
public:
    Pools(Tap& tap, Random& random) : tap_(tap), random_(random) {}
    AjpClient& ajp(std::int64_t& now);
    MysqlClient& mysql(std::int64_t& now);
    void finish(std::int64_t now);

private:
    template <class Client>
    Client* idle(std::vector<std::unique_ptr<Client>>& pool, std::int64_t now);
    Tap& tap_;
    Random& random_;
    std::vector<std::unique_ptr<AjpClient>> ajp_;
    std::vector<std::unique_ptr<MysqlClient>> mysql_;
};

std::unique_ptr<Session> tiers_session(Tap& tap, Random& random, Pools& pools, std::uint32_t client);

// Connections with one small request and answer each. `closed`: they end right after; else they stay open.
std::unique_ptr<Session> short_session(Tap& tap, Random& random, std::int64_t every_ns, bool closed);

}  // namespace generate
