#include "evidence.hpp"

#include <algorithm>
#include <bit>

#include "find_byte.hpp"
#include "hash.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tapscope {

std::uint32_t slot_of_name(std::string_view name) noexcept {
    return static_cast<std::uint32_t>(text_hash(name, 0x736c6f74)) & 0x7fffffffu;
}

namespace {

int hex_value(char c) noexcept { return is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10; }

}  // namespace

std::string_view url_decode(std::string_view text, bool plus_is_space, std::string& scratch) {
    if (!holds(text, '%') && !(plus_is_space && holds(text, '+'))) return text;
    // Never longer than it was.
    if (scratch.size() < text.size()) scratch.resize(text.size());
    char* to = scratch.data();
    const char *from = text.data(), *const end = from + text.size();
    for (; from < end; ++from) {
        if (*from == '%' && end - from > 2 && is_hex(from[1]) && is_hex(from[2])) {
            *to++ = static_cast<char>(hex_value(from[1]) * 16 + hex_value(from[2]));
            from += 2;
        } else {
            *to++ = plus_is_space && *from == '+' ? ' ' : *from;
        }
    }
    return {scratch.data(), static_cast<std::size_t>(to - scratch.data())};
}

bool is_uuid(std::string_view text) noexcept {
    if (text.size() != 36) return false;
    for (std::size_t i = 0; i < 36; ++i) {
        const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !is_hex(text[i])) return false;
    }
    return true;
}

namespace {

// Kinds of characters as bit sets of a value's bytes: bit i speaks of byte i.
struct Kinds {
    std::uint64_t digit = 0, upper = 0, lower = 0, hex = 0, joint = 0;  // hex: digits included

    std::uint64_t any() const noexcept { return digit | upper | lower | joint; }
    Kinds part(unsigned from, unsigned size) const noexcept {
        const std::uint64_t mask = size == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << size) - 1;
        return {digit >> from & mask, upper >> from & mask, lower >> from & mask, hex >> from & mask,
                joint >> from & mask};
    }
};

bool is_id_character(char c) noexcept {
    return is_digit(c) || is_alpha(c) || c == '-' || c == '_' || c == '+' || c == '@';
}

constexpr std::size_t kMost = 64;  // bytes of a value that are judged at a time

#if defined(__SSE2__)
std::uint64_t at_most(__m128i bytes, char low, int span) noexcept {
    const __m128i shifted = _mm_sub_epi8(bytes, _mm_set1_epi8(low));
    const __m128i within =
        _mm_cmpeq_epi8(_mm_min_epu8(shifted, _mm_set1_epi8(static_cast<char>(span))), shifted);
    return static_cast<unsigned>(_mm_movemask_epi8(within));
}

void add_kinds(const char* p, std::size_t at, Kinds& kinds) noexcept {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + at));
    const auto is = [&](char c) { return _mm_cmpeq_epi8(bytes, _mm_set1_epi8(c)); };
    const std::uint64_t digit = at_most(bytes, '0', 9);
    kinds.digit |= digit << at;
    kinds.upper |= at_most(bytes, 'A', 25) << at;
    kinds.lower |= at_most(bytes, 'a', 25) << at;
    kinds.hex |= (digit | at_most(_mm_or_si128(bytes, _mm_set1_epi8(0x20)), 'a', 5)) << at;
    const __m128i joints = _mm_or_si128(_mm_or_si128(is('-'), is('_')), _mm_or_si128(is('+'), is('@')));
    kinds.joint |= std::uint64_t{static_cast<unsigned>(_mm_movemask_epi8(joints))} << at;
}

Kinds kinds_by_16(std::string_view value) noexcept {
    Kinds kinds;
    std::size_t at = 0;
    for (; at + 16 <= value.size(); at += 16) add_kinds(value.data(), at, kinds);
    if (at < value.size()) add_kinds(value.data(), value.size() - 16, kinds);  // some bytes twice
    return kinds;
}
#else
Kinds kinds_by_16(std::string_view value) noexcept {
    Kinds kinds;
    for (std::size_t i = 0; i < value.size(); ++i) {
        const char c = value[i];
        const std::uint64_t bit = std::uint64_t{1} << i;
        if (is_digit(c)) kinds.digit |= bit;
        if (c >= 'A' && c <= 'Z') kinds.upper |= bit;
        if (c >= 'a' && c <= 'z') kinds.lower |= bit;
        if (is_hex(c)) kinds.hex |= bit;
        if (c == '-' || c == '_' || c == '+' || c == '@') kinds.joint |= bit;
    }
    return kinds;
}
#endif

