// MySQL packets in, messages and evidence out.
#include "conversation_tap.hpp"
#include "mysql_packets.hpp"

#include "dissect/mysql.hpp"

using namespace tapscope;
using namespace tapscope::test;

namespace {

const std::string ok_answer = packets(1, {ok()});

std::vector<Delivery> connected(std::uint32_t caps = kBaseCaps, std::uint32_t mariadb_caps = 0) {
    if (mariadb_caps != 0) caps &= ~1u;
    return {down(greeting(caps, mariadb_caps)), up(login(caps, mariadb_caps)), down(packets(2, {ok()}))};
}

std::vector<Delivery> after(std::vector<Delivery> script, std::vector<Delivery> more) {
    for (auto& step : more) script.push_back(std::move(step));
    return script;
}

// The messages behind greeting, login and its answer, rows renumbered from 0.
std::string lines_from(const std::string& messages, std::size_t skip) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < skip && at != std::string::npos; ++i) at = messages.find('\n', at) + 1;
    return messages.substr(at);
}

std::string result_set(std::uint32_t caps, const std::vector<std::string>& rows, std::uint16_t status = 2) {
    std::vector<std::string> p{"\x02", definition("id", 3), definition("name")};
    const bool deprecate = (caps & kDeprecateEof) != 0;
    if (!deprecate) p.push_back(eof());
    for (const auto& row : rows) p.push_back(row);
    p.push_back(deprecate ? ok(status, '\xFE') : eof(status));
    return packets(1, p);
}

const std::vector<std::string> two_rows{text_row({"17", "anna"}), text_row({"18", "NULL"})};

void a_connection_logs_in_and_queries() {
    for (const std::uint32_t caps : {kBaseCaps, kBaseCaps | kDeprecateEof}) {
        const std::string answer = result_set(caps, two_rows);
        const auto script =
            after(connected(caps), {up(query("SELECT id, name FROM t WHERE id IN (17, 18)")), down(answer),
                                    up(command(0x0E)), down(ok_answer), up(query("UPDATE x SET a = 1")),
                                    down(packets(1, {err(1146)})), up(command(1))});
        expect_equal(play_all_ways(script, "session"),
                     "0 < one-way 'GREETING' bytes 80 at 1-1\n"
                     "1 > request 'LOGIN' bytes 84 at 2-2\n"
                     "2 < response status 0 bytes 11 at 3-3 answers 1\n"
                     "3 > request 'SELECT id, name FROM t WHERE id IN (?+)' bytes 48 at 4-4\n"
                     "4 < response status 0 bytes " +
                         std::to_string(answer.size()) + " at 5-5 answers 3\n" +
                         "5 > request 'PING' bytes 5 at 6-6\n"
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
                 "1 > request 'LOGIN' bytes " +
                     std::to_string(84 + 13 + 5 + 260) + " at 2-8\n" + "2 < response status 0 bytes " +
                     std::to_string(31 + 6 + 15 + 11) + " at 3-9 answers 1\n" +
                     "3 > request 'PING' bytes 5 at 10-10\n"
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
                 "3 > request 'PING' bytes 5 at 6-6\n"
                 "4 < response status 0 bytes 11 at 7-7 answers 3\n",
                 "factors");
}

void a_lost_login_lets_no_answer_swallow_the_next() {
    // Whether EOF packets end definitions was agreed in the login; the one here comes in a packet of its own.
    const std::string prepare_ok = std::string(1, '\0') + le(1, 4) + le(0, 2) + le(1, 2) + '\0' + le(0, 2);
    for (const bool eof_sent : {false, true}) {
        std::vector<Delivery> script{down(greeting(kBaseCaps | kDeprecateEof)),
                                     lost_up(login(kBaseCaps).size()), down(packets(2, {ok()})),
                                     up(command(0x16, "SELECT ?")),
                                     down(packets(1, {prepare_ok, definition("?")}))};
        if (eof_sent) script.push_back(down(packets(3, {eof()})));
        script = after(script, {up(command(0x0E)), down(ok_answer), up(query("SELECT a")),
                                down(packets(1, {err(1146)}))});
        Tap tap;
        const std::string messages = tap.play(script).finish().messages();
        expect(tap.accounted(), "bytes add up");
        const std::string last = messages.substr(messages.rfind("\n", messages.size() - 2) + 1);
        const std::size_t ping = messages.find("'PING'"), select = messages.find("'SELECT a'");
        expect(ping != std::string::npos && select != std::string::npos, "commands behind the login");
        const std::string row = messages.substr(messages.rfind("\n", select) + 1, 1);
        expect(
            last.find("status 1146") != std::string::npos && last.find("answers " + row) != std::string::npos,
            "the error answers the query:\n" + messages);
    }
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
                     "5 > request 'PING' bytes 5 at 6-6\n"
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
                     "5 > request 'PING' bytes 5 at 6-6\n"
                     "6 < response status 0 bytes 11 at 7-7 answers 5\n",
                 "killed");
}

