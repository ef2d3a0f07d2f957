#include "dissect/tls_session.hpp"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "bytes.hpp"

namespace tapscope {
namespace {

constexpr std::uint8_t kApplicationData = 23;

// Runs one of OpenSSL's key derivation functions.
bool derive(const char* function, OSSL_PARAM* parameters, std::span<std::uint8_t> out) {
    EVP_KDF* kdf = EVP_KDF_fetch(nullptr, function, nullptr);
    EVP_KDF_CTX* context = kdf != nullptr ? EVP_KDF_CTX_new(kdf) : nullptr;
    const bool done = context != nullptr && EVP_KDF_derive(context, out.data(), out.size(), parameters) == 1;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return done;
}

OSSL_PARAM text(const char* key, const char* value) {
    return OSSL_PARAM_construct_utf8_string(key, const_cast<char*>(value), 0);
}
OSSL_PARAM octets(const char* key, Bytes value) {
    return OSSL_PARAM_construct_octet_string(key, const_cast<std::uint8_t*>(value.data()), value.size());
}

// HKDF-Expand-Label with an empty context (RFC 8446, section 7.1).
bool expand_label(const EVP_MD* hash, const Secret& secret, std::string_view label,
                  std::span<std::uint8_t> out) {
    std::array<std::uint8_t, 64> info{};
    const std::size_t labelled = 6 + label.size();
    info[0] = static_cast<std::uint8_t>(out.size() >> 8);
    info[1] = static_cast<std::uint8_t>(out.size());
    info[2] = static_cast<std::uint8_t>(labelled);
    std::memcpy(&info[3], "tls13 ", 6);
    std::memcpy(&info[9], label.data(), label.size());
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        text(OSSL_KDF_PARAM_DIGEST, EVP_MD_get0_name(hash)),
        octets(OSSL_KDF_PARAM_KEY, secret),
        octets(OSSL_KDF_PARAM_INFO, {info.data(), 3 + labelled + 1}),
        OSSL_PARAM_construct_end(),
    };
    return derive("HKDF", parameters, out);
}

void put_be64(std::uint8_t* out, std::uint64_t value) noexcept {
    for (int i = 7; i >= 0; --i, value >>= 8) out[i] = static_cast<std::uint8_t>(value);
}

}  // namespace

void TlsSession::FreeContext::operator()(EVP_CIPHER_CTX* context) const noexcept {
    EVP_CIPHER_CTX_free(context);
}
TlsSession::~TlsSession() = default;

// What a suite means is asked of OpenSSL; false for suites that it does not know or that are out of scope.
bool TlsSession::choose(std::uint16_t suite) {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
    if (!context) return false;
    SSL_CTX_set_security_level(context.get(), 0);
    const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
    if (!ssl) return false;
    const std::uint8_t id[2] = {static_cast<std::uint8_t>(suite >> 8), static_cast<std::uint8_t>(suite)};
    const SSL_CIPHER* known = SSL_CIPHER_find(ssl.get(), id);
    if (known == nullptr) return false;
    cipher_ = EVP_get_cipherbynid(SSL_CIPHER_get_cipher_nid(known));
    hash_ = SSL_CIPHER_get_handshake_digest(known);
    if (cipher_ == nullptr || hash_ == nullptr) return false;
    if (!version13_ && std::string_view(EVP_MD_get0_name(hash_)) == "MD5-SHA1") hash_ = EVP_sha256();
    key_size_ = static_cast<std::size_t>(EVP_CIPHER_get_key_length(cipher_));
    switch (EVP_CIPHER_get_mode(cipher_)) {
        case EVP_CIPH_GCM_MODE:
            mode_ = Mode::gcm;
            return true;
        case EVP_CIPH_CCM_MODE:
            mode_ = Mode::ccm;
            if (std::string_view(SSL_CIPHER_get_name(known)).find("CCM8") != std::string_view::npos ||
                std::string_view(SSL_CIPHER_get_name(known)).find("CCM_8") != std::string_view::npos)
                tag_size_ = 8;
            return true;
        case EVP_CIPH_CBC_MODE:
            mode_ = Mode::cbc;
            mac_ = EVP_get_digestbynid(SSL_CIPHER_get_digest_nid(known));
            if (mac_ == nullptr || EVP_CIPHER_get_block_size(cipher_) != 16) return false;
            tag_size_ = static_cast<std::size_t>(EVP_MD_get_size(mac_));
            return true;
        default:
            mode_ = Mode::chacha;
            return SSL_CIPHER_get_cipher_nid(known) == NID_chacha20_poly1305;
    }
}

