#include "dissect/sql_evidence.hpp"

#include <string>

#include "evidence.hpp"

namespace tapscope {

namespace {

// One per thread: its buffers keep their capacity from one statement to the next.
struct Scratch {
    SqlFingerprinter mysql{SqlDialect::mysql};
    SqlFingerprinter postgres{SqlDialect::postgres};
    std::string value;
    SqlFingerprinter& of(SqlDialect dialect) noexcept {
        return dialect == SqlDialect::mysql ? mysql : postgres;
    }
};

Scratch& scratch() {
    thread_local Scratch instance;
    return instance;
}

}  // namespace

std::string_view statement_evidence(Recorder& recorder, MessageRef ref, std::string_view text, bool cut,
                                    SqlDialect dialect, std::uint32_t& first) {
    Scratch& space = scratch();
    SqlFingerprinter& sql = space.of(dialect);
    if (text.size() > kMaxStatementText) {
        text = text.substr(0, kMaxStatementText);
        cut = true;
    }
    sql.scan(text, cut);
    bool has_id = false;
    for (const SqlLiteral& literal : sql.literals()) {
        if (first >= kMaxParameterTokens) break;
        bool is_number = false;
        const std::string_view value = canonical(literal, space.value, is_number);
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
    return sql.fingerprint();
}

std::string_view fingerprint_of(std::string_view text, bool cut, SqlDialect dialect,
                                std::uint32_t* placeholders) {
    SqlFingerprinter& sql = scratch().of(dialect);
    sql.scan(text.substr(0, kMaxStatementText), cut || text.size() > kMaxStatementText);
    if (placeholders != nullptr) *placeholders = sql.placeholders();
    return sql.fingerprint();
}

void parameter_token(Recorder& recorder, MessageRef ref, std::uint32_t slot, bool number,
                     std::string_view value) {
    if (value.size() > kMaxParameterText) return;
    if (!number) return recorder.token(ref, slot, TokenKind::text, as_bytes(value));
    std::string& text = scratch().value;
    text.clear();
    append_canonical_number(value, text);
    recorder.token(ref, slot, TokenKind::number, as_bytes(text));
}

}  // namespace tapscope