std::string prepare_ok(std::uint32_t id, std::uint16_t params, std::uint16_t columns, bool deprecate) {
    std::vector<std::string> p{std::string(1, '\0') + le(id, 4) + le(columns, 2) + le(params, 2) +
                               std::string(3, '\0')};
    for (int i = 0; i < params; ++i) p.push_back(definition("?"));
    if (params > 0 && !deprecate) p.push_back(eof());
    for (int i = 0; i < columns; ++i) p.push_back(definition("c", 8, 0x20));
    if (columns > 0 && !deprecate) p.push_back(eof());
    return packets(1, p);
}

std::string execute(std::uint32_t id, const std::string& rest, std::uint8_t flags = 0) {
    return command(0x17, le(id, 4) + le(flags, 1) + le(1, 4) + rest);
}

// NULL bitmap, types sent, LONGLONG unsigned 17, VAR_STRING "anna", NULL, DOUBLE 2.5, DATETIME.
const std::string five_params =
    std::string("\x04\x01\x08\x80\xFD\x00\x06\x00\x05\x00\x0C\x00", 12) + le(17, 8) + lenenc_str("anna") +
    std::string("\x00\x00\x00\x00\x00\x00\x04\x40", 8) + std::string("\x07\xEA\x07\x02\x03\x04\x05\x06", 8);

void prepared_statements() {
    for (const bool deprecate : {false, true}) {
        const std::uint32_t caps = kBaseCaps | (deprecate ? kDeprecateEof : 0);
        const std::string text = "SELECT c FROM t WHERE a = ? AND b = ? AND d = ? AND e = ? AND f > ?";
        std::vector<std::string> rows{"\x01", definition("c", 8, 0x20)};
        if (!deprecate) rows.push_back(eof());
        rows.push_back(std::string("\x00\x00", 2) + le(4711, 8));
        rows.push_back(deprecate ? ok(2, '\xFE') : eof());
        const std::string again = std::string("\x04\x00", 2) + le(18, 8) + lenenc_str("bob") +
                                  std::string(7, '\0') + "\x40" + std::string(1, '\0');
        const auto script =
            after(connected(caps),
                  {up(command(0x16, text)), down(prepare_ok(9, 5, 1, deprecate)), up(execute(9, five_params)),
                   down(packets(1, rows)), up(execute(9, again)), down(packets(1, rows)),
                   up(command(0x19, le(9, 4))), up(execute(9, again)), down(packets(1, {err(1243)}))});
        const std::string lines = play_all_ways(script, "prepared");
        const std::string size = std::to_string(packets(1, rows).size());
        expect_equal(lines_from(lines, 3),
                     "3 > request 'PREPARE " + text + "' bytes " + std::to_string(text.size() + 5) +
                         " at 4-4\n" + "4 < response status 0 bytes " +
                         std::to_string(prepare_ok(9, 5, 1, deprecate).size()) + " at 5-5 answers 3\n" +
                         "5 > request 'EXECUTE " + text + "' bytes " +
                         std::to_string(14 + five_params.size()) + " at 6-6\n" +
                         "6 < response status 0 bytes " + size + " at 7-7 answers 5\n" +
                         "7 > request 'EXECUTE " + text + "' bytes " + std::to_string(14 + again.size()) +
                         " at 8-8\n" + "8 < response status 0 bytes " + size + " at 9-9 answers 7\n" +
                         "9 > one-way 'STMT_CLOSE' bytes 9 at 10-10\n"
                         "10 > request 'EXECUTE (text unseen)' bytes " +
                         std::to_string(14 + again.size()) + " at 11-11\n" +
                         "11 < response status 1243 flags 16 bytes 22 at 12-12 answers 10\n",
                     "prepared");
        Tap tap;
        tap.play(script).finish();
        expect(tap.accounted(), "bytes add up");
        expect_equal(tap.tokens(5, {"17", "anna", "2.5", "2026-02-03 04:05:06"}),
                     "0 number 17\n1 text anna\n3 number 2.5\n4 text 2026-02-03 04:05:06\n",
                     "bound parameters");
        expect_equal(tap.tokens(7, {"18", "bob", "2", "0000-00-00 00:00:00"}),
                     "0 number 18\n1 text bob\n3 number 2\n4 text 0000-00-00 00:00:00\n",
                     "types are remembered");
        expect_equal(tap.tokens(6, {"4711"}), "0 result 4711\n", "binary row");
    }
}

