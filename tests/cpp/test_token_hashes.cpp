// Hashes of values that are made several at a time are those of siphash13, with every width of vectors.
#include <cstdio>
#include <random>
#include <vector>

#include "columns.hpp"
#include "token_hashes.hpp"

using namespace tapscope;

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
            std::vector<std::uint8_t> value(random() % (row % 7 == 0 ? 200 : 40));
            for (std::uint8_t& byte : value) byte = static_cast<std::uint8_t>(random());
            hashes.add(column, row, value);
            expected[row] = siphash13(key, value);
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
