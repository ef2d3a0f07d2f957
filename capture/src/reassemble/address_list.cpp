#include "reassemble/address_list.hpp"

#include <arpa/inet.h>

namespace tapscope {

std::string address_text(const Address& address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address.is_ipv4()) {
        const std::uint32_t network = htonl(static_cast<std::uint32_t>(address.low));
        inet_ntop(AF_INET, &network, text, sizeof text);
    } else {
        const std::uint64_t network[2] = {__builtin_bswap64(address.high), __builtin_bswap64(address.low)};
        inet_ntop(AF_INET6, network, text, sizeof text);
    }
    return text;
}

std::int32_t AddressList::index(const Address& address) {
    const auto [at, fresh] = indices_.try_emplace(address, static_cast<std::int32_t>(addresses_.size()));
    if (fresh) addresses_.push_back(address);
    return at->second;
}

std::vector<std::string> AddressList::texts() const {
    std::vector<std::string> out;
    for (const Address& address : addresses_) out.push_back(address_text(address));
    return out;
}

}  // namespace tapscope