void mariadb_pipelines_and_names_the_last_statement() {
    const std::uint32_t caps = kBaseCaps | kDeprecateEof;
    const std::string last = std::string("\xFF\xFF\xFF\xFF\x00\x01\x00\x00\x00", 9);
    const std::string one = std::string("\x00\x01\x03\x00", 4) + le(5, 4);
    const std::string two = std::string("\x00\x01\x03\x00", 4) + le(6, 4);
    // Metadata skipped in the second answer: CACHE_METADATA.
    const std::string first_answer = packets(1, {std::string("\x01\x01", 2), definition("c", 3),
                                                 std::string("\x00\x00", 2) + le(1, 4), ok(2, '\xFE')});
    const std::string second_answer =
        packets(1, {std::string("\x01\x00", 2), std::string("\x00\x00", 2) + le(2, 4), ok(2, '\xFE')});
    const auto script =
        after(connected(caps, 0x1C), {up(command(0x16, "SELECT c FROM t WHERE a = ?") +
                                         command(0x17, last + one) + command(0x17, last + two)),
                                      down(prepare_ok(1, 1, 1, true) + first_answer), down(second_answer),
                                      up(command(0x0E)), down(ok_answer)});
    expect_equal(lines_from(play_all_ways(script, "pipelined"), 3),
                 "3 > request 'PREPARE SELECT c FROM t WHERE a = ?' bytes 32 at 4-4\n"
                 "4 > request 'EXECUTE SELECT c FROM t WHERE a = ?' bytes 22 at 4-4\n"
                 "5 > request 'EXECUTE SELECT c FROM t WHERE a = ?' bytes 22 at 4-4\n"
                 "6 < response status 0 bytes " +
                     std::to_string(prepare_ok(1, 1, 1, true).size()) + " at 5-5 answers 3\n" +
                     "7 < response status 0 bytes " + std::to_string(first_answer.size()) +
                     " at 5-5 answers 4\n" + "8 < response status 0 bytes " +
                     std::to_string(second_answer.size()) + " at 6-6 answers 5\n" +
                     "9 > request 'PING' bytes 5 at 7-7\n"
                     "10 < response status 0 bytes 11 at 8-8 answers 9\n",
                 "pipelined");
    Tap tap;
    tap.play(script).finish();
    expect(tap.accounted(), "bytes add up");
    expect_equal(tap.tokens(4, {"5", "6"}) + tap.tokens(5, {"5", "6"}), "0 number 5\n0 number 6\n",
                 "parameters before the prepare is answered");
    expect_equal(tap.tokens(7, {"1", "2"}) + tap.tokens(8, {"1", "2"}), "0 result 1\n0 result 2\n",
                 "types of cached metadata");
}

