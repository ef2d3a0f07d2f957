// Bytes that are found many at a time are those that are found byte by byte: line feeds and colons, with every width of
// vectors, and the first place of one byte.
#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "dissect/line_marks.hpp"
#include "find_byte.hpp"

using namespace tapscope;

int main() {
    constexpr std::size_t kTexts = 20'000, kMost = LineMarks::kBlock * LineMarks::kBlocks;
    const MarkLines plain = line_marker(0);
    std::mt19937_64 random(7);
    for (const unsigned widest : {128u, 256u, 512u}) {
        const MarkLines mark = line_marker(widest);
        for (std::size_t i = 0; i < kTexts; ++i) {
            // An exact-size heap block, so that a sanitizer sees every read beyond the end.
            std::vector<char> text(random() % (i % 2 == 0 ? kMost + 1 : 80));
            for (char& c : text) c = "\n:a\r \x8a\xba\x0b"[random() % 8];
            LineMarks expected, found;
            plain(text.data(), text.size(), expected);
            mark(text.data(), text.size(), found);
            for (std::size_t block = 0; block * LineMarks::kBlock < text.size(); ++block)
                if (found.newlines[block] != expected.newlines[block] ||
                    found.colons[block] != expected.colons[block]) {
                    std::printf("text %zu, vectors up to %u bits: block %zu differs\n", i, widest, block);
                    return 1;
                }
        }
    }
    for (std::size_t i = 0; i < kTexts; ++i) {
        std::vector<char> text(i % 70);
        for (char& c : text) c = static_cast<char>('a' + random() % 40);
        std::size_t expected = 0;
        while (expected < text.size() && text[expected] != 'e') ++expected;
        if (find_byte({text.data(), text.size()}, 'e') != expected) {
            std::printf("text of %zu bytes: not the first place\n", text.size());
            return 1;
        }
    }
    for (std::size_t i = 0; i < kTexts; ++i) {
        std::vector<char> text(i % 70);
        for (char& c : text) c = static_cast<char>('a' + random() % 60);
        const bool expected =
            std::any_of(text.begin(), text.end(), [](char c) { return c == 'e' || c == 'k'; });
        if (holds_any<'e', 'k'>({text.data(), text.size()}) != expected) {
            std::printf("text of %zu bytes: one of the bytes is not found, or found without being there\n",
                        text.size());
            return 1;
        }
    }
    for (const char* const text : {"a:\n", "::\n\n:"}) {  // what byte by byte finds, once by hand
        LineMarks marks;
        const std::size_t size = text[0] == 'a' ? 3 : 5;
        plain(text, size, marks);
        if (marks.newlines[0] != (size == 3 ? 0b100u : 0b01100u) ||
            marks.colons[0] != (size == 3 ? 0b010u : 0b10011u)) {
            std::printf("marks of a text of %zu bytes are wrong\n", size);
            return 1;
        }
    }
    std::printf("line marks: %zu texts\n", kTexts);
}