#if defined(__x86_64__)
[[gnu::target("avx512bw")]] Kinds kinds_by_64(std::string_view value) noexcept {
    // What the mask leaves out is not read, and zero is of no kind.
    const __m512i bytes = _mm512_maskz_loadu_epi8(~std::uint64_t{0} >> (kMost - value.size()), value.data());
    const __m512i small = _mm512_or_si512(bytes, _mm512_set1_epi8(0x20));
    const auto within = [](__m512i of, char low, char span) __attribute__((target("avx512bw"))) {
        return std::uint64_t{
            _mm512_cmple_epu8_mask(_mm512_sub_epi8(of, _mm512_set1_epi8(low)), _mm512_set1_epi8(span))};
    };
    const auto is = [&](char c) __attribute__((target("avx512bw"))) {
        return std::uint64_t{_mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(c))};
    };
    Kinds kinds;
    kinds.digit = within(bytes, '0', 9);
    kinds.upper = within(bytes, 'A', 25);
    kinds.lower = within(bytes, 'a', 25);
    kinds.hex = kinds.digit | within(small, 'a', 5);
    kinds.joint = is('-') | is('_') | is('+') | is('@');
    return kinds;
}
#endif

// Of 16 to kMost bytes, in one step where the processor can.
using KindsOf = Kinds (*)(std::string_view value) noexcept;
KindsOf choose([[maybe_unused]] unsigned widest) noexcept {
#if defined(__x86_64__)
    if (widest >= 512 && __builtin_cpu_supports("avx512bw")) return kinds_by_64;
#endif
    return kinds_by_16;
}
const KindsOf widest_kinds = choose(512);

// Calls visit(from, size) for every maximal run of ones.
template <class Visit>
void each_run(std::uint64_t bits, Visit visit) {
    for (unsigned at = 0; bits != 0;) {
        const auto zeros = static_cast<unsigned>(std::countr_zero(bits));
        bits >>= zeros;
        at += zeros;
        const auto ones = static_cast<unsigned>(std::countr_one(bits));
        visit(at, ones);
        if (at + ones >= kMost) return;
        bits >>= ones;
        at += ones;
    }
}

bool has_run_of_16(std::uint64_t bits) noexcept {
    for (int step = 1; step < 16; step *= 2) bits &= bits >> step;
    return bits != 0;
}

// A maximal run of the id alphabet: does it look made up?
bool run_is_id(std::string_view run, const Kinds& kinds) noexcept {
    const std::uint64_t letters = kinds.upper | kinds.lower;
    if (letters == 0 && kinds.joint == 0) return run.size() > 19;
    if (has_run_of_16(kinds.hex)) {
        unsigned longest = 0;  // run of hexadecimal digits, the first of equals
        bool with_letters = false;
        each_run(kinds.hex, [&](unsigned from, unsigned size) {
            if (size <= longest) return;
            longest = size;
            with_letters = kinds.part(from, size).digit != kinds.part(from, size).hex;
        });
        if (with_letters && longest * 2 >= run.size()) return true;
    }
    if (run.size() == 36 && is_uuid(run)) return true;
    if (run.size() < 20 || kinds.digit == 0 || letters == 0) return false;
    if (kinds.joint == 0 || (kinds.upper != 0 && kinds.lower != 0)) return true;
    // Words and numbers joined by signs are no id: some piece must have both letters and digits.
    bool mixed = false;
    each_run(kinds.digit | letters, [&](unsigned from, unsigned size) {
        const Kinds piece = kinds.part(from, size);
        mixed = mixed || (piece.digit != 0 && (piece.upper | piece.lower) != 0);
    });
    return mixed;
}

bool judge_value(std::string_view value, KindsOf kinds_of) noexcept {
    bool found = false;
    // `run` lies in `kinds` at `from`; runs longer than kMost are judged by their beginning.
    const auto judge = [&](std::string_view run, std::size_t whole, const Kinds& kinds) {
        if (!found && whole >= 16 && whole * 2 >= value.size()) found = run_is_id(run, kinds);
    };
    if (value.size() <= kMost) {
        const Kinds kinds = kinds_of(value);
        // All hexadecimal, as most ids are that programs make up.
        const std::uint64_t all = ~std::uint64_t{0} >> (kMost - value.size());
        if (kinds.hex == all && kinds.digit != all) return true;
        if (!has_run_of_16(kinds.any())) return false;
        each_run(kinds.any(), [&](unsigned from, unsigned size) {
            judge(value.substr(from, size), size, kinds.part(from, size));
        });
        return found;
    }
    for (std::size_t from = 0, i = 0; i <= value.size(); ++i) {
        if (i < value.size() && is_id_character(value[i])) continue;
        const std::string_view run = value.substr(from, std::min(i - from, kMost));
        if (run.size() >= 16) judge(run, i - from, kinds_of(run));
        from = i + 1;
    }
    return found;
}

}  // namespace

bool looks_like_id(std::string_view value) noexcept {
    return value.size() >= kShortestId && judge_value(value, widest_kinds);
}

bool looks_like_id(std::string_view value, unsigned widest) noexcept {
    return value.size() >= kShortestId && judge_value(value, choose(widest));
}

}  // namespace tapscope
