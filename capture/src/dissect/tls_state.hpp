// What is known of one TLS connection, and the steps that its dissector takes: hellos (tls.cpp), records that are opened
// (tls_opened.cpp, tls_early.cpp), and records that are only timed (tls_timed.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "bytes.hpp"
#include "dissect/dissector.hpp"
#include "dissect/nested.hpp"
#include "dissect/tls_handshake.hpp"
#include "dissect/tls_session.hpp"

namespace tapscope {

namespace tls {

inline constexpr std::uint8_t kChangeCipherSpec = 20, kHandshake = 22, kApplicationData = 23, kHeartbeat = 24;
inline constexpr std::size_t kHeader = TlsSession::kHeader;

// `bytes` are kHeader at least.
inline bool is_header(Bytes bytes) noexcept {
    return bytes[0] >= kChangeCipherSpec && bytes[0] <= kHeartbeat && bytes[1] == 3 && bytes[2] <= 4 &&
           load_be16(&bytes[3]) <= TlsSession::kMaxRecord - kHeader;
}
// Sequence numbers that are tried behind `missing` bytes: as many as the shortest records that hold a byte, within a
// bound.
inline std::uint64_t tries_after_loss(std::uint64_t missing) noexcept {
    constexpr std::uint64_t shortest = 22, most = 512;
    return missing / shortest + 1 < most ? missing / shortest + 1 : most;
}
inline std::size_t record_size(Bytes bytes) noexcept { return kHeader + load_be16(&bytes[3]); }

}  // namespace tls

struct TlsState {
    struct Half {
        bool heard = false;       // a byte of it was seen
        bool ciphered = false;    // its records are encrypted from here on
        bool unreadable = false;  // they cannot be opened
        bool lost = false;        // a record's border must be found again
        std::uint64_t missing = 0;
        std::uint32_t after_hello = 0;   // records of application data since the ServerHello of TLS 1.3
        bool finishing = false;          // TLS 1.3, the client: its Finished is still to come
        bool changed = false;            // its last record was ChangeCipherSpec
        std::uint64_t acknowledged = 0;  // of the other side, when its hello or its opaque message began
        MessageRef message = kNoMessage;
        tls::HandshakeReader handshake;
    };
    // What the client sends along with its hello, under keys of an earlier connection (RFC 8446, section 4.2.10).
    enum class Early : std::uint8_t {
        none,
        offered,  // by the ClientHello
        opened,   // its first record was
        sealed,   // it cannot be opened
    };
    Half half[2];
    TlsHello hello;
    bool client_hello_seen = false, looked_up = false;
    Early early = Early::none;
    bool looks_like_13 = false;  // the server's hello was not seen
    bool early_refused = false;  // the server skips it, and the client sends again what it held
    Direction speaker = Direction::to_client;
    bool spoken = false;
    std::unique_ptr<TlsSession> session;
    std::unique_ptr<TlsSession> early_session;  // until the client ends its early data
    std::unique_ptr<Nested> nested;

    Half& at(Direction direction) noexcept { return half[static_cast<unsigned>(direction)]; }
    bool alone(Direction direction) noexcept { return !at(opposite(direction)).heard; }
    bool server_hello_seen() const noexcept { return hello.version != 0; }
    bool can_open(Direction direction) noexcept {
        return at(direction).ciphered && !at(direction).unreadable && server_hello_seen() &&
               (session || !looked_up);
    }
    bool reads_inside() const noexcept { return nested && (session || early == Early::opened); }
    // What ChangeCipherSpec says is true in TLS 1.2 only; a client may send it in front of early data, too, before the
    // version is known.
    bool changes_ciphers() const noexcept {
        return hello.version != 0x0304 && (server_hello_seen() || early == Early::none);
    }
    // Is a record of application data early data that may be opened?
    bool may_be_early(Direction direction) const noexcept {
        return direction == Direction::to_server && (early == Early::offered || early_session);
    }

    // tls.cpp
    void read_hello(Direction direction, Bytes body, Recorder& recorder);
    void read_client_hello(tls::Fields& fields);
    bool read_server_hello(tls::Fields& fields);

    // tls_opened.cpp
    std::optional<Parsed> open(Direction direction, Bytes record, Recorder& recorder);
    void opened(Direction direction, std::size_t at_byte, std::size_t size, const TlsSession::Opened& what,
                const std::uint8_t* plain, Recorder& recorder);
    bool look_up(Recorder& recorder);
    Parsed find_border(Direction direction, Bytes bytes, Recorder& recorder);

    // tls_early.cpp
    bool look_up_early(Bytes record, Recorder& recorder);
    void opened_early(std::size_t at_byte, std::size_t size, const TlsSession::Opened& what,
                      const std::uint8_t* plain, Recorder& recorder);
    void read_encrypted_extensions(Bytes body, Recorder& recorder);
    void early_data_refused(Recorder& recorder);
    void end_inside(Recorder& recorder);

    // tls_timed.cpp
    void by_counting(Direction direction, std::uint8_t type, std::size_t size, Recorder& recorder);
    bool client_finishes(std::size_t size);
    bool server_goes_on(const Recorder& recorder);
    void opaque_message(Direction direction, std::size_t size, Recorder& recorder);
};

}  // namespace tapscope
