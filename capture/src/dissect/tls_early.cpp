// Early data of TLS 1.3 (RFC 8446, section 4.2.10): requests that a client sends along with its hello, under a secret of
// an earlier connection. They are requests like others as long as the server takes them. One that it does not take it
// skips without an answer, and the client sends it again behind the handshake.
#include <array>

#include "dissect/tls_keys.hpp"
#include "dissect/tls_state.hpp"
#include "record.hpp"

namespace tapscope {

using namespace tls;

// Are there secrets for the first such record? False: not yet. They are used only together with those of what follows,
// without which it could not be told whether the server took it.
bool TlsState::look_up_early(Bytes record, Recorder& recorder) {
    TlsSecrets secrets;
    const bool any = recorder.tls_keys && recorder.tls_keys->find(hello.client_random, secrets);
    const bool all = !secrets.client_early.empty() && !secrets.server_handshake.empty() &&
                     !secrets.client_traffic.empty() && !secrets.server_traffic.empty();
    // Who logs it does so before the others.
    const bool may_come = recorder.tls_keys && (!any || !secrets.client_early.empty());
    if (!all && may_come && recorder.attached().keys_may_come) {
        recorder.attached().keys_awaited = true;
        return false;
    }
    recorder.attached().keys_awaited = false;
    // What a connection carried that turned to TLS on the way (Nested) is not begun anew when early data is refused.
    if (all && !nested)
        early_session = TlsSession::make_early(secrets.client_early, record,
                                               tries_after_loss(at(Direction::to_server).missing));
    early = early_session ? Early::opened : Early::sealed;
    if (early_session) nested = std::make_unique<Nested>(recorder);
    return true;
}

void TlsState::opened_early(std::size_t at_byte, std::size_t size, const TlsSession::Opened& what,
                            const std::uint8_t* plain, Recorder& recorder) {
    at(Direction::to_server).missing = 0;
    if (!early_refused || what.type != kApplicationData)
        return opened(Direction::to_server, at_byte, size, what, plain, recorder);
    recorder.carried(Direction::to_server, at_byte, 0);
    recorder.remainder(Direction::to_server, "tls.early_data");
    recorder.carried(Direction::to_server, at_byte + size, 0);
}

void TlsState::read_encrypted_extensions(Bytes body, Recorder& recorder) {
    Fields fields{body};
    bool taken = false;
    read_extensions(fields, [&](std::size_t extension, Fields) { taken |= extension == kEarlyData; });
    if (fields.good && !taken) early_data_refused(recorder);
}

// Requests that were read by now get no answer, and what follows is a conversation from its beginning.
void TlsState::early_data_refused(Recorder& recorder) {
    if (early == Early::none || early_refused) return;
    early_refused = true;
    recorder.counters.add("tls.early_data_refused", 1, Unit::connections);
    if (early != Early::opened) return;
    end_inside(recorder);
    nested = std::make_unique<Nested>(recorder);
}

void TlsState::end_inside(Recorder& recorder) {
    for (const Direction direction : {Direction::to_server, Direction::to_client})
        nested->end(recorder, direction);
}

}  // namespace tapscope
