// Opens the records of one TLS connection whose secrets are known: TLS 1.2 (RFC 5246, 5288, 6655, 7366, 7905) and 1.3
// (RFC 8446). Key schedule and ciphers are OpenSSL's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "dissect/dissector.hpp"
#include "dissect/tls_keys.hpp"

struct evp_cipher_ctx_st;
struct evp_cipher_st;
struct evp_md_st;

namespace tapscope {

// What both hellos agreed on.
struct TlsHello {
    ClientRandom client_random{}, server_random{};
    std::uint16_t version = 0;  // 0x0303 or 0x0304
    std::uint16_t suite = 0;
    bool encrypt_then_mac = false;
};

class TlsSession {
public:
    static constexpr std::size_t kHeader = 5;
    static constexpr std::size_t kMaxRecord = kHeader + 16384 + 2048;

    struct Opened {
        std::uint8_t type;    // content type, in TLS 1.3 the inner one
        std::uint32_t begin;  // where in the record the first plaintext byte was
        std::uint32_t size;
    };

    static constexpr const char* kNotEnough = "tls.secrets_not_enough";
    // Null when this suite or version cannot be read or the secrets are not enough; `why` is then a counter's name.
    static std::unique_ptr<TlsSession> make(const TlsHello& hello, const TlsSecrets& secrets,
                                            const char*& why);
    // For what a client sends before the server has chosen a suite: the one by which `record`, or one up to `most`
    // records in front of it, is the first under this secret. Null: none.
    static std::unique_ptr<TlsSession> make_early(const Secret& secret, Bytes record, std::uint64_t most);
    ~TlsSession();

    // Decrypts a whole record (with its header) into `plain` (kMaxRecord bytes). Nothing when it does not
    // authenticate under the next sequence number; the state is then unchanged.
    std::optional<Opened> open(Direction direction, Bytes record, std::uint8_t* plain);
    // The same after lost records: tries up to `most` sequence numbers on, and in TLS 1.3 the next keys: those after the
    // handshake, or after a KeyUpdate.
    std::optional<Opened> open_after_loss(Direction direction, Bytes record, std::uint8_t* plain,
                                          std::uint64_t most);

    // TLS 1.3: the Finished message of a side ends its handshake keys; KeyUpdate takes the next ones.
    void finished(Direction direction);
    void key_update(Direction direction);

private:
    struct FreeContext {
        void operator()(evp_cipher_ctx_st* context) const noexcept;
    };
    enum class Mode : std::uint8_t { gcm, ccm, chacha, cbc };
    struct Side {
        std::unique_ptr<evp_cipher_ctx_st, FreeContext> context;
        std::uint8_t iv[12] = {};
        std::uint64_t sequence = 0;
        Secret mac_key;
        Secret traffic;  // TLS 1.3: secret of the keys in use
        Secret next;     // TLS 1.3: application secret, while the handshake's keys are in use
    };
    TlsSession() = default;
    bool choose(std::uint16_t suite);
    bool set_key(Side& side, const std::uint8_t* key, const std::uint8_t* iv, std::size_t iv_size);
    bool set_traffic_key(Side& side, const Secret& secret);
    bool expand_key_block(const TlsHello& hello, const Secret& master);
    std::optional<Opened> open_at(Side& side, std::uint64_t sequence, Bytes record, std::uint8_t* plain);
    std::optional<Opened> open_aead(Side& side, std::uint64_t sequence, Bytes record, std::uint8_t* plain);
    std::optional<Opened> open_cbc(Side& side, std::uint64_t sequence, Bytes record, std::uint8_t* plain);
    Side& at(Direction direction) noexcept { return sides_[static_cast<unsigned>(direction)]; }

    Side sides_[2];
    const evp_cipher_st* cipher_ = nullptr;
    const evp_md_st* hash_ = nullptr;  // of the handshake
    const evp_md_st* mac_ = nullptr;   // of records, cipher block chaining only
    std::size_t key_size_ = 0, tag_size_ = 16;
    Mode mode_ = Mode::gcm;
    bool version13_ = false, encrypt_then_mac_ = false;
};

}  // namespace tapscope
