// Addresses of hosts: as text, and numbered in the order in which connections bring them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/segment.hpp"
#include "hash.hpp"

namespace tapscope {

class AddressList {
public:
    std::int32_t index(const Address& address);
    std::vector<std::string> texts() const;
    void clear() noexcept {
        indices_.clear();
        addresses_.clear();
    }
    const std::vector<Address>& all() const noexcept { return addresses_; }
    std::size_t size() const noexcept { return addresses_.size(); }

private:
    struct Hash {
        std::size_t operator()(const Address& address) const noexcept {
            return mix64(address.high, address.low);
        }
    };
    std::unordered_map<Address, std::int32_t, Hash> indices_;
    std::vector<Address> addresses_;
};

std::string address_text(const Address& address);

}  // namespace tapscope
