// MySQL packets in, messages and evidence out: prepared statements and their parameters.
#include "conversation_tap.hpp"
#include "mysql_packets.hpp"
#include "mysql_script.hpp"

#include "dissect/mysql.hpp"

using namespace tapscope;
using namespace tapscope::test;

namespace {

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
                     "3 > request 'PREPARE " + text + "' flags 512 bytes " + std::to_string(text.size() + 5) +
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
                 "3 > request 'PREPARE SELECT c FROM t WHERE a = ?' flags 512 bytes 32 at 4-4\n"
                 "4 > request 'EXECUTE SELECT c FROM t WHERE a = ?' bytes 22 at 4-4\n"
                 "5 > request 'EXECUTE SELECT c FROM t WHERE a = ?' bytes 22 at 4-4\n"
                 "6 < response status 0 bytes " +
                     std::to_string(prepare_ok(1, 1, 1, true).size()) + " at 5-5 answers 3\n" +
                     "7 < response status 0 bytes " + std::to_string(first_answer.size()) +
                     " at 5-5 answers 4\n" + "8 < response status 0 bytes " +
                     std::to_string(second_answer.size()) + " at 6-6 answers 5\n" +
                     "9 > request 'PING' flags 512 bytes 5 at 7-7\n"
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

// Joined midstream: the flag of the execution says that the number of parameters stands in front.
void query_attributes_of_an_execution_show_without_the_login() {
    const std::string text = "SELECT a FROM t WHERE b = ? AND c = ?";
    const std::string values = std::string("\x02\x00\x01\x03\x00\x00\xFD\x00\x00", 9) + le(4711, 4) +
                               lenenc_str("hello");  // count, NULL bitmap, types with their names, values
    Tap tap;
    tap.play({up(command(0x0E)), down(ok_answer), up(command(0x16, text)), down(prepare_ok(1, 2, 0, true)),
              up(execute(1, values, 8)), down(ok_answer)})
        .finish();
    expect_equal(tap.tokens(4, {"4711", "hello"}), "0 number 4711\n1 text hello\n", "counted parameters");
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

// A connection that is older than the capture, as those of pools are: what is executed shows by its values and columns.
void a_statement_prepared_before_shows_by_its_executions() {
    const auto column = [](const std::string& table, const std::string& name) {
        return lenenc_str("def") + lenenc_str("db") + lenenc_str("alias") + lenenc_str(table) +
               lenenc_str("as") + lenenc_str(name) + "\x0C" + le(45, 2) + le(255, 4) + le(8, 1) + le(0, 2) +
               std::string(3, '\0');
    };
    const std::string row = std::string("\x00\x00", 2) + le(1, 8) + le(2, 8) + le(3, 8) + le(4, 8);
    const std::string answer = packets(1, {"\x04", column("users", "id"), column("users", "nick"),
                                           column("", ""), column("stories", "title"), eof(), row, eof()});
    // The second time the client leaves the types out.
    const std::string again = std::string("\x04\x00", 2) + le(18, 8) + lenenc_str("bob") +
                              std::string(7, '\0') + "\x40" + std::string(1, '\0');
    Tap tap;
    tap.play({up(query("SELECT 1")), down(packets(1, {ok()})), up(execute(9, five_params)), down(answer),
              up(execute(9, again)), down(answer), up(execute(3, "")), down(packets(1, {err(1205)})),
              up(execute(3, "")), down(packets(1, {ok()})), up(execute(3, "")),
              down(packets(1, {err(1205)}))})
        .finish();
    expect(tap.accounted(), "bytes add up");
    const std::string told =
        "'EXECUTE (text unseen, 5 parameters): users(id, nick), ?, stories(title)' flags 2";
    const std::string nothing = "'EXECUTE (text unseen, 0 parameters): no rows' flags 2";
    std::string lines;
    for (int i = 2, at = 3; i < 12; i += 2, at += 2) {
        const std::string what = i < 6 ? told : i == 6 ? "'EXECUTE (text unseen)' flags 2" : nothing;
        lines += std::to_string(i) + " > request " + what + " bytes " +
                 std::to_string(14 + (i == 2   ? five_params.size()
                                      : i == 4 ? again.size()
                                               : 0)) +
                 " at " + std::to_string(at) + "-" + std::to_string(at) + "\n" + std::to_string(i + 1) +
                 " < response status " +
                 (i < 6    ? "0 flags 2 bytes " + std::to_string(answer.size())
                  : i == 8 ? std::string("0 flags 2 bytes 11")
                           : std::string("1205 flags 18 bytes 22")) +
                 " at " + std::to_string(at + 1) + "-" + std::to_string(at + 1) + " answers " +
                 std::to_string(i) + "\n";
    }
    expect_equal(lines_from(tap.messages(), 2), lines, "prepared before");
    expect_equal(tap.tokens(2, {"17", "anna", "2.5", "2026-02-03 04:05:06"}),
                 "0 number 17\n1 text anna\n3 number 2.5\n4 text 2026-02-03 04:05:06\n", "with types");
    expect_equal(tap.tokens(4, {"18", "bob", "2", "0000-00-00 00:00:00"}),
                 "0 number 18\n1 text bob\n3 number 2\n4 text 0000-00-00 00:00:00\n", "without");
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

}  // namespace

int main() {
    prepared_statements();
    mariadb_pipelines_and_names_the_last_statement();
    cursors_are_calls_of_their_own();
    long_data_is_no_parameter_value();
    bulk_execution();
    query_attributes_are_taken_off();
    query_attributes_of_an_execution_show_without_the_login();
    a_changed_user_forgets_statements();
    a_statement_prepared_before_shows_by_its_executions();
    many_statements_are_bounded();
    return failures == 0 ? 0 : 1;
}
