#include "dissect/tls.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "bytes.hpp"
#include "dissect/nested.hpp"
#include "dissect/tls_keys.hpp"
#include "dissect/tls_session.hpp"
#include "record.hpp"

namespace tapscope {
namespace {

constexpr std::uint8_t kChangeCipherSpec = 20, kHandshake = 22, kApplicationData = 23, kHeartbeat = 24;
constexpr std::uint8_t kClientHello = 1, kServerHello = 2, kFinished = 20, kKeyUpdate = 24;
constexpr std::size_t kHeader = TlsSession::kHeader;
// The shortest record that holds a byte: by it, bytes that were lost bound the records that were lost.
constexpr std::uint64_t kShortestRecord = 22, kMostRecordsTried = 512;

// RFC 8446, section 4.1.3: a ServerHello with this random is a HelloRetryRequest.
constexpr ClientRandom kHelloRetry = {0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C,
                                      0x02, 0x1E, 0x65, 0xB8, 0x91, 0xC2, 0xA2, 0x11, 0x16, 0x7A, 0xBB,
                                      0x8C, 0x5E, 0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C};

bool is_header(Bytes bytes) noexcept {
    return bytes[0] >= kChangeCipherSpec && bytes[0] <= kHeartbeat && bytes[1] == 3 && bytes[2] <= 4 &&
           load_be16(&bytes[3]) <= TlsSession::kMaxRecord - kHeader;
}

std::size_t record_size(Bytes bytes) noexcept { return kHeader + load_be16(&bytes[3]); }

// What records of TLS 1.3 add to a handshake message: header, the message's own, content type, seal.
constexpr std::size_t kSealed = kHeader + 4 + 1 + 16;

// A record that holds a CertificateVerify and nothing else (RFC 8446, section 4.4.3): two bytes for the scheme, two for
// the length, a signature by Ed25519, by RSA of 2048 to 4096 bits, or by ECDSA over a curve of 256, 384 or 521 bits.
constexpr bool is_certificate_verify(std::size_t record) noexcept {
    const std::size_t size = record - std::min(record, kSealed + 4);
    return size == 64 || size == 256 || size == 384 || size == 512 || (size >= 69 && size <= 72) ||
           (size >= 101 && size <= 104) || (size >= 136 && size <= 139);
}

// Reads fields off the front; once too short, it stays empty and `good` is false.
struct Fields {
    Bytes rest;
    bool good = true;
    Bytes take(std::size_t n) noexcept {
        if (n > rest.size()) {
            good = false;
            rest = {};
            return {};
        }
        const Bytes taken = rest.first(n);
        rest = rest.subspan(n);
        return taken;
    }
    std::size_t number(std::size_t size) noexcept {
        std::size_t value = 0;
        for (const std::uint8_t byte : take(size)) value = value << 8 | byte;
        return value;
    }
};

// Follows handshake messages through the plaintext of records: they may share records and be cut by them.
struct HandshakeReader {
    std::array<std::uint8_t, 4> head{};
    std::uint32_t have = 0, left = 0;

    // Calls `done(type)` for every message that ends in these bytes.
    template <class Done>
    void read(Bytes plain, Done done) {
        while (!plain.empty()) {
            if (have < head.size()) {
                head[have++] = plain[0];
                plain = plain.subspan(1);
                if (have < head.size()) continue;
                left = load_be32(head.data()) & 0xffffff;
            } else {
                const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(left, plain.size()));
                left -= n;
                plain = plain.subspan(n);
            }
            if (have == head.size() && left == 0) {
                done(head[0]);
                have = 0;
            }
        }
    }
};

}  // namespace

struct TlsState {
    struct Half {
        bool ciphered = false;    // its records are encrypted from here on
        bool unreadable = false;  // they cannot be opened
        bool lost = false;        // a record's border must be found again
        std::uint64_t missing = 0;
        std::uint32_t after_hello = 0;  // records of application data since the ServerHello of TLS 1.3
        bool finishing = false;         // TLS 1.3, the client: its Finished is still to come
        MessageRef message = kNoMessage;
        HandshakeReader handshake;
    };
    Half half[2];
    TlsHello hello;
    bool client_hello_seen = false, early_data_offered = false, looked_up = false;
    Direction speaker = Direction::to_client;
    bool spoken = false;
    std::unique_ptr<TlsSession> session;
    std::unique_ptr<Nested> nested;

    Half& at(Direction direction) noexcept { return half[static_cast<unsigned>(direction)]; }
    bool can_open(Direction direction) noexcept {
        return at(direction).ciphered && !at(direction).unreadable && (session || !looked_up);
    }

    bool look_up(Recorder& recorder);
    void read_hello(Direction direction, Bytes body, Recorder& recorder);
    void read_client_hello(Fields& fields);
    bool read_server_hello(Fields& fields);
    Parsed open(Direction direction, Bytes record, Recorder& recorder);
    void opened(Direction direction, std::size_t at_byte, std::size_t size, const TlsSession::Opened& what,
                const std::uint8_t* plain, Recorder& recorder);
    void by_counting(Direction direction, std::uint8_t type, std::size_t size, Recorder& recorder);
    bool client_finishes(std::size_t size);
    void opaque_message(Direction direction, std::size_t size, Recorder& recorder);
    Parsed find_border(Direction direction, Bytes bytes, Recorder& recorder);
};

