#include "dissect/tls.hpp"

#include <algorithm>
#include <utility>

#include "bytes.hpp"
#include "dissect/tls_state.hpp"
#include "record.hpp"

namespace tapscope {

using namespace tls;

namespace {

// RFC 8446, section 4.1.3: a ServerHello with this random is a HelloRetryRequest.
constexpr ClientRandom kHelloRetry = {0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C,
                                      0x02, 0x1E, 0x65, 0xB8, 0x91, 0xC2, 0xA2, 0x11, 0x16, 0x7A, 0xBB,
                                      0x8C, 0x5E, 0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C};

}  // namespace

TlsDissector::TlsDissector() : state_(std::make_unique<TlsState>()) {}
TlsDissector::TlsDissector(TlsDissector&&) noexcept = default;
TlsDissector& TlsDissector::operator=(TlsDissector&&) noexcept = default;
TlsDissector::~TlsDissector() = default;

void TlsDissector::carry(std::unique_ptr<Nested> inside) { state_->nested = std::move(inside); }

// Whole records, or the start of a hello.
Probe TlsDissector::probe(Bytes bytes, Direction) noexcept {
    if (bytes.empty()) return Probe::need_more;
    if (bytes.size() <= kHeader) {
        const bool begins = bytes[0] == kHandshake && (bytes.size() < 2 || bytes[1] == 3);
        return begins && (bytes.size() < kHeader || is_header(bytes)) ? Probe::need_more : Probe::no;
    }
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
    half.heard = true;
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
    } else if (type != kChangeCipherSpec && (state.can_open(direction) || state.may_be_early(direction))) {
        if (bytes.size() < size) return {};
        if (const auto parsed = state.open(direction, bytes.first(size), recorder)) return *parsed;
    }
    if (type == kChangeCipherSpec && state.changes_ciphers()) half.ciphered = true;
    state.by_counting(direction, type, size, recorder);
    return {Step::ok, size};
}

void TlsState::read_hello(Direction direction, Bytes body, Recorder& recorder) {
    Fields fields{body};
    const std::size_t type = fields.number(1);
    fields.number(3);
    if (direction == Direction::to_server && type == kClientHello) {
        read_client_hello(fields);
    } else if (direction == Direction::to_client && type == kServerHello) {
        if (!read_server_hello(fields)) return recorder.count("tls.bad_server_hello");
        at(direction).acknowledged = recorder.acknowledged(0);
        if (hello.server_random == kHelloRetry) {
            early_data_refused(recorder);
        } else if (hello.version == 0x0304) {
            half[0].ciphered = half[1].ciphered = true;
        }
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
    read_extensions(fields, [&](std::size_t extension, Fields) {
        // The first hello only: a retried one may not offer it (RFC 8446, section 4.1.2).
        if (extension == kEarlyData && early == Early::none) early = Early::offered;
    });
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
    read_extensions(fields, [&](std::size_t extension, Fields value) {
        if (extension == kSupportedVersions) hello.version = static_cast<std::uint16_t>(value.number(2));
        if (extension == kEncryptThenMac) hello.encrypt_then_mac = true;
    });
    return true;
}

void TlsDissector::on_gap(Direction direction, std::uint64_t missing, Recorder& recorder) {
    TlsState::Half& half = state_->at(direction);
    half.lost = true;
    half.missing += missing;
    half.handshake = {};
    if (state_->reads_inside()) state_->nested->gap(recorder, direction, missing);
}

void TlsDissector::on_end(Direction direction, Recorder& recorder) {
    if (state_->reads_inside()) state_->nested->end(recorder, direction);
    // Nobody has asked for secrets, as that takes both hellos.
    if (state_->at(direction).ciphered && !std::exchange(state_->looked_up, true)) {
        const bool asks = recorder.tls_keys && state_->client_hello_seen;
        recorder.counters.add(asks ? "tls.server_hello_not_seen" : "tls.no_secrets", 1, Unit::connections);
    }
}

}  // namespace tapscope
