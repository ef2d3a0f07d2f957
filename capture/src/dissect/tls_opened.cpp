// Records of TLS that are opened with the connection's secrets.
#include <algorithm>
#include <array>

#include "dissect/tls_keys.hpp"
#include "dissect/tls_state.hpp"
#include "record.hpp"

namespace tapscope {

using namespace tls;

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
    if (!session) {
        // Without them nobody can tell what became of early data.
        if (early == Early::opened) end_inside(recorder);
        early_session.reset();
        nested.reset();
    }
    return true;
}

// Nothing where there are no secrets to open it with.
std::optional<Parsed> TlsState::open(Direction direction, Bytes record, Recorder& recorder) {
    Half& mine = at(direction);
    std::array<std::uint8_t, TlsSession::kMaxRecord> plain;
    if (may_be_early(direction)) {
        if (early == Early::offered && !look_up_early(record, recorder)) return Parsed{};
        const auto what = early_session ? early_session->open(direction, record, plain.data()) : std::nullopt;
        if (what) {
            opened_early(0, record.size(), *what, plain.data(), recorder);
            return Parsed{Step::ok, record.size()};
        }
    }
    if (!can_open(direction)) return std::nullopt;
    if (!looked_up && !look_up(recorder)) return Parsed{};
    if (!session) return std::nullopt;
    if (const auto what = session->open(direction, record, plain.data())) {
        if (direction == Direction::to_server) early_session.reset();
        mine.missing = 0;
        opened(direction, 0, record.size(), *what, plain.data(), recorder);
        return Parsed{Step::ok, record.size()};
    }
    if (early == Early::sealed && direction == Direction::to_server && mine.after_hello == 0) {
        recorder.remainder_from(0, "tls.early_data");
    } else {
        recorder.count("tls.decryption_failed");
        mine.unreadable = true;
        recorder.remainder_from(0, "tls.decryption_failed");
    }
    recorder.carried(direction, record.size(), 0);
    return Parsed{Step::ok, record.size()};
}

// The record of `size` bytes that begins at `at_byte` of the running parse call.
void TlsState::opened(Direction direction, std::size_t at_byte, std::size_t size,
                      const TlsSession::Opened& what, const std::uint8_t* plain, Recorder& recorder) {
    Half& mine = at(direction);
    ++mine.after_hello;
    const Bytes content{plain, what.size};
    recorder.carried(direction, at_byte, 0);
    if (what.type == kApplicationData) {
        recorder.remainder(direction, "tls.overhead");
        nested->bytes(recorder, direction, at_byte + what.begin, content);
        nested->record_ended(recorder, direction, at_byte + size, what.size);
        recorder.remainder(direction, "tls.handshake");
        return;
    }
    recorder.remainder(direction, "tls.handshake");
    recorder.carried(direction, at_byte + size, 0);
    if (what.type != kHandshake) return;
    mine.handshake.read(content, [&](std::uint8_t type, Bytes body) {
        if (direction == Direction::to_server && type == kEndOfEarlyData) early_session.reset();
        if (!session) return;  // early data
        if (type == kFinished) session->finished(direction);
        if (type == kKeyUpdate) session->key_update(direction);
        if (direction == Direction::to_client && type == kEncryptedExtensions && !body.empty())
            read_encrypted_extensions(body, recorder);
    });
}

// After lost bytes: the next place that reads like the head of a record, and with secrets one that opens.
Parsed TlsState::find_border(Direction direction, Bytes bytes, Recorder& recorder) {
    Half& mine = at(direction);
    bool found = false;  // as well as can be told without opening it
    std::size_t at_byte = 0;
    for (; at_byte + kHeader <= bytes.size(); ++at_byte) {
        const Bytes rest = bytes.subspan(at_byte);
        if (!is_header(rest) || record_size(rest) == kHeader) continue;
        // Data is never sent in the clear: the change of ciphers was among what was lost.
        if (rest[0] == kApplicationData && hello.version == 0x0303) mine.ciphered = true;
        if (mine.ciphered && !looked_up && !look_up(recorder)) break;
        const bool data = mine.ciphered && session && !mine.unreadable;
        const bool early_data = direction == Direction::to_server && early_session;
        found = (!data && !early_data) || rest[0] == kChangeCipherSpec;
        if (found) break;
        const std::size_t size = record_size(rest);
        if (rest.size() < size) break;
        std::array<std::uint8_t, TlsSession::kMaxRecord> plain;
        const std::uint64_t most = tries_after_loss(mine.missing);
        const auto open_by = [&](TlsSession& keys) {
            return keys.open_after_loss(direction, rest.first(size), plain.data(), most);
        };
        const auto early_record = early_data ? open_by(*early_session) : std::nullopt;
        const auto record = data && !early_record ? open_by(*session) : std::nullopt;
        if (!early_record && !record) continue;
        mine.lost = false;
        mine.missing = 0;
        recorder.remainder(direction, "tls.cut_by_gap");
        if (early_record) {
            opened_early(at_byte, size, *early_record, plain.data(), recorder);
        } else {
            opened(direction, at_byte, size, *record, plain.data(), recorder);
        }
        return {Step::ok, at_byte + size};
    }
    recorder.remainder(direction, "tls.cut_by_gap");
    if (found) mine.lost = false;
    return {Step::ok, std::min(at_byte, bytes.size())};
}

}  // namespace tapscope