TlsDissector::TlsDissector() : state_(std::make_unique<TlsState>()) {}
TlsDissector::TlsDissector(TlsDissector&&) noexcept = default;
TlsDissector& TlsDissector::operator=(TlsDissector&&) noexcept = default;
TlsDissector::~TlsDissector() = default;

void TlsDissector::carry(std::unique_ptr<Nested> inside) { state_->nested = std::move(inside); }

// Whole records, or the start of a hello.
Probe TlsDissector::probe(Bytes bytes, Direction) noexcept {
    bool any = false;
    while (bytes.size() > kHeader) {
        if (!is_header(bytes)) return Probe::no;
        const std::size_t size = record_size(bytes);
        if (size > bytes.size()) {
            const bool hello =
                bytes[0] == kHandshake && (bytes[5] == kClientHello || bytes[5] == kServerHello);
            return any || hello ? Probe::yes : Probe::no;
        }
        any = true;
        bytes = bytes.subspan(size);
    }
    return any ? Probe::yes : Probe::no;
}

Parsed TlsDissector::parse(Direction direction, Bytes bytes, Recorder& recorder) {
    TlsState& state = *state_;
    TlsState::Half& half = state.at(direction);
    if (half.lost) {
        const Parsed found = state.find_border(direction, bytes, recorder);
        if (half.lost || found.consumed > 0) return found;
    }
    if (bytes.size() < kHeader) return {};
    if (!is_header(bytes)) return {Step::malformed, 0, "tls.bad_record"};
    const std::uint8_t type = bytes[0];
    const std::size_t size = record_size(bytes);
    if (type == kHandshake && !half.ciphered) {
        if (bytes.size() < size) return {};
        state.read_hello(direction, bytes.subspan(kHeader, size - kHeader), recorder);
    } else if (type != kChangeCipherSpec && state.can_open(direction)) {
        if (bytes.size() < size) return {};
        if (!state.looked_up && !state.look_up(recorder)) return {};
        if (state.session) return state.open(direction, bytes.first(size), recorder);
    }
    if (type == kChangeCipherSpec && state.hello.version != 0x0304) half.ciphered = true;
    state.by_counting(direction, type, size, recorder);
    return {Step::ok, size};
}

// Are there secrets? False: not yet.
bool TlsState::look_up(Recorder& recorder) {
    TlsSecrets secrets;
    const char* const none = "tls.no_secrets";
    const char* why = none;
    if (recorder.tls_keys && client_hello_seen) {
        if (recorder.tls_keys->find(hello.client_random, secrets))
            session = TlsSession::make(hello, secrets, why);
        // Those of TLS 1.3 come line by line.
        const bool more = why == none || why == TlsSession::kNotEnough;
        if (!session && more && recorder.attached().keys_may_come) {
            recorder.attached().keys_awaited = true;
            return false;
        }
    }
    looked_up = true;
    recorder.attached().keys_awaited = false;
    recorder.counters.add(session ? "tls.decrypted" : why, 1, Unit::connections);
    if (session && !nested) nested = std::make_unique<Nested>(recorder);
    if (!session) nested.reset();
    return true;
}

void TlsState::read_hello(Direction direction, Bytes body, Recorder& recorder) {
    Fields fields{body};
    const std::size_t type = fields.number(1);
    fields.number(3);
    if (direction == Direction::to_server && type == kClientHello) {
        read_client_hello(fields);
    } else if (direction == Direction::to_client && type == kServerHello) {
        if (!read_server_hello(fields)) return recorder.count("tls.bad_server_hello");
        if (hello.version == 0x0304 && hello.server_random != kHelloRetry)
            half[0].ciphered = half[1].ciphered = true;
    }
}

void TlsState::read_client_hello(Fields& fields) {
    fields.number(2);
    const Bytes random = fields.take(hello.client_random.size());
    if (!fields.good) return;
    std::copy(random.begin(), random.end(), hello.client_random.begin());
    client_hello_seen = true;
    fields.take(fields.number(1));  // session id
    fields.take(fields.number(2));  // cipher suites
    fields.take(fields.number(1));  // compression methods
    fields.rest = fields.rest.first(std::min(fields.number(2), fields.rest.size()));
    while (fields.good && !fields.rest.empty()) {
        const std::size_t extension = fields.number(2);
        fields.take(fields.number(2));
        if (fields.good && extension == 42) early_data_offered = true;
    }
}

