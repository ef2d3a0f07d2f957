// AJP13 packets in, messages and evidence out.
#include "conversation_tap.hpp"

#include "dissect/ajp.hpp"

using namespace tapscope;
using namespace tapscope::test;

namespace {

std::string u16(std::size_t n) { return {static_cast<char>(n >> 8), static_cast<char>(n)}; }
std::string str(const std::string& s) { return u16(s.size()) + s + '\0'; }
const std::string null_str = "\xFF\xFF";

std::string web(const std::string& payload) { return "\x12\x34" + u16(payload.size()) + payload; }
std::string container(const std::string& payload) { return "AB" + u16(payload.size()) + payload; }
std::string body(const std::string& data) { return web(u16(data.size()) + data); }
std::string chunk(const std::string& data) { return container("\x03" + u16(data.size()) + data + '\0'); }
std::string headers(int status) {
    return container("\x04" + u16(static_cast<std::size_t>(status)) + str("") + u16(1) + "\xA0\x01" +
                     str("text/html"));
}
const std::string end_response = container(std::string("\x05\x01", 2));
const std::string get_body = container("\x06\x1F\xFA");
const std::string cping = web("\x0A"), cpong = container("\x09");

std::string header(char code, const std::string& value) { return std::string("\xA0") + code + str(value); }
std::string attribute(char code, const std::string& value) { return code + str(value); }
std::string req_attribute(const std::string& name, const std::string& value) {
    return '\x0A' + str(name) + str(value);
}

std::string forward(char method, const std::string& uri, std::vector<std::string> head = {},
                    const std::string& attributes = "") {
    std::string p = "\x02";
    p += method;
    p += str("HTTP/1.1") + str(uri) + str("10.0.0.7") + null_str + str("www.test") + u16(80) + '\0' +
         u16(head.size());
    for (const auto& h : head) p += h;
    return web(p + attributes + '\xFF');
}

const std::string get = forward(2, "/bb/story/17");

void a_request_is_answered() {
    expect_equal(play_all_ways({up(get), down(headers(200) + chunk("hello") + chunk("") + end_response),
                                up(forward(2, "/bb/story/18")), down(headers(503) + end_response)},
                               "two requests"),
                 "0 > request 'GET /bb/story/{n}' bytes 62 at 1-1\n"
                 "1 < response status 200 bytes 53 at 2-2 answers 0\n"
                 "2 > request 'GET /bb/story/{n}' bytes 62 at 3-3\n"
                 "3 < response status 503 flags 16 bytes 32 at 4-4 answers 2\n",
                 "two requests");
}

void pings_are_no_requests() {
    expect_equal(play_all_ways({up(cping), down(cpong), up(get), down(headers(200) + end_response)}, "ping"),
                 "0 > one-way 'CPING' bytes 5 at 1-1\n"
                 "1 < interim 'CPONG' bytes 5 at 2-2\n"
                 "2 > request 'GET /bb/story/{n}' bytes 62 at 3-3\n"
                 "3 < response status 200 bytes 32 at 4-4 answers 2\n",
                 "ping");
}

// The body's bytes look like a packet: only the state machine tells.
void body_packets_belong_to_the_request() {
    const std::string trap = forward(2, "/trap");
    const std::string post = forward(4, "/bb/store", {header('\x08', "5000")});
    expect_equal(play_all_ways(
                     {up(post), up(body(trap)), down(get_body), up(body("rest")), down(get_body), up(web("")),
                      down(headers(200) + end_response), up(get), down(headers(200) + end_response)},
                     "body"),
                 "0 > request 'POST /bb/store' bytes 143 at 1-6\n"
                 "1 < interim 'GET_BODY_CHUNK' bytes 7 at 3-3 answers 0\n"
                 "2 < interim 'GET_BODY_CHUNK' bytes 7 at 5-5 answers 0\n"
                 "3 < response status 200 bytes 32 at 7-7 answers 0\n"
                 "4 > request 'GET /bb/story/{n}' bytes 62 at 8-8\n"
                 "5 < response status 200 bytes 32 at 9-9 answers 4\n",
                 "body");
}

void an_empty_body_packet_has_two_forms() {
    const std::string post = forward(4, "/a", {std::string(str("Transfer-Encoding")) + str("chunked")});
    for (const std::string& empty : {web(""), body("")}) {
        Tap tap;
        tap.play({up(post), down(get_body), up(body("xyz")), down(get_body), up(empty),
                  down(headers(200) + end_response), up(get), down(headers(200) + end_response)})
            .finish();
        expect(tap.recorder().messages.size == 6, "chunked body, then a request:\n" + tap.messages());
        expect(tap.outside(Direction::to_server) == 0, "no byte outside");
    }
}

void a_late_body_does_not_hide_the_next_request() {
    const std::string post = forward(4, "/bb/store", {header('\x08', "3")});
    expect_equal(play_all_ways({up(post), down(headers(403) + end_response), up(body("abc")), up(get),
                                down(headers(200) + end_response)},
                               "late body"),
                 "0 > request 'POST /bb/store' bytes 74 at 1-3\n"
                 "1 < response status 403 bytes 32 at 2-2 answers 0\n"
                 "2 > request 'GET /bb/story/{n}' bytes 62 at 4-4\n"
                 "3 < response status 200 bytes 32 at 5-5 answers 2\n",
                 "late body");
}

void a_body_that_never_comes_does_not_hide_the_next_request() {
    const std::string post = forward(4, "/bb/store", {header('\x08', "3")});
    Tap tap;
    tap.play({up(post), down(headers(403) + end_response), up(get), down(headers(200) + end_response)})
        .finish();
    expect(tap.accounted(), "bytes add up");
    expect_equal(tap.messages(),
                 "0 > request 'POST /bb/store' bytes 65 at 1-1\n"
                 "1 < response status 403 bytes 32 at 2-2 answers 0\n"
                 "2 > request 'GET /bb/story/{n}' bytes 62 at 3-3\n"
                 "3 < response status 200 bytes 32 at 4-4 answers 2\n",
                 "body never sent");
    expect_equal(tap.counters("ajp."), "ajp.body_not_sent 1\n", "counted");
}

// A request of 516 bytes for GET begins like a body packet: behind the end of the answer it is the next request.
void a_request_as_long_as_it_begins_is_no_body() {
    const std::string post = forward(4, "/bb/store", {header('\x08', "3")});
    const std::string odd = forward(2, "/bb/" + std::string(516 - (get.size() - 4) + 8, '1'));
    expect(odd.size() == 4 + 516, "516 bytes");
    Tap tap;
    tap.play({up(post), down(headers(403) + end_response), up(odd), down(headers(200) + end_response)})
        .finish();
    expect(tap.accounted(), "bytes add up");
    expect_equal(tap.messages(),
                 "0 > request 'POST /bb/store' bytes 65 at 1-1\n"
                 "1 < response status 403 bytes 32 at 2-2 answers 0\n"
                 "2 > request 'GET /bb/{id}' bytes 520 at 3-3\n"
                 "3 < response status 200 bytes 32 at 4-4 answers 2\n",
                 "request of 516 bytes");
}

void an_interim_answer_is_not_the_answer() {
    expect_equal(play_all_ways({up(get), down(headers(103)), down(headers(200) + end_response)}, "interim"),
                 "0 > request 'GET /bb/story/{n}' bytes 62 at 1-1\n"
                 "1 < interim status 103 bytes 26 at 2-2 answers 0\n"
                 "2 < response status 200 bytes 32 at 3-3 answers 0\n",
                 "interim");
}

void evidence_is_that_of_the_http_request() {
    const std::string request =
        forward(4, "/bb/story/17",
                {header('\x09', "sid=abc123; lang=en"), header('\x05', "Basic c2VjcmV0"),
                 str("X-Request-ID") + str("r-1"), header('\x07', "application/x-www-form-urlencoded"),
                 header('\x08', "12")},
                attribute('\x05', "page=2&story=x%20y") + attribute('\x0C', "s3cret") +
                    std::string("\x0B\x01\x00", 3) + req_attribute("AJP_REMOTE_PORT", "41234") +
                    req_attribute("JK_LB_ACTIVATION", "ACT") +
                    req_attribute("UNIQUE_ID", "aTyQ5n8AAQEAAEXCs8sAAAAB"));
    Tap tap;
    tap.play({up(request), up(body("name=a+b&n=7")), down(headers(200) + end_response)}).finish();
    expect(tap.accounted(), "bytes add up");
    expect_equal(tap.messages(),
                 "0 > request 'POST /bb/story/{n} ?page&story' bytes " + std::to_string(request.size() + 18) +
                     " at 1-2\n1 < response status 200 bytes 32 at 3-3 answers 0\n",
                 "class");
    expect_equal(tap.tokens(0, {"17",
                                "/bb/story/17?page=2&story=x%20y",
                                "2",
                                "x y",
                                "page",
                                "story",
                                "abc123",
                                "sid",
                                "en",
                                "lang",
                                "r-1",
                                "x-request-id",
                                "10.0.0.7:41234",
                                "UNIQUE_ID",
                                "aTyQ5n8AAQEAAEXCs8sAAAAB",
                                "a b",
                                "7",
                                "name",
                                "n",
                                "s3cret",
                                "ACT"}),
                 "segment 2 number 17\n"
                 "page number 2\n"
                 "story text x y\n"
                 "0 uri /bb/story/17?page=2&story=x%20y\n"
                 "sid text abc123\n"
                 "lang text en\n"
                 "x-request-id text r-1\n"
                 "UNIQUE_ID text/id aTyQ5n8AAQEAAEXCs8sAAAAB\n"
                 "0 endpoint 10.0.0.7:41234\n"
                 "name text a b\n"
                 "n number 7\n",
                 "tokens");
}

void evidence_does_not_depend_on_the_segments() {
    const std::string request =
        forward(4, "/s/1", {header('\x07', "application/x-www-form-urlencoded"), header('\x08', "3")});
    play_all_ways({up(request), up(body("a=b")), down(headers(200) + end_response)}, "form");
}

void a_method_by_name() {
    Tap tap;
    tap.play({up(forward('\xFF', "/x", {}, attribute('\x0D', "PATCH"))), down(headers(200) + end_response)})
        .finish();
    expect(tap.accounted(), "bytes add up");
    expect_equal(tap.messages().substr(0, 24), "0 > request 'PATCH /x' b", "stored method");
}

void a_connection_joined_midstream() {
    Tap tap(Protocol::ajp);
    const std::string tail = "ffffgggg" + std::string("\x12\x34", 2);
    tap.play({down("tail of something" + chunk("x") + end_response), up(tail + get),
              down(headers(200) + end_response)})
        .finish();
    expect(tap.accounted(), "bytes add up");
    expect_equal(tap.messages(),
                 "0 > request 'GET /bb/story/{n}' bytes 62 at 2-2\n"
                 "1 < response status 200 bytes 32 at 3-3 answers 0\n",
                 "midstream");
}

void a_loss_inside_a_response_keeps_the_pairing() {
    const std::string answer =
        headers(200) + chunk(std::string(4000, 'x')) + chunk(std::string(4000, 'y')) + end_response;
    // The second kilobyte is lost: inside of the first chunk.
    Tap inside;
    inside
        .play({up(get), down(answer.substr(0, 1000)), lost_down(1000), down(answer.substr(2000)), up(get),
               down(headers(200) + end_response)})
        .finish();
    expect_equal(inside.messages(),
                 "0 > request 'GET /bb/story/{n}' bytes 62 at 1-1\n"
                 "1 < response status 200 flags 1 bytes 8048 missing 1000 at 2-4 answers 0\n"
                 "2 > request 'GET /bb/story/{n}' bytes 62 at 5-5\n"
                 "3 < response status 200 bytes 32 at 6-6 answers 2\n",
                 "loss inside a chunk");
    // Across the border of two chunks.
    Tap across;
    across
        .play({up(get), down(answer.substr(0, 3500)), lost_down(1000), down(answer.substr(4500)), up(get),
               down(headers(200) + end_response)})
        .finish();
    expect_equal(across.messages(),
                 "0 > request 'GET /bb/story/{n}' bytes 62 at 1-1\n"
                 "1 < response status 200 flags 1 bytes 8048 missing 1000 at 2-4 answers 0\n"
                 "2 > request 'GET /bb/story/{n}' bytes 62 at 5-5\n"
                 "3 < response status 200 flags 64 bytes 32 at 6-6 answers 2\n",
                 "loss across a border");
}

void a_lost_response_is_not_replaced_by_the_next() {
    const std::string answer = headers(200) + end_response;
    Tap tap;
    tap.play({up(get), lost_down(answer.size()), up(get), down(answer)}).finish();
    expect(tap.accounted(), "bytes add up");
    expect_equal(tap.messages(),
                 "0 > request 'GET /bb/story/{n}' flags 256 bytes 62 at 1-1\n"
                 "1 > request 'GET /bb/story/{n}' bytes 62 at 3-3\n"
                 "2 < response status 200 flags 64 bytes 32 at 4-4 answers 1\n",
                 "lost response");
}

void a_lost_request_leaves_an_orphan() {
    Tap tap;
    tap.play({up(get), down(headers(200) + end_response), lost_up(get.size()),
              down(headers(200) + end_response), up(get), down(headers(200) + end_response)})
        .finish();
    expect(tap.accounted(), "bytes add up");
    expect_equal(tap.messages(),
                 "0 > request 'GET /bb/story/{n}' bytes 62 at 1-1\n"
                 "1 < response status 200 bytes 32 at 2-2 answers 0\n"
                 "2 < response status 200 bytes 32 at 4-4\n"
                 "3 > request 'GET /bb/story/{n}' flags 64 bytes 62 at 5-5\n"
                 "4 < response status 200 bytes 32 at 6-6 answers 3\n",
                 "lost request");
}

void a_lost_body_leaves_a_truncated_request() {
    const std::string post = forward(4, "/bb/store", {header('\x08', "1300")});
    const std::string all = body(std::string(1300, 'x'));
    Tap tap;
    tap.play({up(post), lost_up(all.size()), down(headers(200) + end_response), up(get),
              down(headers(200) + end_response)})
        .finish();
    expect(tap.accounted(), "bytes add up");
    expect_equal(tap.messages(),
                 "0 > request 'POST /bb/store' flags 1 bytes 68 at 1-1\n"
                 "1 < response status 200 bytes 32 at 3-3 answers 0\n"
                 "2 > request 'GET /bb/story/{n}' flags 64 bytes 62 at 4-4\n"
                 "3 < response status 200 bytes 32 at 5-5 answers 2\n",
                 "lost body");
}

void a_loss_inside_a_request_keeps_the_request() {
    const std::string long_get = forward(2, "/bb/" + std::string(3000, 'q'));
    Tap tap;
    tap.play({up(long_get.substr(0, 1000)), lost_up(1000), up(long_get.substr(2000)),
              down(headers(200) + end_response)})
        .finish();
    expect(tap.accounted(), "bytes add up");
    expect_equal(tap.messages(),
                 "0 > request flags 1 bytes " + std::to_string(long_get.size()) + " missing 1000 at 1-3\n" +
                     "1 < response status 200 bytes 32 at 4-4 answers 0\n",
                 "loss in a request");
}

void probes() {
    const auto probe = [](const std::string& s, Direction d) {
        return AjpDissector::probe({reinterpret_cast<const std::uint8_t*>(s.data()), s.size()}, d);
    };
    expect(probe(get, Direction::to_server) == Probe::yes, "request");
    expect(probe(get.substr(0, 3), Direction::to_server) == Probe::need_more, "three bytes");
    expect(probe(cping, Direction::to_server) == Probe::yes, "ping");
    expect(probe("GET / HTTP/1.1\r\n", Direction::to_server) == Probe::no, "HTTP");
    expect(probe(headers(200), Direction::to_client) == Probe::yes, "headers");
    expect(probe("ABCDEFGHIJKLMNO", Direction::to_client) == Probe::no, "text");
}

}  // namespace

int main() {
    a_request_is_answered();
    pings_are_no_requests();
    body_packets_belong_to_the_request();
    an_empty_body_packet_has_two_forms();
    a_late_body_does_not_hide_the_next_request();
    a_body_that_never_comes_does_not_hide_the_next_request();
    a_request_as_long_as_it_begins_is_no_body();
    an_interim_answer_is_not_the_answer();
    evidence_is_that_of_the_http_request();
    evidence_does_not_depend_on_the_segments();
    a_method_by_name();
    a_connection_joined_midstream();
    a_loss_inside_a_response_keeps_the_pairing();
    a_lost_response_is_not_replaced_by_the_next();
    a_lost_request_leaves_an_orphan();
    a_lost_body_leaves_a_truncated_request();
    a_loss_inside_a_request_keeps_the_request();
    probes();
    return failures == 0 ? 0 : 1;
}
