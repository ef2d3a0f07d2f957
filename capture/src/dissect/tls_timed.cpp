// Records of TLS that are not opened: what their order and lengths tell.
#include <algorithm>

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
    const bool first = mine.after_hello == 0;
    const bool last = size == finished && (first || mine.finishing);
    const bool goes_on = mine.after_hello == 1 && mine.finishing && is_certificate_verify(size);
    mine.finishing = !last && (first || goes_on);
    return first || last || goes_on;
}

// Records that are not opened. In TLS 1.3 the rest of the handshake and the alerts look like application data: what
// the server sends before the client asked (its handshake, session tickets), what the client finishes with, and records
// of the length of an alert.
void TlsState::by_counting(Direction direction, std::uint8_t type, std::size_t size, Recorder& recorder) {
    Half& mine = at(direction);
    constexpr std::size_t alert = kHeader + 2 + 1 + 16;
    bool handshake_goes_on = false;
    if (type == kApplicationData && mine.ciphered) {
        if (hello.version == 0x0304)
            handshake_goes_on = size == alert || (direction == Direction::to_server
                                                      ? client_finishes(size)
                                                      : at(Direction::to_server).message == kNoMessage);
        ++mine.after_hello;
        // It was all there, whatever it looked like: the server answers with its tickets, or what it was asked for.
        if (direction == Direction::to_client) at(Direction::to_server).finishing = false;
    }
    const char* name = nullptr;
    if (type != kApplicationData || handshake_goes_on) {
        name = "tls.handshake";
    } else if (nested && session) {
        name = "tls.decryption_failed";
    } else if (!mine.ciphered && client_hello_seen) {
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
    // The server may have spoken in between, in bytes that were lost.
    const bool answer_lost = direction == Direction::to_server && recorder.after_gap(Direction::to_client) &&
                             recorder.acknowledges_answer(0);
    if (!spoken || speaker != direction || mine.message == kNoMessage || answer_lost) {
        const bool asks = direction == Direction::to_server;
        mine.message = recorder.begin(direction, asks ? MessageKind::request : MessageKind::response, 0);
        recorder.set_class(mine.message, Protocol::tls, "encrypted");
        recorder.add_flags(
            mine.message,
            message_flag::opaque | (client_hello_seen ? 0u : std::uint32_t{message_flag::inferred}));
        spoken = true;
        speaker = direction;
    }
    recorder.end(mine.message, size);
}

}  // namespace tapscope
