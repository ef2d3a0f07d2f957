#include "dissect/memcached.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string>

#include "bytes.hpp"
#include "dissect/key_space.hpp"
#include "evidence.hpp"

namespace tapscope {
namespace {

constexpr std::size_t kMaxLine = 64 * 1024;  // a get of hundreds of keys of up to 250 bytes
constexpr std::size_t kMaxTextKey = 250;
constexpr std::uint64_t kMaxBlock = 1ull << 30;  // item_size_max is 1 MB unless raised, 1 GB at most
constexpr std::uint32_t kMaxTokens = 16;         // of a command or an answer
constexpr std::size_t kMaxTokenBytes = 64;       // longer values give none
constexpr std::size_t kHeader = 24;
constexpr std::uint8_t kRequestMagic = 0x80, kResponseMagic = 0x81;
constexpr std::uint8_t kOpGet = 0x00, kOpStat = 0x10, kOpSaslFirst = 0x20, kOpSaslLast = 0x22, kOpLast = 0x47;

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

constexpr auto kCommands = std::to_array<Command>({
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
constexpr auto kOpcodes = std::to_array<std::string_view>({
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

std::string_view opcode_name(std::uint8_t opcode) noexcept {
    return opcode < kOpcodes.size() ? kOpcodes[opcode] : std::string_view("OPCODE");
}
bool is_quiet(std::uint8_t opcode) noexcept {
    return opcode < kOpcodes.size() && kOpcodes[opcode].ends_with('Q');
}

const Command* command_of(std::string_view name) noexcept {
    const auto found =
        std::find_if(kCommands.begin(), kCommands.end(), [name](const Command& c) { return c.name == name; });
    return found == kCommands.end() ? nullptr : &*found;
}

// The word that `line` begins with; takes it and the blanks behind it away.
std::string_view take_word(std::string_view& line) noexcept {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(word.size());
    while (line.starts_with(' ')) line.remove_prefix(1);
    return word;
}

bool number_of(std::string_view word, std::uint64_t& number) noexcept {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    return !word.empty() && error == std::errc{} && end == word.data() + word.size() && number <= kMaxBlock;
}

bool take_line(Bytes bytes, std::string_view& line, std::size_t& size) noexcept {
    const void* found = std::memchr(bytes.data(), '\n', std::min(bytes.size(), kMaxLine));
    if (found == nullptr) return false;
    size = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - bytes.data()) + 1;
    line = as_text(bytes.first(size - 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return true;
}

bool is_key(std::string_view word) noexcept {
    return !word.empty() && word.size() <= kMaxTextKey && std::all_of(word.begin(), word.end(), [](char c) {
        return static_cast<unsigned char>(c) > ' ' && c != 127;
    });
}

// A line that no other protocol's client sends first, nor a block may easily hold.
bool is_command_line(std::string_view line) noexcept {
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

bool is_header(Bytes bytes, std::uint8_t magic) noexcept {
    if (bytes[0] != magic || bytes[1] > kOpLast || bytes[5] != 0) return false;
    const std::uint32_t key = load_be16(&bytes[2]), body = load_be32(&bytes[8]);
    return key <= kMaxTextKey && bytes[4] <= 20 && body >= key + bytes[4] && body <= kMaxBlock;
}

std::size_t header_size(Bytes bytes) noexcept { return kHeader + std::size_t{load_be32(&bytes[8])}; }

// Where packets follow each other from, at or behind `from`: two of them, or one that reaches the end.
std::size_t find_header(Bytes bytes, std::size_t from, std::uint8_t magic) noexcept {
    for (std::size_t p = from; p + kHeader <= bytes.size(); ++p) {
        if (!is_header(bytes.subspan(p), magic)) continue;
        const std::size_t q = p + header_size(bytes.subspan(p));
        if (q >= bytes.size() || bytes[q] == magic) return p;
    }
    return bytes.size();
}

// Statuses of text answers in the numbers of the binary protocol.
struct Outcome {
    std::string_view word;
    std::int32_t status;
};
constexpr auto kOutcomes = std::to_array<Outcome>({
    {"NOT_FOUND", 1},
    {"EN", 1},
    {"NF", 1},
    {"EXISTS", 2},
    {"EX", 2},
    {"CLIENT_ERROR", 4},
    {"NOT_STORED", 5},
    {"NS", 5},
    {"ERROR", 0x81},
    {"SERVER_ERROR", 0x84},
    {"BUSY", 0x85},
});
constexpr std::string_view kDumpEnd = "EN";  // of mgdump; a miss elsewhere
constexpr std::int32_t kMiss = 1;

bool is_error(std::int32_t status) noexcept { return status > 2 && status != 5; }

}  // namespace

Probe MemcachedDissector::probe(Bytes bytes, Direction direction) noexcept {
    if (bytes.empty()) return Probe::need_more;
    const std::uint8_t magic = direction == Direction::to_server ? kRequestMagic : kResponseMagic;
    if (bytes[0] == magic) {
        if (bytes.size() < kHeader) return Probe::need_more;
        return find_header(bytes, 0, magic) == 0 ? Probe::yes : Probe::no;
    }
    std::string_view line;
    std::size_t size = 0;
    const bool whole = take_line(bytes, line, size);
    if (direction == Direction::to_client) {
        if (!whole) return Probe::no;
        if (line == "STORED" || line == "NOT_STORED") return Probe::yes;
        std::uint64_t number = 0;
        if (take_word(line) != "VALUE" || !is_key(take_word(line))) return Probe::no;
        return number_of(take_word(line), number) && number_of(take_word(line), number) ? Probe::yes
                                                                                        : Probe::no;
    }
    if (whole) return is_command_line(line) ? Probe::yes : Probe::no;
    if (bytes.size() > kMaxLine) return Probe::no;
    const std::string_view text = as_text(bytes);
    const std::string_view word = text.substr(0, text.find(' '));
    const bool begins = std::any_of(kCommands.begin(), kCommands.end(), [&](const Command& c) {
        return word.size() < text.size() ? c.name == word : c.name.starts_with(word);
    });
    return begins ? Probe::need_more : Probe::no;
}

Parsed MemcachedDissector::parse(Direction direction, Bytes bytes, Recorder& recorder) {
    if (stream_) return {Step::ok, bytes.size()};
    const bool to_server = direction == Direction::to_server;
    if (form_ == Form::unknown) {
        form_ = bytes[0] == kRequestMagic || bytes[0] == kResponseMagic ? Form::binary : Form::text;
        recorder.dissector_pairs();
        in_step_ = !recorder.after_gap(Direction::to_server);  // lost before the protocol was known
    }
    bool& lost = to_server ? lost_client_ : lost_server_;
    if (form_ == Form::binary) {
        const std::uint8_t magic = to_server ? kRequestMagic : kResponseMagic;
        if (lost) {
            recorder.remainder(direction, "memcached.resynchronisation");
            const std::size_t found = find_header(bytes, 0, magic);
            if (found == bytes.size()) return {Step::ok, found};
            lost = false;
            if (found > 0) return {Step::ok, found};
        }
        if (bytes[0] != magic) return {Step::malformed, 0, "memcached.bad_packet"};
        if (bytes.size() < kHeader) return {Step::ok, 0};
        if (!is_header(bytes, magic)) return {Step::malformed, 0, "memcached.bad_packet"};
        return to_server ? binary_request(bytes, recorder) : binary_answer(bytes, recorder);
    }
    if (!to_server && out_of_step(bytes, recorder)) return {Step::ok, bytes.size()};
    std::string_view line;
    std::size_t size = 0;
    if (!take_line(bytes, line, size)) {
        if (bytes.size() < kMaxLine && !lost) return {Step::ok, 0};
        return {Step::malformed, 0, "memcached.long_line"};
    }
    if (!to_server) return text_answer(line, size, recorder);
    if (lost) {
        if (!is_command_line(line)) {  // perhaps the rest of a block
            recorder.remainder(direction, "memcached.resynchronisation");
            return {Step::ok, bytes.size()};
        }
        lost = false;
    }
    return text_request(line, size, recorder);
}

void MemcachedDissector::begin(MessageKind kind, std::uint32_t tag, Recorder& recorder) {
    request_ = recorder.begin(Direction::to_server, kind, 0, tag);
    if (in_step_ || kind != MessageKind::request || !heard_since_ || recorder.open_requests() != 1) return;
    if (!recorder.front_asked_behind_loss()) return;  // its answer may be among what was lost
    in_step_ = true;
    if (answer_ != kNoMessage) recorder.end(answer_, 0);  // what was lost took its end
    answer_ = kNoMessage;
    recorder.answers_in_step();
}

// ---- text and meta commands -----------------------------------------------------------------------------------------

Parsed MemcachedDissector::text_request(std::string_view line, std::size_t line_size, Recorder& recorder) {
    std::string_view rest = line;
    while (rest.starts_with(' ')) rest.remove_prefix(1);
    const std::string_view name = take_word(rest);
    const Command* command = command_of(name);
    if (command == nullptr) {
        const bool words = std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c < 127; });
        if (!words || line.size() > kMaxTextKey) return {Step::malformed, 0, "memcached.not_a_command"};
        recorder.count("memcached.unknown_command");  // the server answers with an error
        begin(MessageKind::request, kLine, recorder);
        recorder.set_class(request_, protocol, "(unknown)");
        recorder.end(request_, line_size);
        return {Step::ok, line_size};
    }
    const Shape shape = command->shape;
    const bool is_meta = shape == meta || shape == meta_store;
    std::uint64_t block = 0;
    bool blocks = shape == store || shape == meta_store;
    bool quiet = shape == quit || rest.ends_with("noreply");
    std::string_view keys = rest;
    if (shape == retrieve2) take_word(keys);
    std::string_view options = keys;
    const std::string_view first_key = shape <= keyed || is_meta ? take_word(options) : std::string_view{};
    if (shape == store) {
        take_word(options);
        take_word(options);
    }
    if (blocks && !number_of(take_word(options), block)) blocks = false;  // the server answers with an error
    if (is_meta)
        for (std::string_view left = options; !left.empty();) quiet |= take_word(left) == "q";

    const bool dumps = shape == crawler && (rest.starts_with("metadump") || rest.starts_with("mgdump"));
    const std::uint32_t tag = shape == retrieve || shape == retrieve2 ? kValues
                              : shape == statistics                   ? kStatistics
                              : shape == noop                         ? kNoop
                              : dumps                                 ? kDump
                                                                      : kLine;
    begin(quiet ? MessageKind::one_way : MessageKind::request, tag, recorder);
    thread_local std::string text;
    text.assign(command->name);
    const std::string_view space = key_space(first_key);
    if (!space.empty()) text.append(" ").append(space).append(":*");
    recorder.set_class(request_, protocol, text);
    if (shape == retrieve || shape == retrieve2) {
        std::uint32_t slot = 0;
        for (; !keys.empty() && slot < kMaxTokens; ++slot)
            key_evidence(recorder, request_, slot, take_word(keys));
    } else if (!first_key.empty()) {
        key_evidence(recorder, request_, 0, first_key);
    }
    if (shape == watch) stream_ = true;
    if (stream_) {
        recorder.count("memcached.watch");
        for (const Direction d : {Direction::to_server, Direction::to_client})
            recorder.remainder(d, "memcached.watch");
    }
    const std::uint64_t next = line_size + (blocks ? block + 2 : 0);
    recorder.end(request_, next);
    return {Step::ok, next};
}

// After a loss text answers are passed over until it is known again whose they are.
bool MemcachedDissector::out_of_step(Bytes, Recorder& recorder) {
    if (in_step_) return false;
    heard_since_ = recorder.lost_requests_received(0);
    recorder.remainder(Direction::to_client, "memcached.answers_not_told_apart");
    while (recorder.front_received(0)) recorder.give_up_request();
    return true;
}

Parsed MemcachedDissector::text_answer(std::string_view line, std::size_t line_size, Recorder& recorder) {
    std::string_view rest = line;
    const std::string_view word = take_word(rest);
    const std::uint32_t tag = recorder.front_tag(kLine);
    std::uint64_t block = 0;
    bool has_block = false;
    if (word == "VALUE") {
        take_word(rest);
        take_word(rest);
        has_block = number_of(take_word(rest), block);
    } else if (word == "VA") {
        has_block = number_of(take_word(rest), block);
    }
    if ((word == "VALUE" || word == "VA") && !has_block) return {Step::malformed, 0, "memcached.bad_answer"};
    const std::uint64_t next = line_size + (has_block ? block + 2 : 0);
    if (answer_ == kNoMessage) {
        // Before MN: what quiet commands had to say.
        const bool told_by_quiet =
            tag == kNoop && word != "MN" && recorder.has_request() && !word.ends_with("ERROR");
        if (told_by_quiet || (!recorder.has_request() && word != "END" && word.size() == 2)) {
            const MessageRef ref = recorder.begin(Direction::to_client, MessageKind::one_way, 0);
            recorder.set_class(ref, protocol, "QUIET_ANSWER");
            recorder.end(ref, next);
            return {Step::ok, next};
        }
        answer_ = recorder.begin(Direction::to_client, MessageKind::response, 0);
        recorder.set_status(answer_, 0);
        found_ = 0;
    }
    if (word == "VALUE") {
        ++found_;
        return {Step::ok, next};
    }
    if (word == "STAT" || (tag == kDump && (word == "mg" || word.starts_with("key="))))
        return {Step::ok, next};
    std::int32_t status = tag == kValues && word == "END" && found_ == 0 ? kMiss : 0;
    for (const Outcome& outcome : kOutcomes)
        if (outcome.word == word && !(tag == kDump && word == kDumpEnd)) status = outcome.status;
    recorder.set_status(answer_, status);
    if (is_error(status)) recorder.add_flags(answer_, message_flag::error);
    end_answer(next, recorder);
    return {Step::ok, next};
}

void MemcachedDissector::end_answer(std::uint64_t next, Recorder& recorder) {
    recorder.end(answer_, next);
    answer_ = kNoMessage;
}

// ---- binary protocol ------------------------------------------------------------------------------------------------

Parsed MemcachedDissector::binary_request(Bytes bytes, Recorder& recorder) {
    const std::uint8_t opcode = bytes[1], extras = bytes[4];
    const std::size_t key_size = load_be16(&bytes[2]);
    const std::size_t head = kHeader + extras + key_size;
    if (bytes.size() < head) return {Step::ok, 0};
    const bool secret = opcode >= kOpSaslFirst && opcode <= kOpSaslLast;
    const bool one_way = is_quiet(opcode);
    const std::uint32_t tag = opcode | load_be32(&bytes[12]) << 8;
    request_ =
        recorder.begin(Direction::to_server, one_way ? MessageKind::one_way : MessageKind::request, 0, tag);
    const std::string_view key = as_text(bytes.subspan(kHeader + extras, key_size));
    thread_local std::string text;
    text.assign(opcode_name(opcode));
    const std::string_view space = secret ? std::string_view{} : key_space(key);
    if (!space.empty()) text.append(" ").append(space).append(":*");
    recorder.set_class(request_, protocol, text);
    if (!secret) key_evidence(recorder, request_, 0, key);
    recorder.end(request_, header_size(bytes));
    return {Step::ok, header_size(bytes)};
}

Parsed MemcachedDissector::binary_answer(Bytes bytes, Recorder& recorder) {
    const std::uint8_t opcode = bytes[1];
    const std::uint64_t next = header_size(bytes);
    const std::size_t key_size = load_be16(&bytes[2]);
    const std::size_t value_at = kHeader + bytes[4] + key_size;
    const std::size_t value_size = next - value_at;
    const bool token = opcode == kOpGet && value_size > 0 && value_size <= kMaxTokenBytes;
    if (token && bytes.size() < next) return {Step::ok, 0};
    const std::uint16_t status = load_be16(&bytes[6]);
    if (is_quiet(opcode)) {
        const MessageRef ref = recorder.begin(Direction::to_client, MessageKind::one_way, 0);
        recorder.set_class(ref, protocol, "QUIET_ANSWER");
        recorder.set_status(ref, status);
        recorder.end(ref, next);
        return {Step::ok, next};
    }
    const std::uint32_t tag = opcode | load_be32(&bytes[12]) << 8;
    if (answer_ == kNoMessage) {
        // The server answers in order: requests in front of the one that is answered have lost their answers.
        if (recorder.front_tag(tag) != tag) {
            if (recorder.has_open_tag(tag)) {
                while (recorder.front_tag(tag) != tag) recorder.give_up_request();
                recorder.answers_in_step();
            } else {
                recorder.count("memcached.answer_to_no_request");
                recorder.remainder(Direction::to_client, "memcached.answer_to_no_request");
                return {Step::ok, next};
            }
        } else if (recorder.has_request()) {
            recorder.answers_in_step();
        }
        answer_ = recorder.begin(Direction::to_client, MessageKind::response, 0);
        recorder.set_status(answer_, status);
        if (is_error(status)) recorder.add_flags(answer_, message_flag::error);
    }
    if (token && status == 0)
        recorder.token(answer_, 0, TokenKind::result, bytes.subspan(value_at, value_size));
    if (opcode != kOpStat || key_size == 0 || status != 0) end_answer(next, recorder);
    return {Step::ok, next};
}

// ---- losses ---------------------------------------------------------------------------------------------------------

void MemcachedDissector::on_gap(Direction direction, std::uint64_t, Recorder& recorder) {
    if (stream_) return recorder.borders_kept();
    if (form_ == Form::binary) {
        (direction == Direction::to_server ? lost_client_ : lost_server_) = true;
        if (direction == Direction::to_client && answer_ != kNoMessage) {
            recorder.add_flags(answer_, message_flag::truncated);
            end_answer(0, recorder);
        }
        return;
    }
    if (direction == Direction::to_client) {
        heard_since_ = true;
        // Unreadable bytes (no gap): whatever had been asked by then is answered by them, or will not be.
        while (recorder.front_received(0)) recorder.give_up_request();
    } else {
        if (!lost_client_) heard_since_ = false;
        lost_client_ = true;
    }
    in_step_ = false;
    if (answer_ != kNoMessage) recorder.add_flags(answer_, message_flag::truncated);
}

void MemcachedDissector::on_end(Direction direction, Recorder& recorder) {
    if (direction != Direction::to_client || answer_ == kNoMessage) return;
    recorder.add_flags(answer_, message_flag::unfinished);
    end_answer(0, recorder);
}

}  // namespace tapscope
