#include "evidence.hpp"

#include <array>

#include "hash.hpp"

namespace tapscope {

std::uint32_t slot_of_name(std::string_view name) noexcept {
    return static_cast<std::uint32_t>(text_hash(name, 0x736c6f74)) & 0x7fffffffu;
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

// Kinds of characters, one look-up each: this runs over every value of every request.
enum Kind : std::uint8_t { digit = 1, upper = 2, lower = 4, hex = 8, joint = 16 };

constexpr std::array<std::uint8_t, 256> kKinds = [] {
    std::array<std::uint8_t, 256> kinds{};
    for (unsigned c = '0'; c <= '9'; ++c) kinds[c] = digit | hex;
    for (unsigned c = 'A'; c <= 'Z'; ++c) kinds[c] = static_cast<std::uint8_t>(upper | (c <= 'F' ? hex : 0));
    for (unsigned c = 'a'; c <= 'z'; ++c) kinds[c] = static_cast<std::uint8_t>(lower | (c <= 'f' ? hex : 0));
    for (unsigned char c : {'-', '_', '+', '@'}) kinds[c] = joint;
    return kinds;
}();

std::uint8_t kind_of(char c) noexcept { return kKinds[static_cast<unsigned char>(c)]; }

// A maximal run of the id alphabet: does it look made up?
bool run_is_id(std::string_view run) noexcept {
    std::size_t longest_hex = 0, hex_run = 0;
    std::uint8_t any = 0, piece = 0, hex_kinds = 0, longest_kinds = 0;
    bool pieces_pure = true;  // every piece between joints is all letters or all digits: words, not an id
    const auto end_piece = [&] {
        pieces_pure = pieces_pure && !((piece & digit) && (piece & (upper | lower)));
        piece = 0;
    };
    for (char c : run) {
        const std::uint8_t kind = kind_of(c);
        any |= kind;
        if (kind == joint)
            end_piece();
        else
            piece |= kind;
        if (kind & hex) {
            hex_kinds |= kind;
            if (++hex_run > longest_hex) {
                longest_hex = hex_run;
                longest_kinds = hex_kinds;
            }
        } else {
            hex_run = 0;
            hex_kinds = 0;
        }
    }
    end_piece();
    const bool letters = any & (upper | lower);
    if (!letters && !(any & joint)) return run.size() > 19;
    if (longest_hex >= 16 && (longest_kinds & (upper | lower)) && longest_hex * 2 >= run.size()) return true;
    if (run.size() == 36 && is_uuid(run)) return true;
    if (run.size() < 20 || !(any & digit) || !letters) return false;
    const bool words = (any & joint) && pieces_pure && !((any & upper) && (any & lower));
    return !words;
}

}  // namespace

bool looks_like_id(std::string_view value) noexcept {
    if (value.size() < 16) return false;
    std::size_t from = 0;
    for (std::size_t i = 0; i <= value.size(); ++i) {
        if (i < value.size() && kind_of(value[i]) != 0) continue;
        const std::size_t length = i - from;
        if (length >= 16 && length * 2 >= value.size() && run_is_id(value.substr(from, length))) return true;
        from = i + 1;
    }
    return false;
}

}  // namespace tapscope
