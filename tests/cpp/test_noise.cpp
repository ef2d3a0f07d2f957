// Bytes of no protocol that is known, each time as the first of a segment: hardly any is to be taken for one that is.
// A connection gives the probes up to 256 segments of a side, so what passes once in 100,000 is met by 1 of 400.
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "dissect/registry.hpp"
#include "expect.hpp"

using namespace tapscope;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

constexpr unsigned kSegments = 200'000, kProtocols = 16;

std::uint8_t any(std::mt19937_64& random) { return static_cast<std::uint8_t>(random()); }
std::uint8_t printable(std::mt19937_64& random) { return static_cast<std::uint8_t>(0x20 + random() % 95); }
// Text, noise and many zeros: lengths, small numbers and names, as most protocols have them.
std::uint8_t mixed(std::mt19937_64& random) {
    switch (random() % 4) {
        case 0:
            return any(random);
        case 1:
            return 0;
        default:
            return printable(random);
    }
}

void taken(const char* name, std::uint8_t (*draw)(std::mt19937_64&), Direction direction, unsigned most) {
    std::mt19937_64 random(7);
    std::array<unsigned, kProtocols> found{};
    for (const std::size_t size : {12, 40, 200, 1400}) {
        std::vector<std::uint8_t> segment(size);
        for (unsigned n = 0; n < kSegments / (size == 1400 ? 8 : 1); ++n) {
            for (std::uint8_t& byte : segment) byte = draw(random);
            const Probed probed = probe_all(segment, direction);
            if (probed.answer == Probe::yes) ++found.at(static_cast<unsigned>(probed.protocol));
        }
    }
    for (unsigned protocol = 0; protocol < kProtocols; ++protocol)
        expect(found[protocol] <= most, std::string(name) +
                                            (direction == Direction::to_server ? " to" : " from") +
                                            " a server, taken for protocol " + std::to_string(protocol) +
                                            " in " + std::to_string(found[protocol]) + " segments of " +
                                            std::to_string(3 * kSegments + kSegments / 8));
}

}  // namespace

int main() {
    for (const Direction direction : {Direction::to_server, Direction::to_client}) {
        taken("noise", any, direction, 6);
        taken("text", printable, direction, 6);
        taken("names and numbers", mixed, direction, 120);
    }
    return failures != 0;
}
