#include "dissect/tls_keys.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace tapscope {
namespace {

constexpr std::size_t kMaxSecret = 64;  // SHA-512; master secrets have 48 bytes
constexpr std::size_t kBlock = 256 * 1024, kMaxLine = 64 * 1024;

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

// Where a label's secret is kept; null for labels that are not needed (of exporters).
Secret* secret_of(TlsSecrets& secrets, std::string_view label) noexcept {
    if (label == "CLIENT_RANDOM") return &secrets.master;
    if (label == "CLIENT_EARLY_TRAFFIC_SECRET") return &secrets.client_early;
    if (label == "CLIENT_HANDSHAKE_TRAFFIC_SECRET") return &secrets.client_handshake;
    if (label == "SERVER_HANDSHAKE_TRAFFIC_SECRET") return &secrets.server_handshake;
    if (label == "CLIENT_TRAFFIC_SECRET_0") return &secrets.client_traffic;
    if (label == "SERVER_TRAFFIC_SECRET_0") return &secrets.server_traffic;
    return nullptr;
}

}  // namespace

TlsKeyLog::TlsKeyLog(std::string path, Keep keep) : path_(std::move(path)), keep_(keep) {
    if (!path_.empty()) file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
}

TlsKeyLog::~TlsKeyLog() {
    if (file_ >= 0) close(file_);
}

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
        if (!connections_.contains(key)) {
            if (keep_ == Keep::newest) {
                if (order_.size() >= kNewest) {
                    connections_.erase(order_.front());
                    order_.pop_front();
                }
                order_.push_back(key);
            } else if (connections_.size() >= kMaxConnections) {
                ++refused_.beyond_bound;
                continue;
            }
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
    struct stat now{};
    if (file_ < 0 || fstat(file_, &now) != 0) return false;
    const auto size = static_cast<std::uint64_t>(now.st_size);
    if (size < tried_to_) read_to_ = tried_to_ = 0;
    if (size == tried_to_) return false;
    std::string text;
    while (true) {
        const std::size_t have = text.size();
        text.resize(have + kBlock);
        const ssize_t got = pread(file_, text.data() + have, kBlock, static_cast<off_t>(read_to_ + have));
        text.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        if (got <= 0) break;
        const std::size_t whole = text.rfind('\n') + 1;  // 0 when there is none
        add_lines(std::string_view(text).substr(0, whole));
        read_to_ += whole;
        text.erase(0, whole);
        if (text.size() > kMaxLine) {  // no line of a key log: what comes until its end is none either
            ++refused_.unreadable;
            read_to_ += text.size();
            text.clear();
        }
    }
    tried_to_ = read_to_ + text.size();
    // A line without its end may still be being written, or be the last of a file that was cut: it is tried, read
    // again whenever the file is, and not counted.
    const Refused before = refused_;
    add_lines(text);
    refused_ = before;
    return true;
}

}  // namespace tapscope
