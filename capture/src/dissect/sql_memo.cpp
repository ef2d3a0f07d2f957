#include "sql_memo.hpp"

#include <cstring>

#include "../hash.hpp"
#include "sql_lex.hpp"

namespace tapscope {

using namespace sql;

namespace {

std::uint64_t prefix_hash(std::string_view text, SqlStrings strings) noexcept {  // of at least 16 bytes
    const auto* const p = reinterpret_cast<const std::uint8_t*>(text.data());
    return mix64(load_le64(p), load_le64(p + 8)) ^ strings.key();
}

bool all_digits(std::string_view text) noexcept {
    for (const char c : text)
        if (!is(c, kDigit)) return false;
    return !text.empty();
}

}  // namespace

bool SqlMemo::matches(const Statement& known, std::string_view text, SqlStrings strings,
                      std::vector<SqlLiteral>& literals) {
    const char* p = text.data();
    const char* const end = p + text.size();
    const char* piece = known.text.data();
    const auto same = [&](const char* to) {
        const auto size = static_cast<std::size_t>(to - piece);
        if (static_cast<std::size_t>(end - p) < size || std::memcmp(p, piece, size) != 0) return false;
        p += size;
        return true;
    };
    for (const Statement::Gap& gap : known.gaps) {
        if (!same(known.text.data() + gap.from)) return false;
        piece = known.text.data() + gap.to;
        const char* const from = p;
        if (gap.quote == 0) {
            while (p < end && is(*p, kDigit)) ++p;
            if (p == from) return false;
            literals.push_back(
                {{from, static_cast<std::size_t>(p - from)}, LiteralKind::digits, 0, gap.backslashes});
        } else {
            if (p == end || *p != gap.quote) return false;
            bool escapes = false;
            const char* const close = closing_quote(p + 1, end, gap.quote, strings.backslash,
                                                    strings.two_byte != TwoByte::no, escapes);
            if (close == nullptr || close >= end) return false;
            literals.push_back({{p + 1, static_cast<std::size_t>(close - p - 1)},
                                escapes ? LiteralKind::escaped : LiteralKind::string,
                                gap.quote,
                                gap.backslashes});
            p = close + 1;
        }
    }
    return same(known.text.data() + known.text.size()) && p == end;
}

SqlMemo::Statement* SqlMemo::find(std::string_view text, SqlStrings strings,
                                  std::vector<SqlLiteral>& literals) const {
    if (text.size() <= kPrefix) return nullptr;
    const std::uint64_t prefix = prefix_hash(text, strings);
    for (const auto& known : sets_[prefix % kSets].ways) {
        if (known == nullptr) break;
        if (known->prefix != prefix) continue;
        if (matches(*known, text, strings, literals)) return known.get();
        literals.clear();
    }
    return nullptr;
}

void SqlMemo::note(std::string_view text, SqlStrings strings, const std::vector<SqlLiteral>& literals,
                   std::string_view fingerprint, std::uint32_t placeholders) {
    if (text.size() <= kPrefix || text.size() > kMostText || literals.size() > kMostGaps) return;
    const std::uint64_t prefix = prefix_hash(text, strings);
    Set& set = sets_[prefix % kSets];
    std::unique_ptr<Statement>& way = set.ways[set.next];
    if (way != nullptr && ++set.passed < kPatience) return;

    std::vector<Statement::Gap> gaps;
    std::size_t done = kPrefix;
    for (const SqlLiteral& literal : literals) {
        auto from = static_cast<std::size_t>(literal.text.data() - text.data());
        std::size_t to = from + literal.text.size();
        const bool string = literal.kind == LiteralKind::string || literal.kind == LiteralKind::escaped;
        if (string) {
            if (literal.quote == 0 || from == 0 || to == text.size() || text[to] != literal.quote) return;
            --from;
            ++to;
        } else if (literal.kind != LiteralKind::number || !all_digits(literal.text)) {
            return;
        }
        if (from < done || (string && is(text[from - 1], kIdent))) return;
        done = to;
        gaps.push_back({static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to),
                        string ? literal.quote : '\0', literal.backslashes});
    }
    if (way == nullptr) way = std::make_unique<Statement>();
    way->prefix = prefix;
    way->text = text;
    way->gaps = std::move(gaps);
    way->fingerprint = fingerprint;
    way->placeholders = placeholders;
    way->class_id = -1;
    set.passed = 0;
    set.next = (set.next + 1) % kWays;
}

}  // namespace tapscope
