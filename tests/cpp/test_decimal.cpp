// Integers as text, against the standard library's.
#include "decimal.hpp"

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

#include "expect.hpp"

using namespace tapscope;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

template <class T>
void agree(T value) {
    char ours[kDecimalRoom], theirs[kDecimalRoom];
    const std::size_t size = put_decimal(value, ours);
    const auto [end, error] = std::to_chars(theirs, theirs + sizeof theirs, value);
    const std::string text(theirs, end);
    expect(error == std::errc{} && std::string(ours, size) == text, text.c_str());
}

template <class T>
void ends_agree() {
    using Limits = std::numeric_limits<T>;
    for (const T value : {Limits::min(), static_cast<T>(Limits::min() + 1), T{0}, T{1}, Limits::max(),
                          static_cast<T>(Limits::max() - 1)})
        agree(value);
}

}  // namespace

int main() {
    ends_agree<std::int8_t>();
    ends_agree<std::uint8_t>();
    ends_agree<std::int16_t>();
    ends_agree<std::uint16_t>();
    ends_agree<std::int32_t>();
    ends_agree<std::uint32_t>();
    ends_agree<std::int64_t>();
    ends_agree<std::uint64_t>();
    for (std::uint32_t value = 0; value < 200'000; ++value) agree(value);
    // Around every power of ten, and every number of zeros behind another digit.
    for (std::uint64_t power = 1; power <= 1'000'000'000'000'000'000u; power *= 10)
        for (std::uint64_t digit = 1; digit <= 9; ++digit)
            for (const std::uint64_t near : {power * digit - 1, power * digit, power * digit + 1}) {
                agree(near);
                agree(-static_cast<std::int64_t>(near));
            }
    std::uint64_t any = 1;
    for (int i = 0; i < 200'000; ++i) {
        any = any * 6364136223846793005u + 1442695040888963407u;
        agree(any >> any % 64);
    }
    return failures == 0 ? 0 : 1;
}