std::unique_ptr<TlsSession> TlsSession::make(const TlsHello& hello, const TlsSecrets& secrets,
                                             const char*& why) {
    std::unique_ptr<TlsSession> session(new TlsSession);
    session->version13_ = hello.version == 0x0304;
    session->encrypt_then_mac_ = hello.encrypt_then_mac;
    if (hello.version != 0x0303 && hello.version != 0x0304) {
        why = "tls.version_not_read";
        return nullptr;
    }
    if (!session->choose(hello.suite)) {
        why = "tls.cipher_not_read";
        return nullptr;
    }
    why = kNotEnough;
    if (!session->version13_) {
        if (secrets.master.empty() || !session->expand_key_block(hello, secrets.master)) return nullptr;
        return session;
    }
    const Secret* handshake[] = {&secrets.client_handshake, &secrets.server_handshake};
    const Secret* traffic[] = {&secrets.client_traffic, &secrets.server_traffic};
    for (unsigned i = 0; i < 2; ++i) {
        if (traffic[i]->empty()) return nullptr;
        Side& side = session->sides_[i];  // Direction::to_server is what the client writes
        const bool early = !handshake[i]->empty();
        if (early) side.next = *traffic[i];
        if (!session->set_traffic_key(side, early ? *handshake[i] : *traffic[i])) return nullptr;
    }
    return session;
}

std::unique_ptr<TlsSession> TlsSession::make_early(const Secret& secret, Bytes record, std::uint64_t most) {
    for (std::uint16_t suite = 0x1301; suite <= 0x1305; ++suite) {
        std::unique_ptr<TlsSession> session(new TlsSession);
        session->version13_ = true;
        if (!session->choose(suite) ||
            static_cast<std::size_t>(EVP_MD_get_size(session->hash_)) != secret.size())
            continue;
        Side& side = session->at(Direction::to_server);
        if (!session->set_traffic_key(side, secret)) continue;
        std::array<std::uint8_t, kMaxRecord> plain;
        for (; side.sequence <= most; ++side.sequence)
            if (session->open_at(side, side.sequence, record, plain.data())) return session;
    }
    return nullptr;
}

bool TlsSession::set_key(Side& side, const std::uint8_t* key, const std::uint8_t* iv, std::size_t iv_size) {
    if (!side.context) side.context.reset(EVP_CIPHER_CTX_new());
    EVP_CIPHER_CTX* context = side.context.get();
    if (context == nullptr || EVP_DecryptInit_ex(context, cipher_, nullptr, nullptr, nullptr) != 1)
        return false;
    if (mode_ == Mode::ccm &&
        (EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_IVLEN, 12, nullptr) != 1 ||
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(tag_size_), nullptr) != 1))
        return false;
    if (EVP_DecryptInit_ex(context, nullptr, nullptr, key, nullptr) != 1) return false;
    EVP_CIPHER_CTX_set_padding(context, 0);
    std::memcpy(side.iv, iv, iv_size);
    side.sequence = 0;
    return true;
}

bool TlsSession::set_traffic_key(Side& side, const Secret& secret) {
    std::array<std::uint8_t, 32> key;
    std::array<std::uint8_t, 12> iv;
    if (key_size_ > key.size() || !expand_label(hash_, secret, "key", {key.data(), key_size_}) ||
        !expand_label(hash_, secret, "iv", iv))
        return false;
    side.traffic = secret;
    return set_key(side, key.data(), iv.data(), iv.size());
}

