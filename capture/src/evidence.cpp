#include "evidence.hpp"

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

bool in_id_alphabet(char c) noexcept {
    return is_digit(c) || is_alpha(c) || c == '-' || c == '_' || c == '+' || c == '@';
}

// A maximal run of the id alphabet: does it look made up?
bool run_is_id(std::string_view run) noexcept {
    if (run.size() < 16) return false;
    std::size_t digits = 0, letters = 0, hex = 0, longest_hex = 0, upper = 0, lower = 0, joints = 0;
    bool pieces_pure = true;  // every piece between joints is all letters or all digits: words, not an id
    bool piece_letters = false, piece_digits = false, hex_letters = false, longest_has_letters = false;
    for (char c : run) {
        if (is_digit(c)) {
            ++digits;
            piece_digits = true;
        } else if (is_alpha(c)) {
            ++letters;
            (c & 0x20 ? lower : upper)++;
            piece_letters = true;
        } else {
            ++joints;
            pieces_pure = pieces_pure && !(piece_letters && piece_digits);
            piece_letters = piece_digits = false;
        }
        if (is_hex(c)) {
            ++hex;
            hex_letters = hex_letters || !is_digit(c);
            if (hex > longest_hex) {
                longest_hex = hex;
                longest_has_letters = hex_letters;
            }
        } else {
            hex = 0;
            hex_letters = false;
        }
    }
    pieces_pure = pieces_pure && !(piece_letters && piece_digits);
    if (letters == 0 && joints == 0) return digits > 19;
    if (longest_hex >= 16 && longest_has_letters && longest_hex * 2 >= run.size()) return true;
    if (run.size() == 36 && is_uuid(run)) return true;
    if (run.size() < 20 || digits == 0 || letters == 0) return false;
    const bool words = joints > 0 && pieces_pure && (upper == 0 || lower == 0);
    return !words;
}

}  // namespace

bool looks_like_id(std::string_view value) noexcept {
    if (value.size() < 16) return false;
    std::size_t from = 0;
    for (std::size_t i = 0; i <= value.size(); ++i) {
        if (i < value.size() && in_id_alphabet(value[i])) continue;
        const std::size_t length = i - from;
        if (length >= 16 && length * 2 >= value.size() && run_is_id(value.substr(from, length))) return true;
        from = i + 1;
    }
    return false;
}

}  // namespace tapscope
