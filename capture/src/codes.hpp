// Small integers that the columns hold. store/codes.py has the same ones; a test compares the two.
#pragma once

#include <cstdint>

namespace tapscope {

enum class Protocol : std::uint8_t {
    unknown = 0,
    http = 1,
    ajp = 2,
    mysql = 3,
    cjdbc = 4,
    postgres = 5,
    fastcgi = 6,
    http2 = 7,
    tls = 8,
    redis = 9,
    memcached = 10,
    avatica = 11,
    grpc = 12,
};

enum class Direction : std::uint8_t { to_server = 0, to_client = 1 };

constexpr Direction opposite(Direction d) noexcept {
    return d == Direction::to_server ? Direction::to_client : Direction::to_server;
}

enum class MessageKind : std::uint8_t { request = 0, response = 1, interim = 2, one_way = 3 };

// Bits of messages.flags.
namespace message_flag {
inline constexpr std::uint32_t truncated = 1, inferred = 2, retransmitted = 4, opaque = 8, error = 16,
                               unfinished = 32, resynchronised = 64, suspicious = 128, answer_lost = 256,
                               setup = 512;
}

enum class CloseHow : std::uint8_t { open = 0, fin = 1, rst = 2, reused = 3, evicted = 4, jumped = 5 };

// What TCP did that may have kept somebody waiting.
enum class TcpEventKind : std::uint8_t {
    syn_again = 1,
    syn_answer_again = 2,
    resent = 3,
    resent_asked = 4,
    resent_needless = 5,
    resent_unseen = 6,
    zero_window = 7,
    rst = 8
};

enum class TokenKind : std::uint8_t {
    uri = 1,
    number = 2,
    text = 3,
    endpoint = 4,
    result = 5,
    statement = 6,
    word = 7
};

// Bit in evidence.kind: the value looks like a propagated id (UUID, long hex, base64).
inline constexpr std::uint8_t id_like = 0x80;

}  // namespace tapscope
