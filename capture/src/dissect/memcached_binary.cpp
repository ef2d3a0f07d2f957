// memcached's binary protocol.
#include <string>

#include "dissect/key_space.hpp"
#include "dissect/memcached.hpp"
#include "dissect/memcached_wire.hpp"
#include "evidence.hpp"

namespace tapscope {

using namespace memcached;

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
    std::string& text = recorder.scratch.class_text;
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

}  // namespace tapscope
