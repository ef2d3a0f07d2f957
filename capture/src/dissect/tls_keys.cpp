#include "dissect/tls_keys.hpp"

#include <fstream>
#include <sstream>

namespace tapscope {
namespace {

constexpr std::size_t kMaxSecret = 64;  // SHA-512; master secrets have 48 bytes

int nibble(char c) noexcept {
    if (c >= '0' && c <= '9') return c - '0';
    c = static_cast<char>(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool from_hex(std::string_view text, std::uint8_t* out) noexcept {
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        const int high = nibble(text[i]), low = nibble(text[i + 1]);
        if (high < 0 || low < 0) return false;
        *out++ = static_cast<std::uint8_t>(high * 16 + low);
    }
    return text.size() % 2 == 0;
}

std::string_view next_word(std::string_view& line) noexcept {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return line = {};
    line.remove_prefix(begin);
    const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
    line.remove_prefix(word.size());
    return word;
}

// Where a label's secret is kept; null for labels that are not needed (exporter, early traffic).
Secret* secret_of(TlsSecrets& secrets, std::string_view label) noexcept {
    if (label == "CLIENT_RANDOM") return &secrets.master;
    if (label == "CLIENT_HANDSHAKE_TRAFFIC_SECRET") return &secrets.client_handshake;
    if (label == "SERVER_HANDSHAKE_TRAFFIC_SECRET") return &secrets.server_handshake;
    if (label == "CLIENT_TRAFFIC_SECRET_0") return &secrets.client_traffic;
    if (label == "SERVER_TRAFFIC_SECRET_0") return &secrets.server_traffic;
    return nullptr;
}

}  // namespace

void TlsKeyLog::add(std::string_view text) {
    const std::lock_guard guard(mutex_);
    add_lines(text);
}

void TlsKeyLog::add_lines(std::string_view text) {
    while (!text.empty()) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        const std::string_view label = next_word(line), random = next_word(line), value = next_word(line);
        if (label.empty() || label.front() == '#') continue;
        ClientRandom key;
        if (random.size() != 2 * key.size() || value.empty() || value.size() > 2 * kMaxSecret ||
            !from_hex(random, key.data())) {
            ++refused_.unreadable;
            continue;
        }
        Secret secret(value.size() / 2);
        if (!from_hex(value, secret.data())) {
            ++refused_.unreadable;
            continue;
        }
        TlsSecrets unused;
        if (secret_of(unused, label) == nullptr) continue;
        if (connections_.size() >= kMaxConnections && !connections_.contains(key)) {
            ++refused_.beyond_bound;
            continue;
        }
        *secret_of(connections_[key], label) = std::move(secret);
    }
}

bool TlsKeyLog::find(const ClientRandom& random, TlsSecrets& secrets) {
    const std::lock_guard guard(mutex_);
    auto found = connections_.find(random);
    if (found == connections_.end() && read_on()) found = connections_.find(random);
    if (found == connections_.end()) return false;
    secrets = found->second;
    return true;
}

bool TlsKeyLog::refresh() {
    const std::lock_guard guard(mutex_);
    return read_on();
}

bool TlsKeyLog::read_on() {
    if (path_.empty()) return false;
    std::ifstream file(path_, std::ios::binary);
    if (!file || !file.seekg(static_cast<std::streamoff>(read_to_))) return false;
    std::ostringstream text;
    text << file.rdbuf();
    std::string fresh = std::move(text).str();
    const std::size_t whole = fresh.rfind('\n') == std::string::npos ? 0 : fresh.rfind('\n') + 1;
    read_to_ += whole;
    add_lines(std::string_view(fresh).substr(0, whole));
    // A line without its end may still be being written, or be the last of a file that was cut: it is tried, read
    // again whenever the file is, and not counted.
    const Refused before = refused_;
    add_lines(std::string_view(fresh).substr(whole));
    refused_ = before;
    return true;
}

}  // namespace tapscope
