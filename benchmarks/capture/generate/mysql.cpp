#include "mysql.hpp"

#include <algorithm>

namespace generate {
namespace {

constexpr std::uint8_t kQuit = 1, kQuery = 3, kPrepare = 0x16, kExecute = 0x17, kStatementClose = 0x19;
constexpr std::uint32_t kDeprecateEof = 1u << 24;
constexpr std::uint8_t kLongLong = 8, kVarString = 253;

// Where values go: # item, @ user, $ a text.
struct Shape {
    const char* text;
    std::size_t columns;  // 0: no result set
    std::size_t most_rows;
};
constexpr std::array kShapes = {
    Shape{"SELECT id, title, body, writer, date FROM stories WHERE id=#", 5, 1},
    Shape{"SELECT nickname FROM users WHERE id=@", 1, 1},
    Shape{"SELECT c.id, c.subject, c.rating FROM comments c JOIN users u ON u.id=c.writer WHERE c.story_id=# "
          "AND c.parent=0 ORDER BY c.date DESC LIMIT 25",
          3, 25},
    Shape{"SELECT count(*) FROM comments WHERE story_id=# AND rating>=1", 1, 1},
    Shape{"SELECT id, name, price, stock FROM items WHERE category='$' AND price BETWEEN # AND @ LIMIT 20", 4,
          20},
    Shape{"SELECT * FROM sessions WHERE token='$' AND user_id=@ FOR UPDATE", 4, 1},
    Shape{"INSERT INTO comments (writer, story_id, parent, subject, comment, date) VALUES (@, #, 0, '$', "
          "'it''s $', NOW())",
          0, 0},
    Shape{"UPDATE items SET stock=stock-1, updated=NOW() WHERE id=#", 0, 0},
    Shape{"UPDATE users SET last_seen='2025-06-15 10:11:12', rating=rating+1 WHERE id=@", 0, 0},
    Shape{"DELETE FROM cart WHERE user_id=@ AND item_id IN (#,@,17)", 0, 0},
};
constexpr std::array kSmall = {"SET autocommit=1", "SELECT 1", "COMMIT", "BEGIN"};
constexpr std::array kTexts = {"books", "network+queue", "2f6c1e9a", "garden",
                               "a long subject of some words"};
constexpr std::array kColumns = {"id", "title", "body", "writer", "date"};

void put_length(std::string& out, std::uint64_t n) {
    if (n < 251) return put_le(out, n, 1);
    put_le(out, n < 65536 ? 0xfc : 0xfd, 1);
    put_le(out, n, n < 65536 ? 2 : 3);
}
void put_text(std::string& out, std::string_view text) {
    put_length(out, text.size());
    out += text;
}

std::string statement(const char* shape, std::uint64_t item, std::uint64_t user, Random& random) {
    std::string out;
    for (const char* p = shape; *p != 0; ++p) {
        if (*p == '#')
            out += std::to_string(item);
        else if (*p == '@')
            out += std::to_string(user);
        else if (*p == '$')
            out += random.pick(kTexts);
        else
            out += *p;
    }
    return out;
}

// The same text with a question mark for each value; counts them.
std::string with_marks(const char* shape, std::size_t& marks) {
    std::string out;
    marks = 0;
    for (const char* p = shape; *p != 0; ++p) {
        const bool quoted = *p == '\'';
        if (quoted && p[1] == '$' && p[2] == '\'') {
            out += '?';
            ++marks;
            p += 2;
        } else if (*p == '#' || *p == '@') {
            out += '?';
            ++marks;
        } else {
            out += *p == '$' ? 'x' : *p;
        }
    }
    return out;
}

}  // namespace

MysqlClient::MysqlClient(Tap& tap, Random& random, std::uint32_t client)
    : random_(random),
      connection_(tap, random, client, 0x0a00000c, 3306),
      deprecate_eof_(random.chance(0.5)) {}

void MysqlClient::packet(Direction d, std::string_view payload) {
    std::string& out = connection_.out(d);
    put_le(out, payload.size(), 3);
    put_le(out, sequence_++, 1);
    out += payload;
}

void MysqlClient::ok(std::uint64_t affected, std::uint64_t insert_id) {
    std::string payload(1, '\0');
    put_length(payload, affected);
    put_length(payload, insert_id);
    put_le(payload, 2, 2);  // autocommit
    put_le(payload, 0, 2);
    packet(to_client, payload);
}

void MysqlClient::end_of_rows(bool of_definitions) {
    std::string payload;
    if (!deprecate_eof_) {
        payload.assign("\xfe\0\0\2\0", 5);
    } else {
        if (of_definitions) return;
        payload.assign("\xfe\0\0\2\0\0\0", 7);
    }
    packet(to_client, payload);
}

void MysqlClient::definitions(std::size_t columns) {
    for (std::size_t i = 0; i < columns; ++i) {
        std::string payload;
        for (const char* text : {"def", "rubbos", "s", "stories"}) put_text(payload, text);
        for (int twice = 0; twice < 2; ++twice) put_text(payload, kColumns[i % kColumns.size()]);
        put_le(payload, 0x0c, 1);
        put_le(payload, 45, 2);    // utf8mb4
        put_le(payload, 1020, 4);  // display length
        put_le(payload, i == 0 ? kLongLong : kVarString, 1);
        put_le(payload, 0, 2);
        put_le(payload, 0, 3);
        packet(to_client, payload);
    }
}

void MysqlClient::text_rows(std::size_t columns, std::size_t rows) {
    for (std::size_t row = 0; row < rows; ++row) {
        std::string payload;
        put_text(payload, std::to_string(random_.below(200'000)));
        for (std::size_t i = 1; i < columns; ++i) {
            if (random_.chance(0.05))
                payload += '\xfb';  // NULL
            else if (i == 2)
                put_text(payload, std::string(random_.below(300) + 20, 'b'));
            else
                put_text(payload, random_.pick(kTexts));
        }
        packet(to_client, payload);
    }
}

void MysqlClient::binary_rows(std::size_t columns, std::size_t rows) {
    for (std::size_t row = 0; row < rows; ++row) {
        std::string payload(1 + (columns + 9) / 8, '\0');
        put_le(payload, random_.below(200'000), 8);
        for (std::size_t i = 1; i < columns; ++i) {
            if (random_.chance(0.05))
                payload[1 + (i + 2) / 8] = static_cast<char>(payload[1 + (i + 2) / 8] | 1 << (i + 2) % 8);
            else if (i == 2)
                put_text(payload, std::string(random_.below(300) + 20, 'b'));
            else
                put_text(payload, random_.pick(kTexts));
        }
        packet(to_client, payload);
    }
}

std::int64_t MysqlClient::answer(std::int64_t now) {
    return connection_.free_at = connection_.send(to_client, now);
}

std::int64_t MysqlClient::login(std::int64_t now) {
    now = connection_.open(now) + 100 * us;
    connection_.begin(to_client, mysql, one_way);
    sequence_ = 0;
    std::string greeting =
        "\x0a"
        "8.0.36";
    greeting += '\0';
    put_le(greeting, random_.below(100'000), 4);
    for (int i = 0; i < 8; ++i) put_le(greeting, random_.between(33, 126), 1);
    greeting += '\0';
    const std::uint32_t capabilities = 0x000fa20f | 0x00080000 | (deprecate_eof_ ? kDeprecateEof : 0);
    put_le(greeting, capabilities & 0xffff, 2);
    put_le(greeting, 45, 1);
    put_le(greeting, 2, 2);
    put_le(greeting, capabilities >> 16, 2);
    put_le(greeting, 21, 1);
    greeting.append(10, '\0');
    for (int i = 0; i < 12; ++i) put_le(greeting, random_.between(33, 126), 1);
    greeting += '\0';
    greeting += "mysql_native_password";
    greeting += '\0';
    packet(to_client, greeting);
    now = connection_.send(to_client, now) + 200 * us;

    const auto request = connection_.begin(to_server, mysql, Kind::request);
    std::string reply;
    put_le(reply, capabilities & ~0x00000800u, 4);
    put_le(reply, 16 << 20, 4);
    put_le(reply, 45, 1);
    reply.append(23, '\0');
    reply += "rubbos";
    reply += '\0';
    put_le(reply, 20, 1);
    for (int i = 0; i < 20; ++i) put_le(reply, random_.below(256), 1);
    reply += "rubbos";
    reply += '\0';
    reply += "mysql_native_password";
    reply += '\0';
    packet(to_server, reply);
    now = connection_.send(to_server, now) + 300 * us;
    connection_.begin(to_client, mysql, response, request);
    ok(0, 0);
    return answer(now) + 100 * us;
}

std::int64_t MysqlClient::query(std::int64_t now, std::uint64_t item, std::uint64_t user) {
    const bool trivial = random_.chance(0.12);
    const Shape& shape = random_.pick(kShapes);
    const char* small = random_.pick(kSmall);
    const auto request = connection_.begin(to_server, mysql, Kind::request);
    sequence_ = 0;
    packet(to_server,
           static_cast<char>(kQuery) + (trivial ? small : statement(shape.text, item, user, random_)));
    now = connection_.send(to_server, now) + random_.between(60, 700) * us;
    connection_.begin(to_client, mysql, response, request);
    const std::size_t columns = trivial ? (small[1] == 'E' && small[2] == 'L' ? 1 : 0) : shape.columns;
    if (columns == 0 && !trivial && random_.chance(0.02)) {
        packet(to_client, std::string("\xff\x26\x04#23000", 9) + "Duplicate entry '17' for key 'PRIMARY'");
    } else if (columns == 0) {
        ok(random_.below(2), random_.below(100'000));
    } else {
        packet(to_client, std::string(1, static_cast<char>(columns)));
        definitions(columns);
        end_of_rows(true);
        text_rows(columns, trivial || shape.most_rows == 1 ? 1 : random_.below(shape.most_rows + 1));
        end_of_rows(false);
    }
    return answer(now);
}

std::int64_t MysqlClient::prepare(std::int64_t now, std::size_t shape) {
    std::size_t marks = 0;
    const std::string text = with_marks(kShapes[shape].text, marks);
    const auto request = connection_.begin(to_server, mysql, Kind::request);
    sequence_ = 0;
    packet(to_server, static_cast<char>(kPrepare) + text);
    now = connection_.send(to_server, now) + random_.between(60, 300) * us;
    connection_.begin(to_client, mysql, response, request);
    prepared_.push_back({next_statement_++, false, shape});
    std::string payload(1, '\0');
    put_le(payload, prepared_.back().id, 4);
    put_le(payload, kShapes[shape].columns, 2);
    put_le(payload, marks, 2);
    put_le(payload, 0, 3);
    packet(to_client, payload);
    for (const std::size_t columns : {marks, kShapes[shape].columns}) {
        if (columns == 0) continue;
        definitions(columns);
        end_of_rows(true);
    }
    return answer(now);
}

std::int64_t MysqlClient::execute(std::int64_t now, std::uint64_t item, std::uint64_t user) {
    const std::size_t shape = random_.below(kShapes.size());
    auto found =
        std::find_if(prepared_.begin(), prepared_.end(), [&](const Prepared& p) { return p.shape == shape; });
    if (found == prepared_.end()) {
        now = prepare(now, shape) + random_.between(40, 200) * us;
        found = prepared_.end() - 1;
    }
    std::size_t marks = 0;
    with_marks(kShapes[shape].text, marks);
    const auto request = connection_.begin(to_server, mysql, Kind::request);
    sequence_ = 0;
    std::string payload(1, static_cast<char>(kExecute));
    put_le(payload, found->id, 4);
    put_le(payload, 0, 1);
    put_le(payload, 1, 4);
    if (marks > 0) {
        payload.append((marks + 7) / 8, '\0');
        const bool types = !found->types_sent;
        found->types_sent = true;
        put_le(payload, types, 1);
        std::string values;
        // The kinds of values by position are those of the statement's marks.
        std::size_t n = 0;
        for (const char* p = kShapes[shape].text; *p != 0 && n < marks; ++p) {
            const bool number = *p == '#' || *p == '@';
            const bool text = *p == '\'' && p[1] == '$' && p[2] == '\'';
            if (!number && !text) continue;
            if (types) put_le(payload, number ? kLongLong : kVarString, 2);
            if (number)
                put_le(values, *p == '#' ? item : user, 8);
            else
                put_text(values, random_.pick(kTexts));
            ++n;
        }
        payload += values;
    }
    packet(to_server, payload);
    now = connection_.send(to_server, now) + random_.between(60, 700) * us;
    connection_.begin(to_client, mysql, response, request);
    const Shape& of = kShapes[shape];
    if (of.columns == 0) {
        ok(1, random_.below(100'000));
    } else {
        packet(to_client, std::string(1, static_cast<char>(of.columns)));
        definitions(of.columns);
        end_of_rows(true);
        binary_rows(of.columns, of.most_rows == 1 ? 1 : random_.below(of.most_rows + 1));
        end_of_rows(false);
    }
    now = answer(now);
    if (random_.chance(0.01)) {
        connection_.begin(to_server, mysql, one_way);
        sequence_ = 0;
        std::string close(1, static_cast<char>(kStatementClose));
        put_le(close, found->id, 4);
        packet(to_server, close);
        prepared_.erase(found);
        now = connection_.free_at = connection_.send(to_server, now + 50 * us);
    }
    return now;
}

std::int64_t MysqlClient::quit(std::int64_t now) {
    now = std::max(now, connection_.free_at) + 20 * us;
    connection_.begin(to_server, mysql, one_way);
    sequence_ = 0;
    packet(to_server, std::string(1, static_cast<char>(kQuit)));
    return connection_.close(connection_.send(to_server, now) + 20 * us);
}

namespace {

class MysqlSession : public Session {
public:
    MysqlSession(Tap& tap, Random& random, bool prepared, std::uint32_t client)
        : tap_(tap), random_(random), prepared_(prepared), client_(client) {}

    std::int64_t step(std::int64_t now) override {
        if (left_ == 0) {
            if (mysql_) now = mysql_->quit(now) + random_.exponential(2e6);
            mysql_ = std::make_unique<MysqlClient>(tap_, random_, client_);
            now = mysql_->login(now);
            left_ = static_cast<unsigned>(random_.between(200, 2000));
        }
        --left_;
        const std::uint64_t item = random_.below(200'000) + 1, user = random_.below(50'000) + 1;
        now = prepared_ ? mysql_->execute(now, item, user) : mysql_->query(now, item, user);
        if (random_.chance(0.1)) {
            mysql_->connection().acknowledge(to_server, now + 40 * ms);
            return now + 41 * ms + random_.exponential(10e6);
        }
        return now + 50 * us + random_.exponential(3e6);
    }
    void finish(std::int64_t now) override {
        if (mysql_ && random_.chance(0.5)) mysql_->quit(now);
    }

private:
    Tap& tap_;
    Random& random_;
    bool prepared_;
    std::uint32_t client_;
    unsigned left_ = 0;
    std::unique_ptr<MysqlClient> mysql_;
};

}  // namespace

std::unique_ptr<Session> mysql_session(Tap& tap, Random& random, bool prepared, std::uint32_t client) {
    return std::make_unique<MysqlSession>(tap, random, prepared, client);
}

}  // namespace generate
