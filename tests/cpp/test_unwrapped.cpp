// Counters of 32 bits that begin again at 0, as libpcap's do.
#include "source/unwrapped.hpp"

#include <cstdint>

#include "expect.hpp"

using namespace tapscope;
using tapscope::test::expect;
using tapscope::test::failures;

int main() {
    Unwrapped count;
    expect(count(0) == 0, "nothing came");
    expect(count(7) == 7 && count(7) == 7, "a reading twice counts once");
    expect(count(UINT32_MAX) == UINT32_MAX, "the last number before it begins again");
    expect(count(0) == std::uint64_t{1} << 32, "the first one behind it");
    expect(count(41) == (std::uint64_t{1} << 32) + 41, "and on");
    std::uint64_t sent = (std::uint64_t{1} << 32) + 41;
    for (int look = 0; look < 1000; ++look) {
        sent += 3'000'000'000;  // between two looks, so that most of them wrap
        expect(count(static_cast<std::uint32_t>(sent)) == sent, "many rounds");
    }
    return failures == 0 ? 0 : 1;
}
