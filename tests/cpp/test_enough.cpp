// How much of the first calls is enough to learn from: half or less where the rest is like it, else all.
#include "enough.hpp"

#include <cstdint>
#include <vector>

#include "expect.hpp"

using namespace tapscope::match;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

constexpr Time kMillisecond = 1'000'000;
constexpr std::size_t kRequests = 8000, kLeast = 1000;

// A request every 10 ms that takes 5 ms and makes one call, 1 ms after it came; of four classes in turn.
struct Rows {
    std::vector<std::int32_t> cls;
    std::vector<Time> arrive, depart, begin;
    std::vector<std::int64_t> token_offset{0};
    Rows() {
        for (std::size_t i = 0; i < kRequests; ++i) {
            cls.push_back(static_cast<std::int32_t>(i % 4));
            arrive.push_back(static_cast<Time>(10 * i) * kMillisecond);
            depart.push_back(arrive.back() + 5 * kMillisecond);
            begin.push_back(arrive.back() + kMillisecond);
            token_offset.push_back(token_offset.back() + 1);
        }
    }
    std::size_t enough() const {
        return enough_to_learn(FirstRows{cls, cls, arrive, depart, begin, token_offset}, kLeast);
    }
};

}  // namespace

int main() {
    expect(Rows().enough() == kLeast, "rows that are all alike are learned from the first few");

    Rows late_class;  // whose rows begin in the second quarter: half of all knows it
    for (std::size_t i = 1500; i < kRequests; i += 4) late_class.cls[i] = 4;
    expect(late_class.enough() == 2 * kLeast, "a class that comes later is waited for");

    Rows always_new;  // three in a thousand are of a class of their own
    for (std::size_t i = 0; i < kRequests; i += 300)
        always_new.cls[i] = static_cast<std::int32_t>(4 + i / 300);
    expect(always_new.enough() == kRequests, "where there is always something new, all is learned from");

    Rows warms_up;  // the first 3,000 requests take four times as long
    for (std::size_t i = 0; i < 3000; ++i) warms_up.depart[i] += 15 * kMillisecond;
    expect(warms_up.enough() == kRequests, "what is slow at first does not teach the rest");

    Rows busier;  // the same stays, but from a quarter on six come at once
    for (std::size_t i = 2000; i < kRequests; ++i) {
        const auto at = static_cast<Time>(10 * (i - (i - 2000) % 6)) * kMillisecond;
        busier.depart[i] += at - busier.arrive[i];
        busier.begin[i] += at - busier.arrive[i];
        busier.arrive[i] = at;
    }
    expect(busier.enough() == kRequests, "nor does a quiet time teach a busy one");

    Rows silent;  // no call carries a value
    silent.token_offset.assign(kRequests + 1, 0);
    expect(silent.enough() == kRequests, "by time alone, all is learned from");
    return failures > 0;
}