void cursors_are_calls_of_their_own() {
    const std::string open = packets(1, {"\x01", definition("c", 3), eof(0x0042)});
    const std::string some = packets(1, {std::string("\x00\x00", 2) + le(7, 4), eof(0x0042)});
    const std::string rest = packets(1, {std::string("\x00\x00", 2) + le(8, 4), eof(0x0082)});
    const auto script =
        after(connected(), {up(command(0x16, "SELECT c FROM t")), down(prepare_ok(3, 0, 1, false)),
                            up(execute(3, "", 1)), down(open), up(command(0x1C, le(3, 4) + le(1, 4))),
                            down(some), up(command(0x1C, le(3, 4) + le(9, 4))), down(rest),
                            up(command(0x1A, le(3, 4))), down(ok_answer)});
    expect_equal(lines_from(play_all_ways(script, "cursor"), 5),
                 "5 > request 'EXECUTE SELECT c FROM t' bytes 14 at 6-6\n"
                 "6 < response status 0 bytes " +
                     std::to_string(open.size()) + " at 7-7 answers 5\n" +
                     "7 > request 'STMT_FETCH' bytes 13 at 8-8\n"
                     "8 < response status 0 bytes " +
                     std::to_string(some.size()) + " at 9-9 answers 7\n" +
                     "9 > request 'STMT_FETCH' bytes 13 at 10-10\n"
                     "10 < response status 0 bytes " +
                     std::to_string(rest.size()) + " at 11-11 answers 9\n" +
                     "11 > request 'STMT_RESET' bytes 9 at 12-12\n"
                     "12 < response status 0 bytes 11 at 13-13 answers 11\n",
                 "cursor");
    Tap tap;
    tap.play(script).finish();
    expect(tap.accounted(), "bytes add up");
    expect_equal(tap.tokens(8, {"7"}) + tap.tokens(10, {"8"}), "0 result 7\n0 result 8\n", "fetched rows");
}

void local_infile_belongs_to_its_query() {
    const auto script =
        after(connected(), {up(query("LOAD DATA LOCAL INFILE '/a' INTO TABLE t")),
                            down(packets(1, {"\xFB/a"})), up(packets(2, {"1\t2\n"})), up(packets(3, {""})),
                            down(packets(4, {ok()})), up(command(0x0E)), down(ok_answer)});
    expect_equal(lines_from(play_all_ways(script, "infile"), 3),
                 "3 > request 'LOAD DATA LOCAL INFILE ? INTO TABLE t' bytes 57 at 4-7\n"
                 "4 < response status 0 bytes 18 at 5-8 answers 3\n"
                 "5 > request 'PING' bytes 5 at 9-9\n"
                 "6 < response status 0 bytes 11 at 10-10 answers 5\n",
                 "infile");
}

void long_data_is_no_parameter_value() {
    const std::string params = std::string("\x00\x01\xFC\x00\x03\x00", 6) + le(5, 4);
    Tap tap;
    tap.play(after(connected(),
                   {up(command(0x16, "INSERT INTO t VALUES (?, ?)")), down(prepare_ok(3, 2, 0, false)),
                    up(command(0x18, le(3, 4) + le(0, 2) + "a blob")), up(execute(3, params)),
                    down(ok_answer)}))
        .finish();
    expect_equal(lines_from(tap.messages(), 5),
                 "5 > one-way 'SEND_LONG_DATA' bytes 17 at 6-6\n"
                 "6 > request 'EXECUTE INSERT INTO t VALUES (?, ?)' bytes 24 at 7-7\n"
                 "7 < response status 0 bytes 11 at 8-8 answers 6\n",
                 "long data");
    expect_equal(tap.tokens(6, {"5"}), "1 number 5\n", "long data: the second parameter");
}

