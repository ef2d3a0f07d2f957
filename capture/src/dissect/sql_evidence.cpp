#include "dissect/sql_evidence.hpp"

#include <string>

#include "evidence.hpp"

namespace tapscope {

const SqlFingerprinter& statement_evidence(Recorder& recorder, MessageRef ref, std::string_view text,
                                           bool cut, SqlDialect dialect, SqlStrings strings,
                                           std::uint32_t& first) {
    SqlFingerprinter& sql = recorder.sql.of(dialect);
    if (text.size() > kMaxStatementText) {
        text = text.substr(0, kMaxStatementText);
        cut = true;
    }
    sql.scan(text, strings, cut);
    if (sql.doubtful()) recorder.count("sql.quote_in_doubt");
    bool has_id = false;
    for (const SqlLiteral& literal : sql.literals()) {
        if (first >= kMaxParameterTokens) break;
        bool is_number = false;
        const std::string_view value = canonical(literal, recorder.scratch.value, is_number);
        if (value.size() <= kMaxParameterText) {
            const bool id = value.size() >= 16 && looks_like_id(value);
            has_id |= id;
            recorder.token(ref, first, is_number ? TokenKind::number : TokenKind::text, as_bytes(value), id);
        }
        ++first;
    }
    if (sql.literal_count() > sql.literals().size())
        recorder.count("sql.literals_beyond_bound", sql.literal_count() - sql.literals().size());
    // The whole text carries whatever id one of its literals does.
    if (!cut) recorder.token(ref, 0, TokenKind::statement, as_bytes(sql.statement()), has_id);
    if (sql.fingerprint() == kSignOfLife) recorder.add_flags(ref, message_flag::setup);
    return sql;
}

void statement_class(Recorder& recorder, MessageRef ref, Protocol protocol, const SqlFingerprinter& sql) {
    std::int32_t* const known = sql.class_id();
    if (known != nullptr && *known >= 0) [[likely]]
        return recorder.set_class(ref, *known);
    const std::uint64_t refused = recorder.classes.refused();
    const std::int32_t id = recorder.classes.id(protocol, sql.fingerprint());
    // A text that found no place is counted each time.
    if (known != nullptr && recorder.classes.refused() == refused) *known = id;
    recorder.set_class(ref, id);
}

void parameter_token(Recorder& recorder, MessageRef ref, std::uint32_t slot, bool number,
                     std::string_view value) {
    if (value.size() > kMaxParameterText) return;
    if (!number) return recorder.token(ref, slot, TokenKind::text, as_bytes(value));
    std::string& text = recorder.scratch.value;
    text.clear();
    append_canonical_number(value, text);
    recorder.token(ref, slot, TokenKind::number, as_bytes(text));
}

}  // namespace tapscope
