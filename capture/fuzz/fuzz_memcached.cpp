#include "exchange.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tapscope::fuzz::play(tapscope::Protocol::memcached, data, size);
    return 0;
}
