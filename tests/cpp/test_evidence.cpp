// looks_like_id against a plain reading of its definition, on random values made of the bytes that matter.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "evidence.hpp"

using namespace tapscope;

namespace {

bool joint(char c) { return c == '-' || c == '_' || c == '+' || c == '@'; }
bool in_alphabet(char c) { return is_digit(c) || is_alpha(c) || joint(c); }

bool plain_run_is_id(std::string_view run) {
    const auto any = [&](auto is) { return std::any_of(run.begin(), run.end(), is); };
    const bool letters = any(is_alpha), digits = any(is_digit), joints = any(joint);
    if (!letters && !joints) return run.size() > 19;
    std::string_view longest;
    for (std::size_t i = 0; i < run.size(); ++i) {
        std::size_t end = i;
        while (end < run.size() && is_hex(run[end])) ++end;
        if (end - i > longest.size()) longest = run.substr(i, end - i);
        i = end;
    }
    if (longest.size() >= 16 && longest.size() * 2 >= run.size() && !all_digits(longest)) return true;
    if (is_uuid(run)) return true;
    if (run.size() < 20 || !digits || !letters) return false;
    const bool both_cases =
        any([](char c) { return c >= 'A' && c <= 'Z'; }) && any([](char c) { return c >= 'a' && c <= 'z'; });
    if (!joints || both_cases) return true;
    for (std::size_t i = 0; i < run.size(); ++i) {
        std::size_t end = i;
        while (end < run.size() && !joint(run[end])) ++end;
        const std::string_view piece = run.substr(i, end - i);
        if (std::any_of(piece.begin(), piece.end(), is_digit) &&
            std::any_of(piece.begin(), piece.end(), is_alpha))
            return true;
        i = end;
    }
    return false;
}

bool plain_looks_like_id(std::string_view value) {
    for (std::size_t i = 0; i < value.size(); ++i) {
        std::size_t end = i;
        while (end < value.size() && in_alphabet(value[end])) ++end;
        const std::size_t size = end - i;
        if (size >= 16 && size * 2 >= value.size() &&
            plain_run_is_id(value.substr(i, std::min<std::size_t>(size, 64))))
            return true;
        i = end;
    }
    return false;
}

bool digits_agree(std::mt19937& random) {
    // Bytes next to the digits, and those that differ from them in one bit.
    constexpr std::string_view near = "0123456789/:;?@ pqy\xb0\xb9";
    for (int i = 0; i < 200'000; ++i) {
        std::vector<char> text(random() % 30);
        for (char& c : text) c = near[random() % (random() % 40 == 0 ? near.size() : 10)];
        const bool expected = !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
        if (all_digits({text.data(), text.size()}) != expected) return false;
    }
    return true;
}

}  // namespace

int main() {
    std::mt19937 random(1);
    if (!digits_agree(random)) return std::printf("all_digits: not what it is digit by digit\n"), 1;
    const std::string_view alphabets[] = {
        "0123456789", "0123456789abcdef",       "abcdefghijxyz", "aF0-", "Ab1_-+@", "aZ9 .", "ag",
        "1-",         "0123456789abcdef-ABCDEF"};
    int ids = 0;
    constexpr int kValues = 400'000;
    for (int i = 0; i < kValues; ++i) {
        std::string value;
        const std::size_t size = random() % 90;
        while (value.size() < size) {
            const std::string_view alphabet = alphabets[random() % std::size(alphabets)];
            for (std::size_t n = 1 + random() % 40; n > 0 && value.size() < size; --n)
                value.push_back(alphabet[random() % alphabet.size()]);
        }
        if (i % 50 == 0) value = "01234567-89ab-cdef-0123-456789abcdef";
        const bool expected = plain_looks_like_id(value);
        // An exact-size heap block, so that a sanitizer sees every read beyond the end.
        const std::vector<char> exact(value.begin(), value.end());
        const std::string_view text(exact.data(), exact.size());
        if (looks_like_id(text) != expected || looks_like_id(text, 0) != expected) {
            std::printf("%s: expected %d\n", value.c_str(), expected);
            return 1;
        }
        ids += expected;
    }
    if (ids < kValues / 20 || ids > kValues / 20 * 19)
        return std::printf("one-sided values: %d ids\n", ids), 1;
    std::printf("looks_like_id: %d values, %d ids\n", kValues, ids);
}
