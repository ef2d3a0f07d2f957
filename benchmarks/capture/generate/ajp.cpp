#include "ajp.hpp"

#include <algorithm>

namespace generate {
namespace {

constexpr std::size_t kMostInChunk = 8184;

void put_text(std::string& out, std::string_view text) {
    put_be16(out, static_cast<unsigned>(text.size()));
    out += text;
    out += '\0';
}

void packet(std::string& out, Direction d, const std::string& payload) {
    out += d == to_server ? std::string("\x12\x34", 2) : std::string("AB");
    put_be16(out, static_cast<unsigned>(payload.size()));
    out += payload;
}

}  // namespace

AjpClient::AjpClient(Tap& tap, Random& random, std::uint32_t client)
    : random_(random), connection_(tap, random, client, 0x0a00000b, 8009) {}

std::int64_t AjpClient::ping(std::int64_t now) {
    connection_.begin(to_server, ajp, one_way);
    packet(connection_.out(to_server), to_server, "\x0a");
    now = connection_.send(to_server, now) + random_.between(30, 120) * us;
    connection_.begin(to_client, ajp, interim);
    packet(connection_.out(to_client), to_client, "\x09");
    return connection_.free_at = connection_.send(to_client, now);
}

std::int64_t AjpClient::forward(std::int64_t now, const Asked& asked) {
    request_ = connection_.begin(to_server, ajp, Kind::request);
    std::string payload("\x02", 1);
    payload += static_cast<char>(asked.method == "POST" ? 4 : 2);
    put_text(payload, "HTTP/1.1");
    put_text(payload, asked.path);
    put_text(payload, "10.1.2.3");
    put_be16(payload, 0xffff);  // no remote host name
    put_text(payload, "shop.example.com");
    put_be16(payload, 80);
    payload += '\0';  // no TLS
    std::string headers;
    unsigned count = 0;
    const auto coded = [&](unsigned code, std::string_view value) {
        put_be16(headers, 0xa000 | code);
        put_text(headers, value);
        ++count;
    };
    coded(0x0b, "shop.example.com");
    coded(0x0e, "Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0");
    coded(0x01, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
    coded(0x04, "en-US,en;q=0.5");
    coded(0x03, "gzip, deflate");
    coded(0x09, "JSESSIONID=" + asked.session + "; lang=en");
    put_text(headers, "X-Forwarded-Proto");
    put_text(headers, "http");
    ++count;
    if (!asked.body.empty()) {
        coded(0x07, "application/x-www-form-urlencoded");
        coded(0x08, std::to_string(asked.body.size()));
    }
    put_be16(payload, count);
    payload += headers;
    if (!asked.query.empty()) {
        payload += '\x05';
        put_text(payload, asked.query);
    }
    payload += '\x06';
    put_text(payload, "worker1");
    payload += '\x0a';
    put_text(payload, "AJP_REMOTE_PORT");
    put_text(payload, std::to_string(random_.between(32768, 60999)));
    payload += '\xff';
    packet(connection_.out(to_server), to_server, payload);
    if (!asked.body.empty()) {
        std::string body;
        put_be16(body, static_cast<unsigned>(asked.body.size()));
        body += asked.body;
        packet(connection_.out(to_server), to_server, body);
    }
    return connection_.send(to_server, now);
}

std::int64_t AjpClient::answer(std::int64_t now, int status, const std::string& body) {
    connection_.begin(to_client, ajp, response, request_);
    std::string& out = connection_.out(to_client);
    std::string head("\x04", 1);
    put_be16(head, static_cast<unsigned>(status));
    put_text(head, status == 200 ? "200" : "404");
    put_be16(head, 3);
    put_be16(head, 0xa001);
    put_text(head, "text/html;charset=UTF-8");
    put_be16(head, 0xa003);
    put_text(head, std::to_string(body.size()));
    put_text(head, "X-Powered-By");
    put_text(head, "Servlet/5.0");
    packet(out, to_client, head);
    for (std::size_t at = 0; at < body.size(); at += kMostInChunk) {
        const std::size_t n = std::min(kMostInChunk, body.size() - at);
        std::string chunk("\x03", 1);
        put_be16(chunk, static_cast<unsigned>(n));
        chunk.append(body, at, n);
        chunk += '\0';
        packet(out, to_client, chunk);
    }
    packet(out, to_client, std::string("\x05\x01", 2));
    return connection_.free_at = connection_.send(to_client, now);
}

namespace {

class AjpSession : public Session {
public:
    AjpSession(Tap& tap, Random& random, std::uint32_t client)
        : tap_(tap), random_(random), client_(client) {}

    std::int64_t step(std::int64_t now) override {
        if (left_ == 0) {
            if (ajp_) now = ajp_->connection().close(now) + random_.exponential(2e6);
            ajp_ = std::make_unique<AjpClient>(tap_, random_, client_);
            now = ajp_->open(now);
            left_ = static_cast<unsigned>(random_.between(100, 1000));
        }
        --left_;
        if (random_.chance(0.1)) now = ajp_->ping(now) + 20 * us;
        now = ajp_->forward(now, ask(random_)) + random_.between(200, 3000) * us;
        const bool found = random_.chance(0.97);
        const auto size = static_cast<std::size_t>(200 + random_.exponential(2000));
        now = ajp_->answer(now, found ? 200 : 404, json_body(size, random_));
        if (random_.chance(0.3)) ajp_->connection().acknowledge(to_server, now + 40 * ms), now += 41 * ms;
        return now + 50 * us + random_.exponential(5e6);
    }
    void finish(std::int64_t now) override {
        if (ajp_ && random_.chance(0.5)) ajp_->connection().close(now);
    }

private:
    Tap& tap_;
    Random& random_;
    std::uint32_t client_;
    unsigned left_ = 0;
    std::unique_ptr<AjpClient> ajp_;
};

}  // namespace

std::unique_ptr<Session> ajp_session(Tap& tap, Random& random, std::uint32_t client) {
    return std::make_unique<AjpSession>(tap, random, client);
}

}  // namespace generate
