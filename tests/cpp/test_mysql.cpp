// MySQL packets in, messages out: logins, queries and their answers.
#include "conversation_tap.hpp"
#include "mysql_packets.hpp"
#include "mysql_script.hpp"

#include "dissect/mysql.hpp"

using namespace tapscope;
using namespace tapscope::test;

namespace {

void a_connection_logs_in_and_queries() {
    for (const std::uint32_t caps : {kBaseCaps, kBaseCaps | kDeprecateEof}) {
        const std::string answer = result_set(caps, two_rows);
        const auto script =
            after(connected(caps), {up(query("SELECT id, name FROM t WHERE id IN (17, 18)")), down(answer),
                                    up(command(0x0E)), down(ok_answer), up(query("UPDATE x SET a = 1")),
                                    down(packets(1, {err(1146)})), up(command(1))});
        expect_equal(play_all_ways(script, "session"),
                     "0 < one-way 'GREETING' bytes 80 at 1-1\n"
                     "1 > request 'LOGIN' flags 512 bytes 84 at 2-2\n"
                     "2 < response status 0 bytes 11 at 3-3 answers 1\n"
                     "3 > request 'SELECT id, name FROM t WHERE id IN (?+)' bytes 48 at 4-4\n"
                     "4 < response status 0 bytes " +
                         std::to_string(answer.size()) + " at 5-5 answers 3\n" +
                         "5 > request 'PING' flags 512 bytes 5 at 6-6\n"
                         "6 < response status 0 bytes 11 at 7-7 answers 5\n"
                         "7 > request 'UPDATE x SET a = ?' bytes 23 at 8-8\n"
                         "8 < response status 1146 flags 16 bytes 22 at 9-9 answers 7\n"
                         "9 > one-way 'QUIT' bytes 5 at 10-10\n",
                     "session");
        Tap tap;
        tap.play(script).finish();
        const std::vector<std::string> words{
            "17", "18", "anna", "SELECT id, name FROM t WHERE id IN (17, 18)", "1", "UPDATE x SET a = 1"};
        expect_equal(tap.tokens(3, words),
                     "0 number 17\n1 number 18\n0 statement SELECT id, name FROM t WHERE id IN (17, 18)\n",
                     "query tokens");
        expect_equal(tap.tokens(4, words), "0 result 17\n1 result anna\n0 result 18\n", "result tokens");
        expect(tap.outside(Direction::to_client) == 0 && tap.outside(Direction::to_server) == 0,
               "every byte is in a message");
    }
}

// A loop over the rows of a result mostly asks for their first column.
void a_long_answer_gives_its_first_rows_and_then_their_first_column() {
    std::vector<std::string> rows, words;
    std::string expected;
    for (int row = 0; row < 14; ++row) {
        const auto id = std::to_string(100 + row), name = "name" + std::to_string(row);
        rows.push_back(text_row({id, name}));
        words.insert(words.end(), {id, name});
        if (row < 10) expected += "0 result " + id + "\n";
        if (row < 4) expected += "1 result " + name + "\n";
    }
    Tap tap;
    tap.play(after(connected(kBaseCaps),
                   {up(query("SELECT id, name FROM t")), down(result_set(kBaseCaps, rows))}))
        .finish();
    expect_equal(tap.tokens(4, words), expected, "tokens of a long answer");
}

void auth_round_trips_belong_to_the_login() {
    const auto script = std::vector<Delivery>{down(greeting(kBaseCaps)),
                                              up(login(kBaseCaps)),
                                              down(packets(2, {"\xFE"
                                                               "caching_sha2_password" +
                                                               std::string(1, '\0') + "salt"})),
                                              up(packets(3, {"scrambled"})),
                                              down(packets(4, {"\x01\x04"})),
                                              up(packets(5, {"\x02"})),
                                              down(packets(6, {"\x01"
                                                               "PUBLIC KEY"})),
                                              up(packets(7, {std::string(256, 'x')})),
                                              down(packets(8, {ok()})),
                                              up(command(0x0E)),
                                              down(ok_answer)};
    expect_equal(play_all_ways(script, "auth"),
                 "0 < one-way 'GREETING' bytes 80 at 1-1\n"
                 "1 > request 'LOGIN' flags 512 bytes " +
                     std::to_string(84 + 13 + 5 + 260) + " at 2-8\n" + "2 < response status 0 bytes " +
                     std::to_string(31 + 6 + 15 + 11) + " at 3-9 answers 1\n" +
                     "3 > request 'PING' flags 512 bytes 5 at 10-10\n"
                     "4 < response status 0 bytes 11 at 11-11 answers 3\n",
                 "auth");
}

void every_factor_belongs_to_the_login() {
    const auto script = std::vector<Delivery>{down(greeting(kBaseCaps)),
                                              up(login(kBaseCaps)),
                                              down(packets(2, {"\x02"
                                                               "authentication_ldap" +
                                                               std::string(1, '\0') + "data"})),
                                              up(packets(3, {"answer"})),
                                              down(packets(4, {ok()})),
                                              up(command(0x0E)),
                                              down(ok_answer)};
    Tap tap;
    tap.play(script).finish();
    expect_equal(tap.counters("mysql."), "mysql.auth_next_factor 1\n", "factors");
    expect_equal(lines_from(play_all_ways(script, "factors"), 3),
                 "3 > request 'PING' flags 512 bytes 5 at 6-6\n"
                 "4 < response status 0 bytes 11 at 7-7 answers 3\n",
                 "factors");
}

void a_refused_connection() {
    expect_equal(play_all_ways({down(packets(0, {"\xFF\x10\x04Too many connections"}))}, "refused"),
                 "0 < one-way 'GREETING' status 1040 flags 16 bytes 27 at 1-1\n", "refused");
    expect_equal(lines_from(play_all_ways({down(greeting(kBaseCaps)), up(login(kBaseCaps)),
                                           down(packets(2, {err(1045)}))},
                                          "denied"),
                            2),
                 "2 < response status 1045 flags 16 bytes 22 at 3-3 answers 1\n", "denied");
}

void tls_is_left_alone() {
    const std::uint32_t caps = kBaseCaps | 0x800;
    const std::string ssl_request =
        packets(1, {le(caps, 4) + le(1 << 24, 4) + "\x2D" + std::string(23, '\0')});
    Tap tap;
    tap.play({down(greeting(caps)), up(ssl_request), up(std::string("\x16\x03\x01\x00\x05hello", 10)),
              down(std::string("\x16\x03\x03\x00\x01x", 6))})
        .finish();
    expect_equal(lines_from(tap.messages(), 1), "1 > one-way 'SSL_REQUEST' bytes 36 at 2-2\n", "tls");
    expect(tap.outside(Direction::to_server) == 10 && tap.outside(Direction::to_client) == 6,
           "TLS bytes are counted outside");
}

void several_results_are_one_answer() {
    const std::string results =
        packets(1, {ok(0x000A), "\x01", definition("a"), eof(), text_row({"x"}), eof(0x000A), ok(2)});
    expect_equal(lines_from(play_all_ways(after(connected(), {up(query("CALL p(1); SELECT 2")), down(results),
                                                              up(command(0x0E)), down(ok_answer)}),
                                          "multi"),
                            3),
                 "3 > request 'CALL p(?); SELECT ?' bytes 24 at 4-4\n"
                 "4 < response status 0 bytes " +
                     std::to_string(results.size()) + " at 5-5 answers 3\n" +
                     "5 > request 'PING' flags 512 bytes 5 at 6-6\n"
                     "6 < response status 0 bytes 11 at 7-7 answers 5\n",
                 "multi");
}

void an_error_among_rows_ends_the_answer() {
    const std::string killed = packets(1, {"\x01", definition("a"), eof(), text_row({"x"}), err(1317)});
    expect_equal(lines_from(play_all_ways(after(connected(), {up(query("SELECT a")), down(killed),
                                                              up(command(0x0E)), down(ok_answer)}),
                                          "killed"),
                            4),
                 "4 < response status 1317 flags 16 bytes " + std::to_string(killed.size()) +
                     " at 5-5 answers 3\n" +
                     "5 > request 'PING' flags 512 bytes 5 at 6-6\n"
                     "6 < response status 0 bytes 11 at 7-7 answers 5\n",
                 "killed");
}

void local_infile_belongs_to_its_query() {
    const auto script =
        after(connected(), {up(query("LOAD DATA LOCAL INFILE '/a' INTO TABLE t")),
                            down(packets(1, {"\xFB/a"})), up(packets(2, {"1\t2\n"})), up(packets(3, {""})),
                            down(packets(4, {ok()})), up(command(0x0E)), down(ok_answer)});
    expect_equal(lines_from(play_all_ways(script, "infile"), 3),
                 "3 > request 'LOAD DATA LOCAL INFILE ? INTO TABLE t' bytes 57 at 4-7\n"
                 "4 < response status 0 bytes 18 at 5-8 answers 3\n"
                 "5 > request 'PING' flags 512 bytes 5 at 9-9\n"
                 "6 < response status 0 bytes 11 at 10-10 answers 5\n",
                 "infile");
}

// The 255th packet of the file has the number of a command.
void a_long_file_of_local_infile_is_no_command() {
    int seq = 2;
    std::string file;
    for (int line = 0; line < 600; ++line) file += packet(seq, "\x03select " + std::to_string(line));
    file += packet(seq, "");
    const auto script = after(
        connected(), {up(query("LOAD DATA LOCAL INFILE '/a' INTO TABLE t")), down(packets(1, {"\xFB/a"})),
                      up(file), down(packets(seq, {ok()})), up(command(0x0E)), down(ok_answer)});
    expect_equal(lines_from(play_all_ways(script, "long infile"), 3),
                 "3 > request 'LOAD DATA LOCAL INFILE ? INTO TABLE t' bytes " +
                     std::to_string(45 + file.size()) +
                     " at 4-6\n"
                     "4 < response status 0 bytes 18 at 5-7 answers 3\n"
                     "5 > request 'PING' flags 512 bytes 5 at 8-8\n"
                     "6 < response status 0 bytes 11 at 9-9 answers 5\n",
                 "long infile");
}

void packets_of_16_mb_are_passed_over() {
    const std::string big = "INSERT INTO t VALUES ('" + std::string(17'000'000, 'x') + "')";
    const std::string request = query(big);
    const std::string row = text_row({std::string(0xFFFFFF, 'y')});
    const std::string answer = packets(1, {"\x01", definition("a"), eof(), row, eof()});
    Tap tap;
    tap.play(connected());
    tap.play({up(request), down(ok_answer), up(query("SELECT a")), down(answer), up(command(0x0E)),
              down(ok_answer)},
             60000)
        .finish();
    expect_equal(lines_from(tap.messages(), 3),
                 "3 > request 'INSERT INTO t VALUES (? ...' bytes " + std::to_string(request.size()) +
                     " at 4-4\n" +
                     "4 < response status 0 bytes 11 at 5-5 answers 3\n"
                     "5 > request 'SELECT a' bytes 13 at 6-6\n"
                     "6 < response status 0 bytes " +
                     std::to_string(answer.size()) + " at 7-7 answers 5\n" +
                     "7 > request 'PING' flags 512 bytes 5 at 8-8\n"
                     "8 < response status 0 bytes 11 at 9-9 answers 7\n",
                 "16 MB");
}

void other_answers() {
    const std::string fields = packets(1, {definition("a"), definition("b"), eof()});
    const auto script =
        after(connected(),
              {up(command(9)), down(packets(1, {"Uptime: 5"})), up(command(4, "t" + std::string(1, '\0'))),
               down(fields), up(command(0x1B, std::string(2, '\0'))), down(packets(1, {eof()})),
               up(command(2, "db")), down(ok_answer), up(command(0x16, "SELEC")),
               down(packets(1, {err(1064)})), up(command(0x1F)), down(ok_answer)});
    expect_equal(lines_from(play_all_ways(script, "others"), 3),
                 "3 > request 'STATISTICS' bytes 5 at 4-4\n"
                 "4 < response status 0 bytes 13 at 5-5 answers 3\n"
                 "5 > request 'FIELD_LIST' bytes 7 at 6-6\n"
                 "6 < response status 0 bytes " +
                     std::to_string(fields.size()) + " at 7-7 answers 5\n" +
                     "7 > request 'SET_OPTION' bytes 7 at 8-8\n"
                     "8 < response status 0 bytes 9 at 9-9 answers 7\n"
                     "9 > request 'INIT_DB' bytes 7 at 10-10\n"
                     "10 < response status 0 bytes 11 at 11-11 answers 9\n"
                     "11 > request 'PREPARE SELEC' flags 512 bytes 10 at 12-12\n"
                     "12 < response status 1064 flags 16 bytes 22 at 13-13 answers 11\n"
                     "13 > request 'RESET_CONNECTION' bytes 5 at 14-14\n"
                     "14 < response status 0 bytes 11 at 15-15 answers 13\n",
                 "others");
}

void a_progress_report_is_not_final() {
    const std::string answer =
        packets(1, {std::string("\xFF\xFF\xFF\x01\x02\x03\x00\x00\x05stage", 14), ok()});
    expect_equal(lines_from(play_all_ways(after(connected(kBaseCaps, 0x1D),
                                                {up(query("ALTER TABLE t ADD c INT")), down(answer)}),
                                          "progress"),
                            4),
                 "4 < response status 0 bytes " + std::to_string(answer.size()) + " at 5-5 answers 3\n",
                 "progress");
}

void replication_is_recognised() {
    Tap tap;
    tap.play(after(connected(),
                   {up(command(0x15, std::string(20, 'x'))), down(ok_answer),
                    up(command(0x12, std::string(20, '\0'))), down(packets(1, {std::string(30, '\0')})),
                    down(packets(2, {std::string(40, '\0')}))}))
        .finish();
    expect_equal(lines_from(tap.messages(), 3),
                 "3 > request 'REGISTER_SLAVE' bytes 25 at 4-4\n"
                 "4 < response status 0 bytes 11 at 5-5 answers 3\n"
                 "5 > one-way 'BINLOG_DUMP' bytes 25 at 6-6\n"
                 "6 < one-way 'BINLOG_EVENT' bytes 34 at 7-7\n"
                 "7 < one-way 'BINLOG_EVENT' bytes 44 at 8-8\n",
                 "replication");
}

void probes() {
    const auto probe = [](const std::string& s, Direction d) {
        return MysqlDissector::probe({reinterpret_cast<const std::uint8_t*>(s.data()), s.size()}, d);
    };
    expect(probe(greeting(kBaseCaps), Direction::to_client) == Probe::yes, "greeting");
    expect(probe(query("SELECT 1"), Direction::to_server) == Probe::yes, "query");
    expect(probe("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Direction::to_server) == Probe::no, "HTTP request");
    expect(probe("HTTP/1.1 200 OK\r\n\r\n", Direction::to_client) == Probe::no, "HTTP response");
    expect(probe(std::string("\x12\x34\x00\x01\x0A", 5), Direction::to_server) == Probe::no, "AJP");
    expect(probe(std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8), Direction::to_server) == Probe::no,
           "TLS");
}

}  // namespace

int main() {
    a_connection_logs_in_and_queries();
    a_long_answer_gives_its_first_rows_and_then_their_first_column();
    auth_round_trips_belong_to_the_login();
    every_factor_belongs_to_the_login();
    a_refused_connection();
    tls_is_left_alone();
    several_results_are_one_answer();
    an_error_among_rows_ends_the_answer();
    local_infile_belongs_to_its_query();
    a_long_file_of_local_infile_is_no_command();
    packets_of_16_mb_are_passed_over();
    other_answers();
    a_progress_report_is_not_final();
    replication_is_recognised();
    probes();
    return failures == 0 ? 0 : 1;
}
