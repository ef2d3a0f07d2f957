// Records of TLS that are not opened: what their order and lengths tell.
#include <algorithm>
#include <utility>

#include "dissect/tls_state.hpp"
#include "record.hpp"

namespace tapscope {

using namespace tls;

namespace {

// What records of TLS 1.3 add to a handshake message: header, the message's own, content type, seal.
constexpr std::size_t kSealed = kHeader + 4 + 1 + 16;

// A record that holds a CertificateVerify and nothing else (RFC 8446, section 4.4.3): two bytes for the scheme, two for
// the length, a signature by Ed25519, by RSA of 2048 to 4096 bits, or by ECDSA over a curve of 256, 384 or 521 bits.
constexpr bool is_certificate_verify(std::size_t record) noexcept {
    const std::size_t size = record - std::min(record, kSealed + 4);
    return size == 64 || size == 256 || size == 384 || size == 512 || (size >= 69 && size <= 72) ||
           (size >= 101 && size <= 104) || (size >= 136 && size <= 139);
}

}  // namespace

// The client's last records of the handshake, by their sizes: Finished, and where the server asked for a certificate
// that and a CertificateVerify in front of it, or an empty one alone. Clients that put all of it into one record need
// nothing else.
bool TlsState::client_finishes(std::size_t size) {
    constexpr std::uint16_t aes256_sha384 = 0x1302, ccm8 = 0x1305;
    TlsState::Half& mine = at(Direction::to_server);
    const std::size_t finished =
        kSealed + (hello.suite == aes256_sha384 ? 48 : 32) - (hello.suite == ccm8 ? 8 : 0);
    const bool of_this_size = size == finished || (!server_hello_seen() && size == kSealed + 48);
    const bool first = mine.after_hello == 0;
    const bool last = of_this_size && (first || mine.finishing);
    const bool goes_on = mine.after_hello == 1 && mine.finishing && is_certificate_verify(size);
    mine.finishing = !last && (first || goes_on);
    return first || last || goes_on;
}

// The server's handshake: all of it comes before the client asks, or where the client is not seen before it has said
// more than its hello.
bool TlsState::server_goes_on(const Recorder& recorder) {
    const Half& mine = at(Direction::to_client);
    if (!alone(Direction::to_client)) return at(Direction::to_server).message == kNoMessage;
    return mine.message == kNoMessage && recorder.acknowledged(0) <= mine.acknowledged;
}

// Records that are not opened. In TLS 1.3 the rest of the handshake and the alerts look like application data: what
// the server sends before the client asked (its handshake, session tickets), what the client finishes with, and records
// of the length of an alert.
void TlsState::by_counting(Direction direction, std::uint8_t type, std::size_t size, Recorder& recorder) {
    constexpr std::size_t alert = kHeader + 2 + 1 + 16;
    Half& mine = at(direction);
    const bool data = type == kApplicationData, asks = direction == Direction::to_server;
    // A client of TLS 1.2 finishes with a record of the handshake behind its change of ciphers.
    const bool behind_change = std::exchange(mine.changed, type == kChangeCipherSpec);
    if (data && asks && behind_change && !server_hello_seen()) looks_like_13 = true;
    // Data is never sent in the clear.
    const bool ciphered = mine.ciphered || (alone(direction) && early == Early::none);
    bool handshake_goes_on = false;
    if (data && ciphered) {
        if (hello.version == 0x0304 || looks_like_13)
            handshake_goes_on = size == alert || (asks ? client_finishes(size) : server_goes_on(recorder));
        ++mine.after_hello;
        // It was all there, whatever it looked like: the server answers with its tickets, or what it was asked for.
        if (!asks) at(Direction::to_server).finishing = false;
    }
    const char* name = nullptr;
    if (!data || handshake_goes_on) {
        name = "tls.handshake";
    } else if (nested && session) {
        name = "tls.decryption_failed";
    } else if (!ciphered && client_hello_seen) {
        name = "tls.early_data";
    }
    if (name == nullptr) return opaque_message(direction, size, recorder);
    // Behind a message it may turn out to be inside of it.
    if (mine.message == kNoMessage) {
        recorder.remainder_from(0, name);
    } else {
        recorder.remainder(direction, name);
    }
}

void TlsState::opaque_message(Direction direction, std::size_t size, Recorder& recorder) {
    Half& mine = at(direction);
    const bool asks = direction == Direction::to_server;
    // The server may have spoken in between, in bytes that were lost; where one side is never seen, what the other one
    // acknowledges says that it has spoken.
    const bool answer_lost =
        asks && recorder.after_gap(Direction::to_client) && recorder.acknowledges_answer(0);
    const bool unseen_spoke = alone(direction) && recorder.acknowledged(0) > mine.acknowledged;
    if (!spoken || speaker != direction || mine.message == kNoMessage || answer_lost || unseen_spoke) {
        mine.message = recorder.begin(direction, asks ? MessageKind::request : MessageKind::response, 0);
        recorder.set_class(mine.message, Protocol::tls, "encrypted");
        const bool sure = client_hello_seen && !alone(direction);
        recorder.add_flags(mine.message,
                           message_flag::opaque | (sure ? 0u : std::uint32_t{message_flag::inferred}));
        mine.acknowledged = recorder.acknowledged(0);
        spoken = true;
        speaker = direction;
    }
    recorder.end(mine.message, size);
}

}  // namespace tapscope
