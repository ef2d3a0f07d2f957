#include "tiers.hpp"

#include <algorithm>

namespace generate {

template <class Client>
Client* Pools::idle(std::vector<std::unique_ptr<Client>>& pool, std::int64_t now) {
    // The one that was used last, as pools do: the others stay idle for long.
    for (auto& client : pool)
        if (client->connection().free_at + 20 * us <= now) return client.get();
    return nullptr;
}

AjpClient& Pools::ajp(std::int64_t& now) {
    if (AjpClient* client = idle(ajp_, now)) return *client;
    ajp_.push_back(std::make_unique<AjpClient>(tap_, random_, 0x0a00000a));
    now = ajp_.back()->open(now);
    return *ajp_.back();
}

MysqlClient& Pools::mysql(std::int64_t& now) {
    if (MysqlClient* client = idle(mysql_, now)) return *client;
    mysql_.push_back(std::make_unique<MysqlClient>(tap_, random_, 0x0a00000b));
    now = mysql_.back()->login(now);
    return *mysql_.back();
}

void Pools::finish(std::int64_t now) {
    for (auto& client : mysql_) client->quit(now);
    for (auto& client : ajp_) client->connection().close(now);
}

namespace {

class TiersSession : public Session {
public:
    TiersSession(Tap& tap, Random& random, Pools& pools, std::uint32_t client)
        : tap_(tap), random_(random), pools_(pools), client_(client) {}

    // The whole transaction is written down at once: what begins later in another session finds the pooled
    // connections taken until `free_at`.
    std::int64_t step(std::int64_t now) override {
        if (left_ == 0) {
            if (browser_) now = browser_->close(now) + random_.exponential(5e6);
            browser_ = std::make_unique<Connection>(tap_, random_, client_, 0x0a00000a, 80);
            now = browser_->open(now);
            left_ = static_cast<unsigned>(random_.between(5, 60));
        }
        --left_;
        const Asked asked = ask(random_);
        const auto request = browser_->begin(to_server, http, Kind::request);
        append_http_request(browser_->out(to_server), asked, random_);
        now = browser_->send(to_server, now) + random_.between(40, 200) * us;
        const bool fixed = asked.path.find("/static/") == 0;
        const auto size = static_cast<std::size_t>(500 + random_.exponential(4000));
        const std::string page = json_body(size, random_);
        if (!fixed) {
            AjpClient& ajp = pools_.ajp(now);
            ajp.connection().free_at = INT64_MAX / 2;
            if (random_.chance(0.1)) now = ajp.ping(now) + 10 * us;
            now = ajp.forward(now, asked) + random_.between(100, 600) * us;
            ajp.connection().free_at = INT64_MAX / 2;
            MysqlClient& mysql = pools_.mysql(now);
            for (std::int64_t left = random_.between(1, 9); left > 0; --left)
                now = (random_.chance(0.5) ? mysql.query(now, asked.item, asked.user)
                                           : mysql.execute(now, asked.item, asked.user)) +
                      random_.between(30, 300) * us;
            now = ajp.answer(now + random_.between(50, 500) * us, 200, page) + random_.between(20, 80) * us;
        }
        browser_->begin(to_client, http, Kind::response, request);
        append_http_response(browser_->out(to_client), 200, "text/html;charset=UTF-8",
                             static_cast<std::int64_t>(page.size()), false, now, random_);
        browser_->out(to_client) += page;
        now = browser_->send(to_client, now);
        browser_->acknowledge(to_server, now + 40 * ms);
        return browser_->free_at = now + 41 * ms + random_.exponential(60e6);
    }
    void finish(std::int64_t now) override {
        if (browser_) browser_->close(now);
    }

private:
    Tap& tap_;
    Random& random_;
    Pools& pools_;
    std::uint32_t client_;
    unsigned left_ = 0;
    std::unique_ptr<Connection> browser_;
};

class ShortSession : public Session {
public:
    ShortSession(Tap& tap, Random& random, std::int64_t every_ns, bool closed)
        : tap_(tap), random_(random), every_ns_(every_ns), closed_(closed) {}

    std::int64_t step(std::int64_t now) override {
        const std::uint32_t client = 0x0a100000 + static_cast<std::uint32_t>(made_++ % 4000);
        Connection connection(tap_, random_, client, 0x0a00000a, 80);
        const std::int64_t start = now;
        now = connection.open(now);
        const auto request = connection.begin(to_server, http, Kind::request);
        connection.out(to_server) = "GET /ready?n=" + std::to_string(made_) + " HTTP/1.1\r\nHost: a\r\n\r\n";
        now = connection.send(to_server, now) + 200 * us;
        connection.begin(to_client, http, Kind::response, request);
        connection.out(to_client) = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        now = connection.send(to_client, now);
        if (closed_) connection.close(now + 50 * us);
        return start + random_.exponential(static_cast<double>(every_ns_));
    }

private:
    Tap& tap_;
    Random& random_;
    std::int64_t every_ns_;
    bool closed_;
    std::uint64_t made_ = 0;
};

}  // namespace

std::unique_ptr<Session> tiers_session(Tap& tap, Random& random, Pools& pools, std::uint32_t client) {
    return std::make_unique<TiersSession>(tap, random, pools, client);
}

std::unique_ptr<Session> short_session(Tap& tap, Random& random, std::int64_t every_ns, bool closed) {
    return std::make_unique<ShortSession>(tap, random, every_ns, closed);
}

}  // namespace generate
