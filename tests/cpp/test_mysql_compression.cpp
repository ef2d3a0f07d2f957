// The compressed protocol: the same exchange, plain, with zlib and with zstd, must give the same messages.
#include <random>

#include <zlib.h>
#include <zstd.h>

#include "conversation_tap.hpp"
#include "mysql_packets.hpp"

using namespace tapscope;
using namespace tapscope::test;

namespace {

enum class Method { stored, zlib, zstd };

std::string outer(std::uint8_t seq, const std::string& inner, Method method) {
    if (method == Method::stored) return le(inner.size(), 3) + le(seq, 1) + le(0, 3) + inner;
    std::string data;
    if (method == Method::zlib) {
        uLongf size = compressBound(static_cast<uLong>(inner.size()));
        data.resize(size);
        compress(reinterpret_cast<Bytef*>(data.data()), &size, reinterpret_cast<const Bytef*>(inner.data()),
                 static_cast<uLong>(inner.size()));
        data.resize(size);
    } else {
        data.resize(ZSTD_compressBound(inner.size()));
        data.resize(ZSTD_compress(data.data(), data.size(), inner.data(), inner.size(), 3));
    }
    return le(data.size(), 3) + le(seq, 1) + le(inner.size(), 3) + data;
}

// Inner bytes cut into outer packets of `piece` bytes, so that packet borders cross.
std::string outers(const std::string& inner, Method method, std::size_t piece) {
    std::string out;
    std::uint8_t seq = 0;
    for (std::size_t at = 0; at < inner.size(); at += piece)
        out += outer(seq++, inner.substr(at, piece), method);
    return out;
}

std::string incompressible(std::size_t size) {
    std::mt19937 random(5);
    std::string out(size, '\0');
    for (char& c : out) c = static_cast<char>('!' + random() % 90);
    return out;
}

std::vector<Delivery> exchange() {
    const std::string rows =
        packets(1, {"\x02", definition("id", 3), definition("name"), eof(), text_row({"17", "anna"}),
                    text_row({"18", incompressible(1000)}), eof()});
    const std::string big = packets(
        1, {"\x02", definition("id", 3), definition("name"), eof(), text_row({"19", incompressible(250000)}),
            text_row({"20", std::string(400000, 'z')}), text_row({"21", "last"}), eof()});
    return {up(query("SELECT id, name FROM t WHERE id = 17 AND name <> '" + incompressible(300) + "x'")),
            down(rows),
            up(command(0x0E)),
            down(packets(1, {ok()})),
            up(query("SELECT id, name FROM t")),
            down(big),
            up(query("INSERT INTO t VALUES ('" + std::string(200000, 'q') + "')")),
            down(packets(1, {err(1146)})),
            up(command(1))};
}

// Messages without lengths, which differ.
std::string shape(const Tap& tap) {
    std::string out;
    const std::string lines = tap.messages();
    for (std::size_t at = 0; at < lines.size();) {
        const std::size_t end = lines.find('\n', at);
        const std::string line = lines.substr(at, end - at);
        const std::size_t bytes = line.find(" bytes ");
        out += line.substr(0, bytes) + line.substr(line.find(" at ")) + "\n";
        at = end + 1;
    }
    return out;
}

}  // namespace

int main() {
    const std::uint32_t plain_caps = kBaseCaps;
    Tap plain;
    plain.play({down(greeting(plain_caps)), up(login(plain_caps)), down(packets(2, {ok()}))})
        .play(exchange())
        .finish();
    const std::string expected = shape(plain);

    for (const Method method : {Method::stored, Method::zlib, Method::zstd}) {
        const std::uint32_t caps = kBaseCaps | (method == Method::zstd ? 0x4000000u : 0x20u);
        for (const std::size_t piece :
             {std::size_t{1} << 20, std::size_t{16384}, std::size_t{1000}, std::size_t{97}}) {
            for (const std::size_t chunk :
                 {std::size_t{0}, std::size_t{1448}, std::size_t{61}, std::size_t{1}}) {
                if (chunk == 1 && piece != 16384) continue;
                const std::string what = "method " + std::to_string(static_cast<int>(method)) +
                                         ", outer packets of " + std::to_string(piece) + ", chunks of " +
                                         std::to_string(chunk);
                std::vector<Delivery> script;
                for (const Delivery& step : exchange())
                    script.push_back({step.direction, outers(step.bytes, method, piece)});
                Tap tap;
                tap.play({down(greeting(caps)), up(login(caps)), down(packets(2, {ok()}))})
                    .play(script, chunk)
                    .finish();
                expect_equal(shape(tap), expected, what);
                expect(tap.accounted() && tap.outside(Direction::to_client) == 0 &&
                           tap.outside(Direction::to_server) == 0,
                       what + ": bytes add up");
                expect(tap.recorder().evidence.size == plain.recorder().evidence.size,
                       what + ": same evidence");
            }
        }
    }

    // A message begins and ends with the outer packets that carry it.
    const std::string first = outer(0, query("SELECT 1"), Method::zlib);
    const std::string answer = outers(packets(1, {ok()}), Method::stored, 100);
    Tap tap;
    const std::uint32_t caps = kBaseCaps | 0x20;
    tap.play({down(greeting(caps)), up(login(caps)), down(packets(2, {ok()})), up(first), down(answer),
              up(outer(0, query("SELECT 'a'"), Method::stored)), down(answer)})
        .finish();
    const std::string lines = tap.messages();
    expect(lines.find("3 > request 'SELECT ?' flags 512 bytes " + std::to_string(first.size()) + " at 4-4") !=
               std::string::npos,
           "outer length:\n" + lines);
    expect(lines.find("4 < response status 0 bytes 18 at 5-5 answers 3") != std::string::npos,
           "outer length of the answer:\n" + lines);

    // Broken data and losses: counted, and the next answer is paired right.
    std::string broken = first;
    broken[20] = static_cast<char>(broken[20] ^ 0x55);
    Tap bad;
    bad.play({down(greeting(caps)), up(login(caps)), down(packets(2, {ok()})), up(broken),
              up(outer(0, command(0x0E), Method::stored)), down(answer)})
        .finish();
    expect(bad.counters("mysql.bad_compressed").size() > 0, "broken data are counted");
    expect(bad.accounted(), "broken data: bytes add up");

    const std::string rows =
        outers(packets(1, {"\x01", definition("a"), eof(), text_row({incompressible(9000)}), eof()}),
               Method::zlib, 1 << 20);
    Tap lossy;
    lossy
        .play({down(greeting(caps)), up(login(caps)), down(packets(2, {ok()})), up(first),
               down(rows.substr(0, 1448)), lost_down(1448), down(rows.substr(2896)),
               up(outer(0, command(0x0E), Method::stored)), down(answer)})
        .finish();
    const std::string after = lossy.messages();
    expect(after.find("4 < response flags 1 bytes " + std::to_string(rows.size()) +
                      " missing 1448 at 5-7 answers 3\n") != std::string::npos,
           "the answer with the hole:\n" + after);
    expect(after.find("6 < response status 0 flags 64 bytes 18 at 9-9 answers 5\n") != std::string::npos,
           "the next answer:\n" + after);
    expect(lossy.accounted(), "loss: bytes add up");
    return failures == 0 ? 0 : 1;
}
