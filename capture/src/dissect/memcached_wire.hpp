// Words and headers of memcached: which commands there are, what a line or a packet must look like.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "bytes.hpp"
#include "dissect/text_line.hpp"

namespace tapscope::memcached {

inline constexpr std::size_t kMaxLine = 64 * 1024;  // a get of hundreds of keys of up to 250 bytes
inline constexpr std::size_t kMaxTextKey = 250;
inline constexpr std::uint64_t kMaxBlock = 1ull << 30;  // item_size_max is 1 MB unless raised, 1 GB at most
inline constexpr std::uint32_t kMaxTokens = 16;         // of a command or an answer
inline constexpr std::size_t kMaxTokenBytes = 64;       // longer values give none
inline constexpr std::size_t kHeader = 24;
inline constexpr std::uint8_t kRequestMagic = 0x80, kResponseMagic = 0x81;
inline constexpr std::uint8_t kOpGet = 0x00, kOpStat = 0x10, kOpSaslFirst = 0x20, kOpSaslLast = 0x22,
                              kOpLast = 0x47;

// How the answer to a text command ends. Binary requests have the tag opcode | opaque << 8.
enum Tag : std::uint32_t { kLine, kValues, kStatistics, kNoop, kDump };

enum Shape : std::uint8_t {
    retrieve,   // key ...: values up to END
    retrieve2,  // exptime, key ...
    store,      // key flags exptime size ...: a block follows
    keyed,      // key ...
    plain,
    statistics,
    quit,
    watch,
    meta,        // key flags
    meta_store,  // key size flags: a block follows
    noop,
    crawler,  // metadump or mgdump: a line for each item
};

struct Command {
    std::string_view name;
    Shape shape;
};

inline constexpr auto kCommands = std::to_array<Command>({
    {"get", retrieve},
    {"gets", retrieve},
    {"gat", retrieve2},
    {"gats", retrieve2},
    {"set", store},
    {"add", store},
    {"replace", store},
    {"append", store},
    {"prepend", store},
    {"cas", store},
    {"delete", keyed},
    {"incr", keyed},
    {"decr", keyed},
    {"touch", keyed},
    {"mg", meta},
    {"md", meta},
    {"ma", meta},
    {"me", meta},
    {"ms", meta_store},
    {"mn", noop},
    {"stats", statistics},
    {"version", plain},
    {"verbosity", plain},
    {"flush_all", plain},
    {"quit", quit},
    {"watch", watch},
    {"slabs", plain},
    {"lru", plain},
    {"lru_crawler", crawler},
    {"cache_memlimit", plain},
    {"shutdown", plain},
    {"misbehave", plain},
});

// Names of binary opcodes; quiet ones end with Q.
inline constexpr auto kOpcodes = std::to_array<std::string_view>({
    "GET",        "SET",        "ADD",
    "REPLACE",    "DELETE",     "INCREMENT",
    "DECREMENT",  "QUIT",       "FLUSH",
    "GETQ",       "NOOP",       "VERSION",
    "GETK",       "GETKQ",      "APPEND",
    "PREPEND",    "STAT",       "SETQ",
    "ADDQ",       "REPLACEQ",   "DELETEQ",
    "INCREMENTQ", "DECREMENTQ", "QUITQ",
    "FLUSHQ",     "APPENDQ",    "PREPENDQ",
    "VERBOSITY",  "TOUCH",      "GAT",
    "GATQ",       "HELLO",      "SASL_LIST_MECHS",
    "SASL_AUTH",  "SASL_STEP",  "GATK",
    "GATKQ",
});

inline std::string_view opcode_name(std::uint8_t opcode) noexcept {
    return opcode < kOpcodes.size() ? kOpcodes[opcode] : std::string_view("OPCODE");
}
inline bool is_quiet(std::uint8_t opcode) noexcept {
    return opcode < kOpcodes.size() && kOpcodes[opcode].ends_with('Q');
}

inline const Command* command_of(std::string_view name) noexcept {
    const auto found =
        std::find_if(kCommands.begin(), kCommands.end(), [name](const Command& c) { return c.name == name; });
    return found == kCommands.end() ? nullptr : &*found;
}

// The word that `line` begins with; takes it and the blanks behind it away.
inline std::string_view take_word(std::string_view& line) noexcept {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(word.size());
    while (line.starts_with(' ')) line.remove_prefix(1);
    return word;
}

inline bool number_of(std::string_view word, std::uint64_t& number) noexcept {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    return !word.empty() && error == std::errc{} && end == word.data() + word.size() && number <= kMaxBlock;
}

inline bool take_line(Bytes bytes, std::string_view& line, std::size_t& size) noexcept {
    return take_text_line(bytes, kMaxLine, line, size);
}

inline bool is_key(std::string_view word) noexcept {
    return !word.empty() && word.size() <= kMaxTextKey && std::all_of(word.begin(), word.end(), [](char c) {
        return static_cast<unsigned char>(c) > ' ' && c != 127;
    });
}

// A line that no other protocol's client sends first, nor a block may easily hold.
inline bool is_command_line(std::string_view line) noexcept {
    const Command* command = command_of(take_word(line));
    if (command == nullptr) return false;
    std::uint64_t number = 0;
    switch (command->shape) {
        case retrieve:
        case keyed:
        case meta:
            return is_key(take_word(line));
        case retrieve2:
            return number_of(take_word(line), number) && is_key(take_word(line));
        case store:
            if (!is_key(take_word(line)) || !number_of(take_word(line), number)) return false;
            take_word(line);  // a time may be negative
            return number_of(take_word(line), number);
        case meta_store:
            return is_key(take_word(line)) && number_of(take_word(line), number);
        case statistics:
        case noop:
            return line.empty();
        case plain:
            return command->name == "version" && line.empty();
        case quit:
        case watch:
        case crawler:
            return false;
    }
    return false;
}

inline bool is_header(Bytes bytes, std::uint8_t magic) noexcept {
    if (bytes[0] != magic || bytes[1] > kOpLast || bytes[5] != 0) return false;
    const std::uint32_t key = load_be16(&bytes[2]), body = load_be32(&bytes[8]);
    return key <= kMaxTextKey && bytes[4] <= 20 && body >= key + bytes[4] && body <= kMaxBlock;
}

inline std::size_t header_size(Bytes bytes) noexcept { return kHeader + std::size_t{load_be32(&bytes[8])}; }

// Where packets follow each other from, at or behind `from`: two of them, or one that reaches the end.
inline std::size_t find_header(Bytes bytes, std::size_t from, std::uint8_t magic) noexcept {
    for (std::size_t p = from; p + kHeader <= bytes.size(); ++p) {
        if (!is_header(bytes.subspan(p), magic)) continue;
        const std::size_t q = p + header_size(bytes.subspan(p));
        if (q >= bytes.size() || bytes[q] == magic) return p;
    }
    return bytes.size();
}

// Of a status in the numbers of the binary protocol.
inline bool is_error(std::int32_t status) noexcept { return status > 2 && status != 5; }

}  // namespace tapscope::memcached