bool TlsState::read_server_hello(Fields& fields) {
    hello.version = static_cast<std::uint16_t>(fields.number(2));
    const Bytes random = fields.take(hello.server_random.size());
    if (!fields.good) return false;
    std::copy(random.begin(), random.end(), hello.server_random.begin());
    fields.take(fields.number(1));
    hello.suite = static_cast<std::uint16_t>(fields.number(2));
    fields.number(1);
    if (!fields.good) return false;
    if (fields.rest.empty()) return true;
    fields.rest = fields.rest.first(std::min(fields.number(2), fields.rest.size()));
    while (fields.good && !fields.rest.empty()) {
        const std::size_t extension = fields.number(2);
        Fields value{fields.take(fields.number(2))};
        if (extension == 43) hello.version = static_cast<std::uint16_t>(value.number(2));
        if (extension == 22) hello.encrypt_then_mac = true;
    }
    return true;
}

Parsed TlsState::open(Direction direction, Bytes record, Recorder& recorder) {
    std::array<std::uint8_t, TlsSession::kMaxRecord> plain;
    const auto what = session->open(direction, record, plain.data());
    if (what) {
        opened(direction, 0, record.size(), *what, plain.data(), recorder);
        return {Step::ok, record.size()};
    }
    if (early_data_offered && direction == Direction::to_server && at(direction).after_hello == 0) {
        // Data that the client sent under keys of an earlier connection; the server may not even have taken it.
        recorder.remainder(direction, "tls.early_data");
    } else {
        recorder.count("tls.decryption_failed");
        at(direction).unreadable = true;
        recorder.remainder(direction, "tls.decryption_failed");
    }
    recorder.carried(direction, record.size(), 0);
    return {Step::ok, record.size()};
}

// The record of `size` bytes that begins at `at_byte` of the running parse call.
void TlsState::opened(Direction direction, std::size_t at_byte, std::size_t size,
                      const TlsSession::Opened& what, const std::uint8_t* plain, Recorder& recorder) {
    Half& mine = at(direction);
    ++mine.after_hello;
    const Bytes content{plain, what.size};
    if (what.type == kApplicationData) {
        recorder.carried(direction, at_byte, 0);
        recorder.remainder(direction, "tls.overhead");
        nested->bytes(recorder, direction, at_byte + what.begin, content);
        nested->record_ended(recorder, direction, at_byte + size, what.size);
        recorder.remainder(direction, "tls.handshake");
        return;
    }
    recorder.remainder(direction, "tls.handshake");
    recorder.carried(direction, at_byte + size, 0);
    if (what.type != kHandshake) return;
    mine.handshake.read(content, [&](std::uint8_t type) {
        if (type == kFinished) session->finished(direction);
        if (type == kKeyUpdate) session->key_update(direction);
    });
}

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
    if (nested && session) return recorder.remainder(direction, "tls.decryption_failed");
    if (type != kApplicationData || handshake_goes_on) return recorder.remainder(direction, "tls.handshake");
    if (!mine.ciphered && client_hello_seen) return recorder.remainder(direction, "tls.early_data");
    opaque_message(direction, size, recorder);
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

// After lost bytes: the next place that reads like the head of a record, and with secrets one that opens.
Parsed TlsState::find_border(Direction direction, Bytes bytes, Recorder& recorder) {
    Half& mine = at(direction);
    std::size_t at_byte = 0;
    for (; at_byte + kHeader <= bytes.size(); ++at_byte) {
        const Bytes rest = bytes.subspan(at_byte);
        if (!is_header(rest) || record_size(rest) == kHeader) continue;
        // Data is never sent in the clear: the change of ciphers was among what was lost.
        if (rest[0] == kApplicationData && hello.version == 0x0303) mine.ciphered = true;
        if (mine.ciphered && !looked_up && !look_up(recorder)) break;
        if (!mine.ciphered || !session || mine.unreadable || rest[0] == kChangeCipherSpec) break;
        const std::size_t size = record_size(rest);
        if (rest.size() < size) break;
        std::array<std::uint8_t, TlsSession::kMaxRecord> plain;
        const auto what =
            session->open_after_loss(direction, rest.first(size), plain.data(),
                                     std::min(mine.missing / kShortestRecord + 1, kMostRecordsTried));
        if (!what) continue;
        mine.lost = false;
        mine.missing = 0;
        recorder.remainder(direction, "tls.cut_by_gap");
        opened(direction, at_byte, size, *what, plain.data(), recorder);
        return {Step::ok, at_byte + size};
    }
    recorder.remainder(direction, "tls.cut_by_gap");
    if (recorder.attached().keys_awaited) return {Step::ok, at_byte};
    if (at_byte + kHeader <= bytes.size() && (!mine.ciphered || !session || mine.unreadable)) {
        mine.lost = false;
        mine.missing = 0;
    }
    return {Step::ok, std::min(at_byte, bytes.size())};
}

void TlsDissector::on_gap(Direction direction, std::uint64_t missing, Recorder& recorder) {
    TlsState::Half& half = state_->at(direction);
    half.lost = true;
    half.missing += missing;
    half.handshake = {};
    if (state_->nested && state_->session) state_->nested->gap(recorder, direction, missing);
}

void TlsDissector::on_end(Direction direction, Recorder& recorder) {
    if (state_->nested && state_->session) state_->nested->end(recorder, direction);
}

}  // namespace tapscope