// Section 6.3 of RFC 5246.
bool TlsSession::expand_key_block(const TlsHello& hello, const Secret& master) {
    const std::size_t mac = mode_ == Mode::cbc ? tag_size_ : 0;
    const std::size_t iv = mode_ == Mode::cbc ? 0 : mode_ == Mode::chacha ? 12 : 4;
    std::array<std::uint8_t, 256> block;
    const std::size_t size = 2 * (mac + key_size_ + iv);
    if (size > block.size()) return false;
    std::array<std::uint8_t, 13 + 64> seed;
    std::memcpy(seed.data(), "key expansion", 13);
    std::memcpy(&seed[13], hello.server_random.data(), 32);
    std::memcpy(&seed[45], hello.client_random.data(), 32);
    OSSL_PARAM parameters[] = {
        text(OSSL_KDF_PARAM_DIGEST, EVP_MD_get0_name(hash_)),
        octets(OSSL_KDF_PARAM_SECRET, master),
        octets(OSSL_KDF_PARAM_SEED, seed),
        OSSL_PARAM_construct_end(),
    };
    if (!derive("TLS1-PRF", parameters, {block.data(), size})) return false;
    for (unsigned i = 0; i < 2; ++i) {
        const std::uint8_t* mac_key = &block[i * mac];
        const std::uint8_t* key = &block[2 * mac + i * key_size_];
        sides_[i].mac_key.assign(mac_key, mac_key + mac);
        if (!set_key(sides_[i], key, &block[2 * (mac + key_size_) + i * iv], iv)) return false;
    }
    return true;
}

void TlsSession::finished(Direction direction) {
    Side& side = at(direction);
    if (!version13_ || side.next.empty()) return;
    const Secret next = std::move(side.next);
    side.next.clear();
    set_traffic_key(side, next);
}

void TlsSession::key_update(Direction direction) {
    Side& side = at(direction);
    Secret next(side.traffic.size());
    if (version13_ && expand_label(hash_, side.traffic, "traffic upd", next)) set_traffic_key(side, next);
}

std::optional<TlsSession::Opened> TlsSession::open(Direction direction, Bytes record, std::uint8_t* plain) {
    Side& side = at(direction);
    const auto opened = open_at(side, side.sequence, record, plain);
    if (opened) ++side.sequence;
    return opened;
}

std::optional<TlsSession::Opened> TlsSession::open_after_loss(Direction direction, Bytes record,
                                                              std::uint8_t* plain, std::uint64_t most) {
    Side& side = at(direction);
    const auto open_from = [&](std::uint64_t first) -> std::optional<Opened> {
        for (std::uint64_t sequence = first; sequence <= first + most; ++sequence) {
            const auto opened = open_at(side, sequence, record, plain);
            if (!opened) continue;
            side.sequence = sequence + 1;
            return opened;
        }
        return std::nullopt;
    };
    if (const auto opened = open_from(side.sequence); opened || !version13_) return opened;
    // Was the end of the handshake among what was lost, or a KeyUpdate? If the keys behind it fail too, the old ones
    // come back.
    const Secret traffic = side.traffic, next = side.next;
    const std::uint64_t sequence = side.sequence;
    if (next.empty()) {
        key_update(direction);
    } else {
        finished(direction);
    }
    if (const auto opened = open_from(0)) return opened;
    set_traffic_key(side, traffic);
    side.next = next;
    side.sequence = sequence;
    return std::nullopt;
}

std::optional<TlsSession::Opened> TlsSession::open_at(Side& side, std::uint64_t sequence, Bytes record,
                                                      std::uint8_t* plain) {
    if (record.size() < kHeader || record.size() > kMaxRecord || !side.context) return std::nullopt;
    auto opened = mode_ == Mode::cbc ? open_cbc(side, sequence, record, plain)
                                     : open_aead(side, sequence, record, plain);
    if (!opened || !version13_ || record[0] != kApplicationData) return opened;
    // The content type stands behind the content, and zeros may follow (RFC 8446, section 5.2).
    while (opened->size > 0 && plain[opened->size - 1] == 0) --opened->size;
    if (opened->size == 0) return std::nullopt;
    opened->type = plain[--opened->size];
    return opened;
}

