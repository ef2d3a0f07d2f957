#include "dissect/proxy_header.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "bytes.hpp"
#include "evidence.hpp"

namespace tapscope {
namespace {

constexpr std::string_view kStart1 = "PROXY ";
constexpr std::string_view kStart2("\x0D\x0A\x0D\x0A\x00\x0D\x0A\x51\x55\x49\x54\x0A", 12);
constexpr std::size_t kMaxLine = 107;  // v1, CRLF included
constexpr std::size_t kFixed = 16;     // v2: what comes before the addresses
constexpr unsigned kCommandProxy = 1, kFamilyIpv4 = 1, kFamilyIpv6 = 2;

// Does `bytes` begin with `pattern` as far as it goes?
bool agrees(Bytes bytes, std::string_view pattern) noexcept {
    return std::memcmp(bytes.data(), pattern.data(), std::min(bytes.size(), pattern.size())) == 0;
}

// The address in the form in which the engine writes addresses, whatever form the header has it in.
std::string endpoint_text(int family, const void* address, unsigned port) {
    std::array<char, INET6_ADDRSTRLEN> text;
    if (inet_ntop(family, address, text.data(), text.size()) == nullptr) return {};
    return std::string(text.data()) + ":" + std::to_string(port);
}

ProxyHeader read_line(Bytes bytes) {
    const Bytes start = bytes.first(std::min(bytes.size(), kMaxLine));
    const void* newline = std::memchr(start.data(), '\n', start.size());
    if (newline == nullptr) return {start.size() < kMaxLine ? Probe::need_more : Probe::no};
    const auto size = static_cast<std::size_t>(static_cast<const std::uint8_t*>(newline) - start.data()) + 1;
    std::array<std::string_view, 6> words;
    std::size_t count = 0, from = 0;
    const std::string_view line = as_text(start.first(size));
    for (std::size_t i = 0; i < size && count < words.size(); ++i) {
        if (line[i] != ' ' && line[i] != '\r' && line[i] != '\n') continue;
        if (i > from) words[count++] = line.substr(from, i - from);
        from = i + 1;
    }
    if (count < 2 || (words[1] != "TCP4" && words[1] != "TCP6" && words[1] != "UNKNOWN")) return {};
    ProxyHeader header{Probe::yes, size, 1};
    if (count < words.size() || words[1] == "UNKNOWN" || !all_digits(words[4]) || words[4].size() > 5)
        return header;
    const int family = words[1] == "TCP4" ? AF_INET : AF_INET6;
    in6_addr address;
    if (inet_pton(family, std::string(words[2]).c_str(), &address) == 1)
        header.endpoint =
            endpoint_text(family, &address, static_cast<unsigned>(std::stoul(std::string(words[4]))));
    return header;
}

}  // namespace

ProxyHeader read_proxy_header(Bytes bytes) {
    if (bytes.empty()) return {Probe::need_more};
    if (agrees(bytes, kStart1)) {
        if (bytes.size() < kStart1.size()) return {Probe::need_more};
        return read_line(bytes);
    }
    if (!agrees(bytes, kStart2)) return {};
    if (bytes.size() < kFixed) return {Probe::need_more};
    const std::size_t size = kFixed + std::size_t{load_be16(&bytes[14])};
    if (bytes[12] >> 4 != 2) return {};
    if (bytes.size() < size) return {Probe::need_more};
    ProxyHeader header{Probe::yes, size, 2};
    if ((bytes[12] & 0x0F) != kCommandProxy) return header;  // LOCAL: the balancer's own health check
    const unsigned family = bytes[13] >> 4;
    if (family == kFamilyIpv4 && size >= kFixed + 12)
        header.endpoint = endpoint_text(AF_INET, &bytes[16], load_be16(&bytes[24]));
    else if (family == kFamilyIpv6 && size >= kFixed + 36)
        header.endpoint = endpoint_text(AF_INET6, &bytes[16], load_be16(&bytes[48]));
    return header;
}

}  // namespace tapscope
