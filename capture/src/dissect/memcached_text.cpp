// memcached's text and meta commands, and their answers.
#include <algorithm>
#include <string>

#include "dissect/key_space.hpp"
#include "dissect/memcached.hpp"
#include "dissect/memcached_wire.hpp"

namespace tapscope {

using namespace memcached;

namespace {

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

}  // namespace

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
    std::string& text = recorder.scratch.class_text;
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
        if (told_by_quiet || (step_.yes && !recorder.has_request() && word != "END" && word.size() == 2)) {
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

}  // namespace tapscope