std::optional<TlsSession::Opened> TlsSession::open_aead(Side& side, std::uint64_t sequence, Bytes record,
                                                        std::uint8_t* plain) {
    const bool explicit_nonce = !version13_ && mode_ != Mode::chacha;
    const std::size_t begin = kHeader + (explicit_nonce ? 8 : 0);
    if (record.size() < begin + tag_size_) return std::nullopt;
    const std::size_t size = record.size() - begin - tag_size_;
    std::uint8_t nonce[12];
    std::memcpy(nonce, side.iv, 12);
    if (explicit_nonce) {
        std::memcpy(nonce + 4, &record[kHeader], 8);
    } else {
        std::uint8_t number[8];
        put_be64(number, sequence);
        for (int i = 0; i < 8; ++i) nonce[4 + i] = static_cast<std::uint8_t>(nonce[4 + i] ^ number[i]);
    }
    std::uint8_t data[13];
    std::size_t data_size = kHeader;
    if (version13_) {
        std::memcpy(data, record.data(), kHeader);
    } else {
        put_be64(data, sequence);
        std::memcpy(data + 8, record.data(), 3);
        data[11] = static_cast<std::uint8_t>(size >> 8);
        data[12] = static_cast<std::uint8_t>(size);
        data_size = sizeof data;
    }
    EVP_CIPHER_CTX* context = side.context.get();
    const std::uint8_t* sealed = &record[begin];
    void* tag = const_cast<std::uint8_t*>(sealed + size);
    int n = 0;
    const int length = static_cast<int>(size);
    if (mode_ == Mode::ccm) {
        if (EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(tag_size_), tag) != 1 ||
            EVP_DecryptInit_ex(context, nullptr, nullptr, nullptr, nonce) != 1 ||
            EVP_DecryptUpdate(context, nullptr, &n, nullptr, length) != 1 ||
            EVP_DecryptUpdate(context, nullptr, &n, data, static_cast<int>(data_size)) != 1 ||
            EVP_DecryptUpdate(context, plain, &n, sealed, length) != 1)
            return std::nullopt;
    } else if (EVP_DecryptInit_ex(context, nullptr, nullptr, nullptr, nonce) != 1 ||
               EVP_DecryptUpdate(context, nullptr, &n, data, static_cast<int>(data_size)) != 1 ||
               EVP_DecryptUpdate(context, plain, &n, sealed, length) != 1 ||
               EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(tag_size_), tag) != 1 ||
               EVP_DecryptFinal_ex(context, plain + n, &n) != 1) {
        return std::nullopt;
    }
    return Opened{record[0], static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size)};
}

// A record in cipher block chaining: explicit IV, content, MAC, padding (RFC 5246, section 6.2.3.2), or the MAC behind
// the ciphertext (RFC 7366).
std::optional<TlsSession::Opened> TlsSession::open_cbc(Side& side, std::uint64_t sequence, Bytes record,
                                                       std::uint8_t* plain) {
    constexpr std::size_t block = 16;
    Bytes sealed = record.subspan(kHeader);
    Bytes mac;
    if (encrypt_then_mac_) {
        if (sealed.size() < tag_size_) return std::nullopt;
        mac = sealed.last(tag_size_);
        sealed = sealed.first(sealed.size() - tag_size_);
    }
    if (sealed.size() < 2 * block || sealed.size() % block != 0) return std::nullopt;
    int n = 0;
    if (EVP_DecryptInit_ex(side.context.get(), nullptr, nullptr, nullptr, sealed.data()) != 1 ||
        EVP_DecryptUpdate(side.context.get(), plain, &n, sealed.data() + block,
                          static_cast<int>(sealed.size() - block)) != 1)
        return std::nullopt;
    const std::size_t filled = static_cast<std::size_t>(n);
    const std::size_t padding = std::size_t{plain[filled - 1]} + 1;
    const std::size_t trailer = padding + (encrypt_then_mac_ ? 0 : tag_size_);
    if (filled < trailer) return std::nullopt;
    const std::size_t size = filled - trailer;
    std::array<std::uint8_t, 13> head;
    put_be64(head.data(), sequence);
    std::memcpy(&head[8], record.data(), 3);
    const std::size_t covered = encrypt_then_mac_ ? sealed.size() : size;
    head[11] = static_cast<std::uint8_t>(covered >> 8);
    head[12] = static_cast<std::uint8_t>(covered);
    if (!encrypt_then_mac_) mac = {plain + size, tag_size_};
    std::array<std::uint8_t, EVP_MAX_MD_SIZE> expected;
    unsigned expected_size = 0;
    std::array<std::uint8_t, kMaxRecord + 13> input;
    std::memcpy(input.data(), head.data(), head.size());
    std::memcpy(&input[head.size()], encrypt_then_mac_ ? sealed.data() : plain, covered);
    if (HMAC(mac_, side.mac_key.data(), static_cast<int>(side.mac_key.size()), input.data(),
             head.size() + covered, expected.data(), &expected_size) == nullptr ||
        expected_size != mac.size() || std::memcmp(expected.data(), mac.data(), mac.size()) != 0)
        return std::nullopt;
    return Opened{record[0], static_cast<std::uint32_t>(kHeader + block), static_cast<std::uint32_t>(size)};
}

}  // namespace tapscope
