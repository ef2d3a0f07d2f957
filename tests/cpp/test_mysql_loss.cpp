// MySQL packets with lost bytes in, messages out.
#include "conversation_tap.hpp"
#include "mysql_packets.hpp"
#include "mysql_script.hpp"

using namespace tapscope;
using namespace tapscope::test;

namespace {

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

void joined_midstream() {
    for (const std::uint32_t caps : {kBaseCaps, kBaseCaps | kDeprecateEof}) {
        const std::string answer = result_set(caps, two_rows);
        Tap tap;
        tap.play({down(answer.substr(40)), up(query("SELECT id, name FROM t")), down(answer),
                  up(command(0x17, le(4, 4) + le(0, 1) + le(1, 4))), down(ok_answer)})
            .finish();
        expect(tap.accounted(), "bytes add up");
        expect_equal(
            tap.messages(),
            "0 > request 'SELECT id, name FROM t' flags 2 bytes 27 at 2-2\n"
            "1 < response status 0 flags 2 bytes " +
                std::to_string(answer.size()) + " at 3-3 answers 0\n" +
                "2 > request 'EXECUTE (text unseen, 0 parameters): no rows' flags 2 bytes 14 at 4-4\n"
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
                 "3 > request 'SELECT ?' flags 768 bytes 13 at 4-4\n"
                 "4 > request 'SELECT a' bytes 13 at 6-6\n"
                 "5 < response status 1146 flags 80 bytes 22 at 7-7 answers 4\n"
                 "6 > request 'PING' flags 512 bytes 5 at 8-8\n"
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
                     "7 > request 'PING' flags 512 bytes 5 at 9-9\n"
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
                     "5 > request 'PING' flags 512 bytes 5 at 8-8\n"
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
                     "5 > request 'PING' flags 512 bytes 5 at 8-8\n"
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
                     "4 > request 'PING' flags 576 bytes 5 at 6-6\n"
                     "5 < response status 0 bytes 11 at 7-7 answers 4\n",
                 "lost command");
}

void a_lost_answer_to_prepare_is_not_seen_in_an_ok_with_text() {
    const std::string changed = packets(1, {ok() + "(Rows matched: 1"});
    const std::string execute = command(0x17, le(0xFFFFFFFF, 4) + le(0, 1) + le(1, 4));
    const std::string prepared = prepare_ok(7, 0, 0, false);
    Tap tap;
    tap.play(after(connected(),
                   {up(command(0x16, "UPDATE t")), up(execute), up(execute), lost_down(prepared.size()),
                    down(changed), down(changed), up(command(0x0E)), down(ok_answer)}))
        .finish();
    const std::string lines = lines_from(tap.messages(), 6);
    const std::string size = "bytes " + std::to_string(changed.size());
    expect(lines.find("status 0 flags 64 " + size + " at 8-8 answers 4") != std::string::npos &&
               lines.find("status 0 " + size + " at 9-9 answers 5") != std::string::npos,
           "answers to both executions:\n" + lines);
}

}  // namespace

int main() {
    a_lost_login_lets_no_answer_swallow_the_next();
    joined_midstream();
    a_loss_inside_a_row_keeps_the_answer();
    a_lost_answer_is_not_replaced_by_the_next();
    a_lost_tail_does_not_shift_the_pairing();
    a_lost_head_keeps_the_end_of_the_answer();
    a_loss_inside_a_query_keeps_the_query();
    a_lost_command_leaves_an_orphan();
    a_lost_answer_to_prepare_is_not_seen_in_an_ok_with_text();
    return failures == 0 ? 0 : 1;
}