void bulk_execution() {
    const std::string rows = std::string("\x03\x00\xFD\x00", 4) + std::string(1, '\0') + le(5, 4) +
                             std::string(1, '\0') + lenenc_str("x") + std::string(1, '\0') + le(6, 4) +
                             "\x01";
    Tap tap;
    tap.play(after(connected(kBaseCaps | kDeprecateEof, 0xC),
                   {up(command(0x16, "INSERT INTO t VALUES (?, ?)")), down(prepare_ok(3, 2, 0, true)),
                    up(command(0xFA, le(3, 4) + le(128, 2) + rows)), down(ok_answer)}))
        .finish();
    expect(tap.accounted(), "bytes add up");
    expect_equal(tap.tokens(5, {"5", "x", "6"}), "0 number 5\n1 text x\n2 number 6\n", "bulk");
    expect(tap.messages().find("5 > request 'EXECUTE INSERT INTO t VALUES (?, ?)'") != std::string::npos,
           "bulk class:\n" + tap.messages());
}

void query_attributes_are_taken_off() {
    const std::uint32_t caps = kBaseCaps | 0x8000000;
    const std::string none = std::string("\x00\x01", 2) + "SELECT 1";
    const std::string one = std::string("\x01\x01\x00\x01\xFD\x00", 6) + lenenc_str("traceparent") +
                            lenenc_str("t-7") + "SELECT 2";
    Tap tap;
    tap.play(after(connected(caps), {up(query(none)), down(ok_answer), up(query(one)), down(ok_answer)}))
        .finish();
    expect(tap.messages().find("5 > request 'SELECT ?' ") != std::string::npos,
           "attributes:\n" + tap.messages());
    expect_equal(tap.tokens(3, {"1", "SELECT 1"}), "0 number 1\n0 statement SELECT 1\n", "no attributes");
    expect_equal(tap.tokens(5, {"2", "t-7", "traceparent", "SELECT 2"}),
                 "traceparent text t-7\n0 number 2\n0 statement SELECT 2\n", "one attribute");
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
                     "7 > request 'PING' bytes 5 at 8-8\n"
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
                     "11 > request 'PREPARE SELEC' bytes 10 at 12-12\n"
                     "12 < response status 1064 flags 16 bytes 22 at 13-13 answers 11\n"
                     "13 > request 'RESET_CONNECTION' bytes 5 at 14-14\n"
                     "14 < response status 0 bytes 11 at 15-15 answers 13\n",
                 "others");
}

