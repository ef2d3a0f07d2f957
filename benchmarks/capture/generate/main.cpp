// generate KIND FILE [name=value ...]: writes a capture of that kind, and what is in it.
//
//   kinds   http_small http_chunked http_window http_large mysql_text mysql_prepared ajp tiers open churn
//   bytes   stop once the capture has about this size (default 70e6); 0: no bound, then `connections` or `seconds`
//   seed, connections (clients at once; for `open` and `churn`: in all), rate (new connections a second, churn)
//   displaced, duplicated, lost   shares of the packets; places: how far a displaced one moves at most
//   truth   file that gets one TruthRow per message (network.hpp)
//
// The same arguments give the same bytes. Prints the number of packets, messages and bytes.
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>

#include "tiers.hpp"

namespace {

using namespace generate;

constexpr std::int64_t kStart = 1'750'000'000 * s;

struct Turn {
    std::int64_t at;
    std::size_t session;
    bool operator<(const Turn& o) const { return at != o.at ? at > o.at : session > o.session; }
};

double number(const std::map<std::string, std::string>& options, const char* name, double otherwise) {
    const auto found = options.find(name);
    return found == options.end() ? otherwise : std::strtod(found->second.c_str(), nullptr);
}

int run(const std::string& kind, const char* path, const std::map<std::string, std::string>& options) {
    std::FILE* file = std::fopen(path, "wb");
    if (file == nullptr) return std::perror(path), 1;
    std::setvbuf(file, nullptr, _IOFBF, 1 << 20);
    const auto seed = static_cast<std::uint64_t>(number(options, "seed", 1));
    Impairment impairment{number(options, "displaced", 0), number(options, "duplicated", 0),
                          number(options, "lost", 0), static_cast<unsigned>(number(options, "places", 64))};
    Random random(seed);
    Tap tap(file, seed, impairment);
    Pools pools(tap, random);
    const bool single = kind == "open" || kind == "churn";
    const auto wanted = static_cast<std::uint64_t>(number(options, "connections", single ? 100'000 : 400));
    const auto bytes = static_cast<std::uint64_t>(number(options, "bytes", single ? 0 : 70e6));
    std::vector<std::unique_ptr<Session>> sessions;
    if (single) {
        const auto every = static_cast<std::int64_t>(1e9 / number(options, "rate", 10'000));
        sessions.push_back(short_session(tap, random, every, kind == "churn"));
    }
    for (std::uint64_t i = 0; !single && i < wanted; ++i) {
        const std::uint32_t client = 0x0a010000 + static_cast<std::uint32_t>(i);
        if (kind == "http_small")
            sessions.push_back(http_session(tap, random, HttpKind::small, client));
        else if (kind == "http_chunked")
            sessions.push_back(http_session(tap, random, HttpKind::chunked, client));
        else if (kind == "http_window")
            sessions.push_back(http_session(tap, random, HttpKind::window, client));
        else if (kind == "http_large")
            sessions.push_back(http_session(tap, random, HttpKind::large, client));
        else if (kind == "mysql_text" || kind == "mysql_prepared")
            sessions.push_back(mysql_session(tap, random, kind == "mysql_prepared", client));
        else if (kind == "ajp")
            sessions.push_back(ajp_session(tap, random, client));
        else if (kind == "tiers")
            sessions.push_back(tiers_session(tap, random, pools, client));
        else
            return std::fprintf(stderr, "generate: there is no kind %s\n", kind.c_str()), 2;
    }
    std::priority_queue<Turn> turns;
    for (std::size_t i = 0; i < sessions.size(); ++i)
        turns.push({kStart + (single ? 0 : random.exponential(20e6)), i});
    std::int64_t now = kStart;
    for (std::uint64_t steps = 0; !turns.empty(); ++steps) {
        const Turn turn = turns.top();
        turns.pop();
        now = turn.at;
        tap.flush(now);
        const std::uint64_t size = tap.bytes_written() + tap.bytes_pending();
        if ((bytes > 0 && size >= bytes) || (single && steps >= wanted)) break;
        turns.push({sessions[turn.session]->step(now), turn.session});
    }
    // Exchanges that were begun are written to their end before connections close.
    now += 2 * s;
    for (auto& session : sessions) session->finish(now += 10 * us);
    pools.finish(now + s);
    tap.finish();
    if (std::fclose(file) != 0) return std::perror(path), 1;
    if (const auto truth = options.find("truth"); truth != options.end()) {
        std::FILE* out = std::fopen(truth->second.c_str(), "wb");
        if (out == nullptr) return std::perror(truth->second.c_str()), 1;
        std::fwrite(tap.truth.data(), sizeof(TruthRow), tap.truth.size(), out);
        if (std::fclose(out) != 0) return std::perror(truth->second.c_str()), 1;
    }
    std::printf("packets %llu messages %zu bytes %llu\n", static_cast<unsigned long long>(tap.packets()),
                tap.truth.size(), static_cast<unsigned long long>(tap.bytes_written()));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return std::fprintf(stderr, "usage: generate KIND FILE [name=value ...]\n"), 2;
    std::map<std::string, std::string> options;
    for (int i = 3; i < argc; ++i) {
        const char* equals = std::strchr(argv[i], '=');
        if (equals == nullptr) return std::fprintf(stderr, "generate: %s is not name=value\n", argv[i]), 2;
        options[std::string(argv[i], static_cast<std::size_t>(equals - argv[i]))] = equals + 1;
    }
    return run(argv[1], argv[2], options);
}
