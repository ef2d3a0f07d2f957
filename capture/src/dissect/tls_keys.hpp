// Secrets of TLS connections as browsers and libraries log them (SSLKEYLOGFILE; RFC 9850), by client random.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hash.hpp"

namespace tapscope {

using Secret = std::vector<std::uint8_t>;
using ClientRandom = std::array<std::uint8_t, 32>;

// The secrets of one connection; empty where the log has none.
struct TlsSecrets {
    Secret master;  // TLS 1.2 and older
    Secret client_early, client_handshake, server_handshake, client_traffic, server_traffic;
};

// Filled from a key log file (which may grow while a capture runs) and from decryption secrets blocks of pcapng.
// Bounded: with more than kMaxConnections the log is not read on, and of a live capture's only the newest kNewest are
// kept. Safe to use from several threads.
class TlsKeyLog {
public:
    static constexpr std::size_t kMaxConnections = 1'000'000, kNewest = 200'000;
    enum class Keep : std::uint8_t { first, newest };

    // Of `path` is read what was appended to it whenever a look-up finds nothing. Empty: no file. The file is opened
    // once: the right to do so may be given up afterwards.
    explicit TlsKeyLog(std::string path = {}, Keep keep = Keep::first);
    ~TlsKeyLog();
    TlsKeyLog(const TlsKeyLog&) = delete;
    TlsKeyLog& operator=(const TlsKeyLog&) = delete;

    // Lines that gave no secret, so far.
    struct Refused {
        std::uint64_t unreadable = 0;
        std::uint64_t beyond_bound = 0;  // secrets of a connection more than kMaxConnections
    };

    // Adds the lines of a key log.
    void add(std::string_view text);
    // True when a client with this random has any secret here.
    bool find(const ClientRandom& random, TlsSecrets& secrets);
    // Reads the file on from where it ended last; false when there is nothing new. One that got shorter is read again
    // from its start.
    bool refresh();
    Refused refused() const {
        const std::lock_guard guard(mutex_);
        return refused_;
    }
    const std::string& path() const noexcept { return path_; }
    std::size_t size() const {
        const std::lock_guard guard(mutex_);
        return connections_.size();
    }

private:
    struct Hash {
        std::size_t operator()(const ClientRandom& random) const noexcept {
            return mix64(load_le64(random.data()), load_le64(random.data() + 8));
        }
    };
    void add_lines(std::string_view text);
    bool read_on();

    mutable std::mutex mutex_;
    std::string path_;
    Keep keep_;
    int file_ = -1;
    std::uint64_t read_to_ = 0;       // behind the last whole line
    std::uint64_t tried_to_ = 0;      // a line without its end was tried up to here
    std::deque<ClientRandom> order_;  // Keep::newest: of connections_, the oldest first
    Refused refused_;
    std::unordered_map<ClientRandom, TlsSecrets, Hash> connections_;
};

}  // namespace tapscope