void a_changed_user_forgets_statements() {
    const std::string run = execute(1, "");
    Tap tap;
    tap.play(after(connected(), {up(command(0x16, "SELECT c FROM t")), down(prepare_ok(1, 0, 1, false)),
                                 up(command(0x11, "u" + std::string(2, '\0'))),
                                 down(packets(1, {"\xFE"
                                                  "mysql_native_password" +
                                                  std::string(1, '\0') + "salt"})),
                                 up(packets(2, {"hash"})), down(packets(3, {ok()})), up(run),
                                 down(packets(1, {err(1243)}))}))
        .finish();
    expect_equal(lines_from(tap.messages(), 5),
                 "5 > request 'CHANGE_USER' bytes 16 at 6-8\n"
                 "6 < response status 0 bytes 42 at 7-9 answers 5\n"
                 "7 > request 'EXECUTE (text unseen)' bytes 14 at 10-10\n"
                 "8 < response status 1243 flags 16 bytes 22 at 11-11 answers 7\n",
                 "change user");
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

void joined_midstream() {
    for (const std::uint32_t caps : {kBaseCaps, kBaseCaps | kDeprecateEof}) {
        const std::string answer = result_set(caps, two_rows);
        Tap tap;
        tap.play({down(answer.substr(40)), up(query("SELECT id, name FROM t")), down(answer),
                  up(command(0x17, le(4, 4) + le(0, 1) + le(1, 4))), down(ok_answer)})
            .finish();
        expect(tap.accounted(), "bytes add up");
        expect_equal(tap.messages(),
                     "0 > request 'SELECT id, name FROM t' flags 2 bytes 27 at 2-2\n"
                     "1 < response status 0 flags 2 bytes " +
                         std::to_string(answer.size()) + " at 3-3 answers 0\n" +
                         "2 > request 'EXECUTE (text unseen)' flags 2 bytes 14 at 4-4\n"
                         "3 < response status 0 flags 2 bytes 11 at 5-5 answers 2\n",
                     "midstream");
    }
}

void a_loss_inside_a_row_keeps_the_answer() {
    std::vector<std::string> rows;
    for (int i = 0; i < 100; ++i) rows.push_back(text_row({std::to_string(i), std::string(200, 'x')}));
    const std::string answer = result_set(kBaseCaps, rows);
    for (const std::size_t from : {1000, 1100, 1150, 1203}) {
        Tap tap;
        tap.play(after(connected(), {up(query("SELECT a")), down(answer.substr(0, from)), lost_down(3000),
                                     down(answer.substr(from + 3000)), up(command(0x0E)), down(ok_answer)}))
            .finish();
        const std::string lines = lines_from(tap.messages(), 4);
        expect_equal(lines.substr(0, lines.find(" at")),
                     "4 < response status 0 flags 1 bytes " + std::to_string(answer.size()) + " missing 3000",
                     "loss from " + std::to_string(from));
        expect(lines.find("6 < response status 0") != std::string::npos &&
                   lines.find("answers 5") != std::string::npos,
               "the next answer:\n" + lines);
    }
}

void a_lost_answer_is_not_replaced_by_the_next() {
    Tap tap;
    tap.play(after(connected(), {up(query("SELECT 1")), lost_down(80), up(query("SELECT a")),
                                 down(packets(1, {err(1146)})), up(command(0x0E)), down(ok_answer)}))
        .finish();
    expect_equal(lines_from(tap.messages(), 3),
                 "3 > request 'SELECT ?' flags 256 bytes 13 at 4-4\n"
                 "4 > request 'SELECT a' bytes 13 at 6-6\n"
                 "5 < response status 1146 flags 80 bytes 22 at 7-7 answers 4\n"
                 "6 > request 'PING' bytes 5 at 8-8\n"
                 "7 < response status 0 bytes 11 at 9-9 answers 6\n",
                 "lost answer");
}

void a_lost_tail_does_not_shift_the_pairing() {
    const std::string answer = result_set(kBaseCaps, two_rows);
    Tap tap;
    tap.play(after(connected(),
                   {up(query("SELECT 1")), down(answer.substr(0, 50)), lost_down(answer.size() - 50),
                    up(query("SELECT a")), down(answer), up(command(0x0E)), down(ok_answer)}))
        .finish();
    const std::string lines = lines_from(tap.messages(), 5);
    expect_equal(lines,
                 "5 > request 'SELECT a' bytes 13 at 7-7\n"
                 "6 < response status 0 flags 64 bytes " +
                     std::to_string(answer.size()) + " at 8-8 answers 5\n" +
                     "7 > request 'PING' bytes 5 at 9-9\n"
                     "8 < response status 0 bytes 11 at 10-10 answers 7\n",
                 "lost tail");
}

void a_lost_head_keeps_the_end_of_the_answer() {
    std::vector<std::string> rows;
    for (int i = 0; i < 50; ++i) rows.push_back(text_row({std::to_string(i), std::string(100, 'x')}));
    const std::string answer = result_set(kBaseCaps, rows);
    Tap tap;
    tap.play(after(connected(), {up(query("SELECT a")), lost_down(1448), down(answer.substr(1448, 1448)),
                                 down(answer.substr(2896)), up(command(0x0E)), down(ok_answer)}))
        .finish();
    const std::string lines = lines_from(tap.messages(), 3);
    expect_equal(lines,
                 "3 > request 'SELECT a' bytes 13 at 4-4\n"
                 "4 < response status 0 flags 64 bytes " +
                     std::to_string(answer.size() - 1448) + " at 6-7 answers 3\n" +
                     "5 > request 'PING' bytes 5 at 8-8\n"
                     "6 < response status 0 bytes 11 at 9-9 answers 5\n",
                 "lost head");
}

void a_loss_inside_a_query_keeps_the_query() {
    const std::string text = "SELECT a FROM t WHERE b = '" + std::string(5000, 'x') + "'";
    const std::string request = query(text);
    Tap tap;
    tap.play(after(connected(), {up(request.substr(0, 1448)), lost_up(1448), up(request.substr(2896)),
                                 down(ok_answer), up(command(0x0E)), down(ok_answer)}))
        .finish();
    expect_equal(lines_from(tap.messages(), 3),
                 "3 > request flags 1 bytes " + std::to_string(request.size()) + " missing 1448 at 4-6\n" +
                     "4 < response status 0 bytes 11 at 7-7 answers 3\n"
                     "5 > request 'PING' bytes 5 at 8-8\n"
                     "6 < response status 0 bytes 11 at 9-9 answers 5\n",
                 "loss in a query");
}

void a_lost_command_leaves_an_orphan() {
    Tap tap;
    tap.play(after(connected(),
                   {lost_up(20), down(result_set(kBaseCaps, two_rows)), up(command(0x0E)), down(ok_answer)}))
        .finish();
    expect_equal(lines_from(tap.messages(), 3),
                 "3 < response status 0 bytes " + std::to_string(result_set(kBaseCaps, two_rows).size()) +
                     " at 5-5\n" +
                     "4 > request 'PING' flags 64 bytes 5 at 6-6\n"
                     "5 < response status 0 bytes 11 at 7-7 answers 4\n",
                 "lost command");
}

void many_statements_are_bounded() {
    mysql::StatementTable table;
    bool evicted = false;
    for (std::uint32_t id = 1; id <= 5000; ++id) table.bind(table.reserve(evicted), id);
    expect(table.size() == mysql::StatementTable::kMaxStatements && evicted, "bounded");
    expect(table.find(5000) != mysql::StatementTable::kNone && table.find(1) == mysql::StatementTable::kNone,
           "the oldest went");
    for (std::uint32_t id = 1; id <= 5000; id += 2) {
        if (const auto slot = table.find(id); slot != mysql::StatementTable::kNone) table.release(slot);
    }
    expect(table.size() == 512, "released");
    for (std::uint32_t id = 4000; id <= 5000; id += 2)
        expect(table.find(id) != mysql::StatementTable::kNone, "still found");
    table.clear();
    expect(table.size() == 0 && table.find(5000) == mysql::StatementTable::kNone, "cleared");
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
    auth_round_trips_belong_to_the_login();
    every_factor_belongs_to_the_login();
    a_lost_login_lets_no_answer_swallow_the_next();
    a_refused_connection();
    tls_is_left_alone();
    several_results_are_one_answer();
    an_error_among_rows_ends_the_answer();
    prepared_statements();
    mariadb_pipelines_and_names_the_last_statement();
    cursors_are_calls_of_their_own();
    local_infile_belongs_to_its_query();
    long_data_is_no_parameter_value();
    bulk_execution();
    query_attributes_are_taken_off();
    packets_of_16_mb_are_passed_over();
    other_answers();
    a_changed_user_forgets_statements();
    a_progress_report_is_not_final();
    replication_is_recognised();
    joined_midstream();
    a_loss_inside_a_row_keeps_the_answer();
    a_lost_answer_is_not_replaced_by_the_next();
    a_lost_tail_does_not_shift_the_pairing();
    a_lost_head_keeps_the_end_of_the_answer();
    a_loss_inside_a_query_keeps_the_query();
    a_lost_command_leaves_an_orphan();
    many_statements_are_bounded();
    probes();
    return failures == 0 ? 0 : 1;
}
