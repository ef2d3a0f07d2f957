// Which places in paths hold values, by rows that are written out.
#include "path_values.hpp"

#include <vector>

#include "expect.hpp"

using namespace tapscope::match;
using tapscope::test::expect;

namespace {

constexpr std::uint32_t kTag = 5 * kKinds + kWordKind, kShelf = 6 * kKinds + kWordKind;
constexpr std::int32_t kShared = 15;
constexpr std::uint32_t kLiteral = kTextKind, kNumber = 9 * kKinds + kTextKind;

struct Token {
    std::uint32_t slot;
    std::uint64_t hash;
};

// Requests one after the other, each of which makes one call.
struct Rows {
    std::vector<std::int32_t> parent_cls, child_cls;
    std::vector<Time> arrive, depart, begin;
    std::vector<std::int64_t> said_offset{0}, asked_offset{0};
    std::vector<std::uint32_t> said_slot, asked_slot;
    std::vector<std::uint64_t> said_hash, asked_hash;

    void request(std::int32_t cls, std::vector<Token> says, std::vector<Token> call_says, Time late = 0,
                 std::int32_t call_cls = 0) {
        const Time now = 10'000'000 * static_cast<Time>(arrive.size());
        parent_cls.push_back(cls);
        arrive.push_back(now);
        depart.push_back(now + 1'000'000);
        child_cls.push_back(call_cls);
        begin.push_back(now + 500'000 + late);
        for (const auto& token : says) {
            said_slot.push_back(token.slot);
            said_hash.push_back(token.hash);
        }
        for (const auto& token : call_says) {
            asked_slot.push_back(token.slot);
            asked_hash.push_back(token.hash);
        }
        said_offset.push_back(static_cast<std::int64_t>(said_slot.size()));
        asked_offset.push_back(static_cast<std::int64_t>(asked_slot.size()));
    }
    Parents parents() const {
        Parents out;
        out.cls = parent_cls;
        out.arrive = arrive;
        out.depart = depart;
        out.tokens = {said_offset, said_slot, said_hash};
        out.n_classes = 16;
        return out;
    }
    Children children() const {
        Children out;
        out.cls = child_cls;
        out.begin = begin;
        out.n_classes = 4;
        out.tokens = {asked_offset, asked_slot, asked_hash};
        return out;
    }
};

std::vector<std::int32_t> classes(PathValues& values, const Rows& rows) {
    Parents parents = rows.parents();
    values.apply(parents);
    return {parents.cls.begin(), parents.cls.end()};
}

void joins_what_differs_in_a_named_word() {
    Rows rows;
    rows.request(7, {}, {});
    for (std::int32_t cls = 1; cls < 4; ++cls) {
        const auto word = static_cast<std::uint64_t>(101 + 2 * cls);
        rows.request(cls, {{kNumber, 42}, {kTag, word}}, {{kLiteral, word}});
    }
    PathValues values(kShared);
    values.find(rows.parents(), rows.children());
    expect(classes(values, rows) == (std::vector<std::int32_t>{7, 1, 1, 1}), "named words are one class");
    // Those of the shared class that have one, and no others.
    Rows crowded;
    crowded.request(kShared, {{kTag, 801}}, {});
    crowded.request(kShared, {{kNumber, 5}}, {});
    expect(classes(values, crowded) == (std::vector<std::int32_t>{1, kShared}),
           "row by row, where classes share one");
    // Another word in a later stretch; what else is said stays, and so does the word.
    Rows later;
    later.request(5, {{kNumber, 43}, {kTag, 900}}, {});
    Parents parents = later.parents();
    values.apply(parents);
    expect(parents.cls.size() == 1 && parents.cls[0] == 1, "a word that comes later, too");
    expect(parents.tokens.hash.size() == 2 && parents.tokens.hash[1] == 900, "and it is a token");
}

void leaves_names_alone() {
    Rows rows;  // that are named by nobody, by another request, and too few
    for (std::int32_t cls = 1; cls < 4; ++cls)
        rows.request(cls, {{kTag, static_cast<std::uint64_t>(101 + 2 * cls)}}, {{kLiteral, 7}});
    for (std::int32_t cls = 4; cls < 7; ++cls) {
        const auto word = static_cast<std::uint64_t>(101 + 2 * cls);
        rows.request(cls, {{kShelf, word}}, {{kLiteral, word}}, 5'000'000);
    }
    for (std::int32_t cls = 7; cls < 9; ++cls) {
        const auto word = static_cast<std::uint64_t>(101 + 2 * cls);
        rows.request(cls, {{kTag + kKinds * 8, word}}, {{kLiteral, word}});
    }
    PathValues values(kShared);
    values.find(rows.parents(), rows.children());
    Parents parents = rows.parents();
    values.apply(parents);
    expect(std::vector<std::int32_t>(parents.cls.begin(), parents.cls.end()) == rows.parent_cls,
           "names are classes of their own");
    expect(parents.tokens.hash.empty(), "and no tokens");
    expect(parents.tokens.offset.size() == rows.parent_cls.size() + 1, "of any row");
}

void leaves_what_makes_other_calls_alone() {
    for (const bool other : {false, true}) {
        Rows rows;
        for (std::int32_t i = 0; i < 30; ++i) {
            const std::int32_t cls = i % 3;
            const auto word = static_cast<std::uint64_t>(101 + 2 * cls);
            rows.request(cls, {{kTag, word}}, {{kLiteral, word}}, 0, other ? cls : i % 4);
        }
        PathValues values(kShared);
        values.find(rows.parents(), rows.children());
        expect((classes(values, rows) == rows.parent_cls) == other,
               "words with calls of their own are names");
    }
}

void joins_across_two_places() {
    Rows rows;
    std::int32_t cls = 0;
    for (std::uint64_t shelf = 1; shelf < 7; shelf += 2) {
        for (std::uint64_t tag = 11; tag < 17; tag += 2) {
            // By the slots of what stands around them: "/{*}/tag" for each tag, "/shelf/{*}" for each shelf.
            const Token first{kShelf + kKinds * static_cast<std::uint32_t>(tag), shelf};
            const Token second{kTag + kKinds * 64 * static_cast<std::uint32_t>(shelf), tag};
            rows.request(cls++, {first, second}, {{kLiteral, shelf}, {kLiteral, tag}});
        }
    }
    PathValues values(kShared);
    values.find(rows.parents(), rows.children());
    expect(classes(values, rows) == std::vector<std::int32_t>(9, 0), "two values in one path");
}

}  // namespace

int main() {
    joins_what_differs_in_a_named_word();
    leaves_names_alone();
    leaves_what_makes_other_calls_alone();
    joins_across_two_places();
    return tapscope::test::failures > 0;
}
