// The MySQL protocol as connectors speak it: login, statements as text, prepared statements.
// https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html
#pragma once

#include <memory>
#include <vector>

#include "network.hpp"

namespace generate {

class MysqlClient {
public:
    MysqlClient(Tap& tap, Random& random, std::uint32_t client);

    std::int64_t login(std::int64_t now);
    std::int64_t query(std::int64_t now, std::uint64_t item, std::uint64_t user);    // one text statement
    std::int64_t execute(std::int64_t now, std::uint64_t item, std::uint64_t user);  // one prepared statement
    std::int64_t quit(std::int64_t now);
    Connection& connection() { return connection_; }

private:
    struct Prepared {
        std::uint32_t id;
        bool types_sent;
        std::size_t shape;
    };
    void packet(Direction d, std::string_view payload);
    void definitions(std::size_t columns);
    void text_rows(std::size_t columns, std::size_t rows);
    void binary_rows(std::size_t columns, std::size_t rows);
    void end_of_rows(bool of_definitions);
    void ok(std::uint64_t affected, std::uint64_t insert_id);
    std::int64_t answer(std::int64_t now);
    std::int64_t prepare(std::int64_t now, std::size_t shape);

    Random& random_;
    Connection connection_;
    bool deprecate_eof_;
    std::uint8_t sequence_ = 0;
    std::uint32_t next_statement_ = 1;
    std::vector<Prepared> prepared_;
};

std::unique_ptr<Session> mysql_session(Tap& tap, Random& random, bool prepared, std::uint32_t client);

}  // namespace generate
