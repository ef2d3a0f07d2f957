// Fuzz input -> deliveries to a Conversation. Each delivery: a byte with direction (bit 0) and loss (bits 1-3 all set),
// two bytes of length (little endian, 12 bits), then the bytes. At the end the bytes must add up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "dissect/conversation.hpp"
#include "record.hpp"

namespace tapscope::fuzz {

inline void play(Protocol protocol, const std::uint8_t* data, std::size_t size) {
    Recorder recorder({1, 2});
    Conversation conversation(recorder, 0, protocol);
    std::uint64_t sent[2] = {0, 0};
    std::int64_t time_ns = 0;
    while (size >= 3) {
        const unsigned d = data[0] & 1u;
        const auto direction = static_cast<Direction>(d);
        const bool loss = (data[0] & 0x0E) == 0x0E;
        std::size_t length = (data[1] | static_cast<std::size_t>(data[2]) << 8) & 0xFFF;
        data += 3;
        size -= 3;
        ++time_ns;
        if (loss) {
            if (length == 0) continue;
            conversation.gap(direction, length);
            sent[d] += length;
            continue;
        }
        length = length < size ? length : size;
        const std::vector<std::uint8_t> copy(data, data + length);  // exact size: over-reads are seen
        if (!copy.empty()) conversation.bytes(direction, copy, time_ns, sent[1 - d]);
        sent[d] += length;
        data += length;
        size -= length;
    }
    conversation.end(Direction::to_server, ++time_ns, false);
    conversation.end(Direction::to_client, ++time_ns, false);

    const auto& messages = recorder.messages;
    for (unsigned d = 0; d < 2; ++d) {
        std::uint64_t bytes = conversation.exchange().at(static_cast<Direction>(d)).outside;
        for (std::size_t i = 0; i < messages.size; ++i)
            bytes += messages.direction[i] == d ? messages.wire_bytes[i] : 0;
        if (bytes != sent[d]) std::abort();
    }
    for (std::size_t i = 0; i < messages.size; ++i) {
        const auto request = messages.request[i];
        if (request >= static_cast<std::int64_t>(i)) std::abort();
        if (request < 0) continue;
        const auto asked = static_cast<std::size_t>(request);
        // A server's promise of a push is answered by the server itself.
        const bool promise = messages.kind[asked] == static_cast<std::uint8_t>(MessageKind::one_way);
        if (messages.direction[asked] == messages.direction[i] && !promise) std::abort();
    }
}

}  // namespace tapscope::fuzz
