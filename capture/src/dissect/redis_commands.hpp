// What the dissector must know of Redis' commands: https://redis.io/docs/latest/commands/
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace tapscope::redis {

enum Trait : std::uint8_t {
    keyed = 1,      // the first argument is a key
    container = 2,  // the first argument is a subcommand
    secret = 4,     // no argument is evidence
    script = 8,     // first a script or its hash, then the number of keys, then keys
    subscribes = 16,
    streams = 32,
    sets_up = 64,  // what comes next on the connection: who asks, in which database, whether it is alive
};

struct Command {
    std::string_view name;
    std::uint8_t traits;
};

// Commands whose first argument is no key, sorted; every other one counts as keyed.
inline constexpr std::array kCommands = std::to_array<Command>({
    {"", keyed},
    {"ACL", container | secret},
    {"ASKING", sets_up},
    {"AUTH", secret | sets_up},
    {"BGREWRITEAOF", 0},
    {"BGSAVE", 0},
    {"CLIENT", container | sets_up},
    {"CLUSTER", container},
    {"COMMAND", container},
    {"CONFIG", container | secret},
    {"DBSIZE", 0},
    {"DEBUG", container},
    {"DISCARD", 0},
    {"ECHO", 0},
    {"EVAL", script},
    {"EVALSHA", script},
    {"EVALSHA_RO", script},
    {"EVAL_RO", script},
    {"EXEC", 0},
    {"FAILOVER", 0},
    {"FCALL", script},
    {"FCALL_RO", script},
    {"FLUSHALL", 0},
    {"FLUSHDB", 0},
    {"FUNCTION", container},
    {"HELLO", secret | sets_up},
    {"INFO", 0},
    {"KEYS", 0},
    {"LASTSAVE", 0},
    {"LATENCY", container},
    {"MEMORY", container},
    {"MIGRATE", secret},
    {"MODULE", container},
    {"MONITOR", streams},
    {"MULTI", 0},
    {"OBJECT", container},
    {"PING", sets_up},
    {"PSUBSCRIBE", subscribes},
    {"PSYNC", streams},
    {"PUBSUB", container},
    {"PUNSUBSCRIBE", subscribes},
    {"QUIT", 0},
    {"RANDOMKEY", 0},
    {"READONLY", sets_up},
    {"READWRITE", 0},
    {"REPLCONF", container},
    {"REPLICAOF", 0},
    {"RESET", 0},
    {"ROLE", 0},
    {"SAVE", 0},
    {"SCAN", 0},
    {"SCRIPT", container},
    {"SELECT", sets_up},
    {"SHUTDOWN", 0},
    {"SLAVEOF", 0},
    {"SLOWLOG", container},
    {"SSUBSCRIBE", subscribes},
    {"SUBSCRIBE", subscribes},
    {"SUNSUBSCRIBE", subscribes},
    {"SWAPDB", 0},
    {"SYNC", streams},
    {"TIME", 0},
    {"UNSUBSCRIBE", subscribes},
    {"UNWATCH", 0},
    {"WAIT", 0},
    {"WAITAOF", 0},
    {"XGROUP", container},
    {"XINFO", container},
    {"XREAD", 0},
    {"XREADGROUP", 0},
});

static_assert(std::is_sorted(kCommands.begin(), kCommands.end(),
                             [](const Command& a, const Command& b) { return a.name < b.name; }));

}  // namespace tapscope::redis
