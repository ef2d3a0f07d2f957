// Builds MySQL packets for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tapscope::test {

inline std::string le(std::uint64_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
    return out;
}

inline std::string lenenc(std::uint64_t n) {
    if (n < 251) return le(n, 1);
    if (n < 65536) return "\xFC" + le(n, 2);
    if (n < (1u << 24)) return "\xFD" + le(n, 3);
    return "\xFE" + le(n, 8);
}
inline std::string lenenc_str(const std::string& s) { return lenenc(s.size()) + s; }

// A payload of any length: split at 0xFFFFFF, sequence counted on.
inline std::string packet(int& seq, const std::string& payload) {
    std::string out;
    std::size_t at = 0;
    for (;;) {
        const std::size_t n = std::min<std::size_t>(payload.size() - at, 0xFFFFFF);
        out += le(n, 3) + le(static_cast<std::uint64_t>(seq++), 1) + payload.substr(at, n);
        at += n;
        if (n < 0xFFFFFF) return out;
    }
}
inline std::string packets(int seq, const std::vector<std::string>& payloads) {
    std::string out;
    for (const auto& p : payloads) out += packet(seq, p);
    return out;
}

inline std::string command(std::uint8_t code, const std::string& rest = "") {
    return packets(0, {std::string(1, static_cast<char>(code)) + rest});
}
inline std::string query(const std::string& text) { return command(3, text); }

constexpr std::uint32_t kBaseCaps =
    0x1 | 0x200 | 0x8000 | 0x80000;  // MySQL, 4.1, secure connection, plugin auth
constexpr std::uint32_t kDeprecateEof = 0x1000000;

inline std::string greeting(std::uint32_t caps, std::uint32_t mariadb_caps = 0) {
    return packets(
        0, {"\x0A" + std::string("8.0.test") + '\0' + le(7, 4) + "saltsalt" + '\0' + le(caps & 0xFFFF, 2) +
            "\x2D" + le(2, 2) + le(caps >> 16, 2) + "\x15" + std::string(6, '\0') + le(mariadb_caps, 4) +
            "saltsaltsalt" + '\0' + "mysql_native_password" + '\0'});
}
inline std::string login(std::uint32_t caps, std::uint32_t mariadb_caps = 0) {
    return packets(1, {le(caps, 4) + le(1 << 24, 4) + "\x2D" + std::string(19, '\0') + le(mariadb_caps, 4) +
                       "user" + '\0' + "\x14" + std::string(20, 'h') + "mysql_native_password" + '\0'});
}

inline std::string ok(std::uint16_t status = 2, char header = '\0', const std::string& info = "") {
    return header + std::string("\x01\x00", 2) + le(status, 2) + le(0, 2) + info;
}
inline std::string eof(std::uint16_t status = 2) { return "\xFE" + le(0, 2) + le(status, 2); }
inline std::string err(std::uint16_t code) { return "\xFF" + le(code, 2) + "#42S02some text"; }
inline std::string definition(const std::string& name, std::uint8_t type = 0xFD, std::uint16_t flags = 0) {
    return lenenc_str("def") + lenenc_str("db") + lenenc_str("t") + lenenc_str("t") + lenenc_str(name) +
           lenenc_str(name) + "\x0C" + le(45, 2) + le(255, 4) + le(type, 1) + le(flags, 2) +
           std::string(3, '\0');
}
inline std::string text_row(const std::vector<std::string>& values) {
    std::string out;
    for (const auto& v : values) out += v == "NULL" ? std::string("\xFB") : lenenc_str(v);
    return out;
}

}  // namespace tapscope::test
