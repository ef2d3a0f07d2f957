#include "http.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <deque>

namespace generate {
namespace {

constexpr std::array kAgents = {
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 "
    "Safari/537.36",
    "Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_4) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 "
    "Safari/605.1.15",
    "okhttp/4.12.0",
    "python-requests/2.31.0",
};
constexpr std::array kAccepts = {
    "application/json, text/plain, */*",
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    "*/*",
};
constexpr std::array kPaths = {"/rubbos/ViewStory",
                               "/rubbos/ViewComment",
                               "/api/v2/items",
                               "/api/v2/users",
                               "/shop/cart",
                               "/shop/checkout",
                               "/rubbos/BrowseStoriesByCategory",
                               "/rubbos/StoriesOfTheDay",
                               "/search",
                               "/static/app.3f9c1b.js"};
constexpr std::array kWords = {"alpha",   "queue", "packet", "server", "latency", "request", "reply",
                               "balance", "tier",  "window", "trace",  "index",   "commit",  "thread"};

void put_number(std::string& out, std::uint64_t value) { out += std::to_string(value); }

std::string hex(Random& random, int digits) {
    std::string out;
    for (int i = 0; i < digits; ++i) out += "0123456789abcdef"[random.below(16)];
    return out;
}

}  // namespace

Asked ask(Random& random) {
    Asked asked;
    asked.item = random.below(200'000) + 1;
    asked.user = random.below(50'000) + 1;
    asked.session = hex(random, 32);
    asked.path = random.pick(kPaths);
    const double kind = random.unit();
    if (asked.path.find("/api/") == 0 || kind < 0.3) {
        asked.path += '/' + std::to_string(asked.item);
        if (kind < 0.2) asked.path += "/reviews";
    }
    if (random.chance(0.6)) {
        asked.query = "id=" + std::to_string(asked.item) + "&user=" + std::to_string(asked.user);
        if (random.chance(0.3))
            asked.query += "&q=" + std::string(random.pick(kWords)) + "+" + random.pick(kWords);
    }
    asked.method = "GET";
    if (random.chance(0.12)) {
        asked.method = "POST";
        asked.body = "item=" + std::to_string(asked.item) +
                     "&quantity=" + std::to_string(random.below(9) + 1) + "&comment=";
        for (std::uint64_t i = random.below(12) + 2; i > 0; --i) {
            asked.body += random.pick(kWords);
            asked.body += '+';
        }
    }
    return asked;
}

void append_http_request(std::string& out, const Asked& asked, Random& random) {
    out += asked.method + ' ' + asked.path;
    if (!asked.query.empty()) out += '?' + asked.query;
    out += " HTTP/1.1\r\nHost: shop.example.com\r\nUser-Agent: ";
    out += random.pick(kAgents);
    out += "\r\nAccept: ";
    out += random.pick(kAccepts);
    out += "\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate\r\n";
    if (random.chance(0.7)) out += "Referer: http://shop.example.com/rubbos/StoriesOfTheDay\r\n";
    out += "Cookie: JSESSIONID=" + asked.session + "; lang=en; _ga=GA1.2.";
    put_number(out, random.below(2'000'000'000));
    out += '.';
    put_number(out, 1'750'000'000 + random.below(1'000'000));
    out += "\r\n";
    if (random.chance(0.25)) out += "X-Request-Id: " + hex(random, 32) + "\r\n";
    if (!asked.body.empty()) {
        out += "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: ";
        put_number(out, asked.body.size());
        out += "\r\n";
    }
    out += "Connection: keep-alive\r\n\r\n";
    out += asked.body;
}

void append_http_response(std::string& out, int status, const char* type, std::int64_t length, bool gzip,
                          std::int64_t now, Random& random) {
    out += "HTTP/1.1 ";
    put_number(out, static_cast<std::uint64_t>(status));
    out += status == 200   ? " OK"
           : status == 304 ? " Not Modified"
           : status == 404 ? " Not Found"
           : status == 204 ? " No Content"
                           : " Found";
    out += "\r\nDate: Sun, 15 Jun 2025 ";
    const auto second = static_cast<unsigned>(now / s % 86400);
    char clock[32];
    std::snprintf(clock, sizeof clock, "%02u:%02u:%02u", second / 3600, second / 60 % 60, second % 60);
    out += clock;
    out += " GMT\r\nServer: Apache/2.4.62 (Debian)\r\n";
    if (status == 302) out += "Location: /shop/done\r\n";
    if (status != 304 && status != 204) {
        out += "Content-Type: ";
        out += type;
        out += "\r\n";
        if (gzip) out += "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n";
        if (length < 0) {
            out += "Transfer-Encoding: chunked\r\n";
        } else {
            out += "Content-Length: ";
            put_number(out, static_cast<std::uint64_t>(length));
            out += "\r\n";
        }
    } else if (status == 304) {
        out += "ETag: \"" + hex(random, 12) + "\"\r\n";
    }
    out += "Cache-Control: no-cache\r\nKeep-Alive: timeout=5, max=";
    put_number(out, random.below(100) + 1);
    out += "\r\nConnection: Keep-Alive\r\n\r\n";
}

std::string json_body(std::size_t size, Random& random) {
    std::string out = "{\"items\":[";
    while (out.size() + 60 < size) {
        out += "{\"id\":";
        put_number(out, random.below(200'000));
        out += ",\"name\":\"";
        out += random.pick(kWords);
        out += ' ';
        out += random.pick(kWords);
        out += "\",\"price\":";
        put_number(out, random.below(10'000));
        out += ".99},";
    }
    out += "{}],\"pad\":\"";
    while (out.size() + 2 < size) out += static_cast<char>('a' + out.size() % 26);
    out += "\"}";
    return out;
}

const std::string& gzip_body(Random& random) {
    static std::vector<std::string> bodies;
    if (bodies.empty()) {
        Random own(7);  // the same bodies whatever came before
        for (int i = 0; i < 48; ++i) {
            std::string plain;
            while (plain.size() < 2000u + static_cast<std::size_t>(i) * 700) plain += json_body(300, own);
            z_stream z{};
            if (deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
            std::string packed(plain.size() + 1024, '\0');
            z.next_in = reinterpret_cast<Bytef*>(plain.data());
            z.avail_in = static_cast<uInt>(plain.size());
            z.next_out = reinterpret_cast<Bytef*>(packed.data());
            z.avail_out = static_cast<uInt>(packed.size());
            deflate(&z, Z_FINISH);
            packed.resize(z.total_out);
            deflateEnd(&z);
            bodies.push_back(std::move(packed));
        }
    }
    return bodies[random.below(bodies.size())];
}

void append_chunked(std::string& out, const std::string& body, Random& random) {
    for (std::size_t at = 0; at < body.size();) {
        const std::size_t n = std::min<std::size_t>(random.below(1200) + 120, body.size() - at);
        char size[24];
        std::snprintf(size, sizeof size, "%zx%s\r\n", n, random.chance(0.02) ? ";name=value" : "");
        out += size;
        out.append(body, at, n);
        out += "\r\n";
        at += n;
    }
    out += "0\r\n";
    if (random.chance(0.03)) out += "X-Checksum: " + hex(random, 16) + "\r\n";
    out += "\r\n";
}

namespace {

class HttpSession : public Session {
public:
    HttpSession(Tap& tap, Random& random, HttpKind kind, std::uint32_t client)
        : tap_(tap), random_(random), kind_(kind), client_(client) {}

    std::int64_t step(std::int64_t now) override {
        if (left_ == 0) {
            if (connection_) now = connection_->close(answer_open(now)) + random_.exponential(2e6);
            connection_ = std::make_unique<Connection>(tap_, random_, client_, 0x0a00000a, 80);
            now = connection_->open(now);
            left_ = static_cast<unsigned>(random_.between(20, 200));
        }
        --left_;
        return kind_ == HttpKind::small     ? one_small(now)
               : kind_ == HttpKind::chunked ? some_pipelined(now)
               : kind_ == HttpKind::window  ? one_of_window(now)
                                            : one_large(now);
    }
    void finish(std::int64_t now) override {
        if (connection_) now = answer_open(now);
        if (connection_ && random_.chance(0.9)) connection_->close(now);
    }

private:
    std::int64_t think(std::int64_t now) {
        // Linux acknowledges on its own when no request follows within 40 ms.
        if (random_.chance(0.5)) {
            connection_->acknowledge(to_server, now + 40 * ms);
            return connection_->free_at = now + 41 * ms + random_.exponential(20e6);
        }
        return connection_->free_at = now + 100 * us + random_.exponential(8e6);
    }

    std::int64_t one_small(std::int64_t now) {
        const Asked asked = ask(random_);
        const auto request = connection_->begin(to_server, http, Kind::request);
        append_http_request(connection_->out(to_server), asked, random_);
        now = connection_->send(to_server, now) + random_.between(80, 900) * us;
        connection_->begin(to_client, http, Kind::response, request);
        const double what = random_.unit();
        const int status = what < 0.86   ? 200
                           : what < 0.92 ? 304
                           : what < 0.95 ? 404
                           : what < 0.98 ? 302
                                         : 204;
        const bool body = status != 304 && status != 204;
        const std::string json = body ? json_body(random_.below(500) + 70, random_) : "";
        std::string& out = connection_->out(to_client);
        append_http_response(out, status, "application/json", static_cast<std::int64_t>(json.size()), false,
                             now, random_);
        out += json;
        return think(connection_->send(to_client, now));
    }

    std::int64_t some_pipelined(std::int64_t now) {
        const unsigned depth = random_.chance(0.5) ? 1 : static_cast<unsigned>(random_.between(2, 6));
        std::vector<std::uint32_t> requests;
        for (unsigned i = 0; i < depth; ++i) {
            Asked asked = ask(random_);
            asked.method = "GET";
            asked.body.clear();
            requests.push_back(connection_->begin(to_server, http, Kind::request));
            append_http_request(connection_->out(to_server), asked, random_);
        }
        now = connection_->send(to_server, now) + random_.between(80, 900) * us;
        for (const std::uint32_t request : requests) {
            connection_->begin(to_client, http, Kind::response, request);
            std::string& out = connection_->out(to_client);
            const bool gzip = random_.chance(0.6);
            append_http_response(out, 200, "application/json", -1, gzip, now, random_);
            append_chunked(out, gzip ? gzip_body(random_) : json_body(random_.below(6000) + 200, random_),
                           random_);
            if (random_.chance(0.5)) now = connection_->send(to_client, now) + random_.between(5, 400) * us;
        }
        return think(connection_->send(to_client, now));
    }

    // A client that always has four requests open: for each answer it sends another one.
    std::int64_t one_of_window(std::int64_t now) {
        while (open_.size() < 4) {
            open_.push_back(connection_->begin(to_server, http, Kind::request));
            append_http_request(connection_->out(to_server), ask(random_), random_);
        }
        now = connection_->send(to_server, now) + random_.between(80, 900) * us;
        return connection_->free_at = answer_oldest(now) + 50 * us + random_.exponential(2e6);
    }

    std::int64_t answer_oldest(std::int64_t now) {
        connection_->begin(to_client, http, Kind::response, open_.front());
        open_.pop_front();
        const std::string body = json_body(random_.below(2500) + 70, random_);
        std::string& out = connection_->out(to_client);
        append_http_response(out, 200, "application/json", static_cast<std::int64_t>(body.size()), false, now,
                             random_);
        out += body;
        return connection_->send(to_client, now);
    }

    std::int64_t answer_open(std::int64_t now) {
        while (!open_.empty()) now = answer_oldest(now) + 50 * us;
        return now;
    }

    std::int64_t one_large(std::int64_t now) {
        static const std::string filler = json_body(3 << 20, random_);
        const bool upload = random_.chance(0.1);
        const auto size = static_cast<std::size_t>(30'000 + random_.exponential(250e3)) % filler.size();
        Asked asked = ask(random_);
        asked.method = upload ? "POST" : "GET";
        asked.body = upload ? filler.substr(0, size) : "";
        const auto request = connection_->begin(to_server, http, Kind::request);
        append_http_request(connection_->out(to_server), asked, random_);
        now = connection_->send(to_server, now) + random_.between(80, 900) * us;
        connection_->begin(to_client, http, Kind::response, request);
        std::string& out = connection_->out(to_client);
        const std::size_t answer = upload ? 80 : size;
        append_http_response(out, 200, "application/octet-stream", static_cast<std::int64_t>(answer), false,
                             now, random_);
        out.append(filler, random_.below(filler.size() - answer), answer);
        return think(connection_->send(to_client, now));
    }

    Tap& tap_;
    Random& random_;
    HttpKind kind_;
    std::uint32_t client_;
    unsigned left_ = 0;
    std::deque<std::uint32_t> open_;  // requests without an answer, of a window
    std::unique_ptr<Connection> connection_;
};

}  // namespace

std::unique_ptr<Session> http_session(Tap& tap, Random& random, HttpKind kind, std::uint32_t client) {
    return std::make_unique<HttpSession>(tap, random, kind, client);
}

}  // namespace generate
