// Hashes of values, made one by one or several at a time, with every width of vectors, are those of SipHash-1-3.
#include <cstdio>
#include <random>
#include <vector>

#include "columns.hpp"
#include "token_hashes.hpp"

using namespace tapscope;

namespace {

// As the paper has it, byte by byte.
std::uint64_t plain_siphash13(HashKey key, const std::vector<std::uint8_t>& value) {
    std::uint64_t v0 = 0x736f6d6570736575u ^ key.k0, v1 = 0x646f72616e646f6du ^ key.k1;
    std::uint64_t v2 = 0x6c7967656e657261u ^ key.k0, v3 = 0x7465646279746573u ^ key.k1;
    for (std::size_t at = 0; at <= value.size(); at += 8) {
        const bool last = value.size() - at < 8;
        std::uint64_t word = last ? std::uint64_t{value.size()} << 56 : 0;
        for (std::size_t i = 0; i < 8 && at + i < value.size(); ++i)
            word |= std::uint64_t{value[at + i]} << 8 * i;
        v3 ^= word;
        detail::sip_round(v0, v1, v2, v3);
        v0 ^= word;
    }
    v2 ^= 0xff;
    for (int i = 0; i < 3; ++i) detail::sip_round(v0, v1, v2, v3);
    return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace

int main() {
    constexpr HashKey key{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    constexpr std::size_t kRows = 20'000;
    std::mt19937_64 random(5);
    for (const unsigned widest : {0u, 256u, 512u}) {
        TokenHashes hashes(key, widest);
        Column<std::uint64_t> column;
        column.resize_storage(kRows);
        std::vector<std::uint64_t> expected(kRows);
        for (std::size_t row = 0; row < kRows; ++row) {
            // An exact-size heap block, so that a sanitizer sees every read beyond the end.
            std::vector<std::uint8_t> value(random() % (row % 3 == 0 ? 200 : 40));
            for (std::uint8_t& byte : value) byte = static_cast<std::uint8_t>(random());
            hashes.add(column, row, value);
            expected[row] = plain_siphash13(key, value);
            if (siphash13(key, value) != expected[row]) {
                std::printf("row %zu: siphash13 gives another hash\n", row);
                return 1;
            }
            if (row % 4099 == 0) hashes.settle(column);
        }
        hashes.settle(column);
        for (std::size_t row = 0; row < kRows; ++row)
            if (column[row] != expected[row]) {
                std::printf("row %zu, vectors up to %u bits: another hash\n", row, widest);
                return 1;
            }
    }
    std::printf("token hashes: %zu values\n", kRows);
}
