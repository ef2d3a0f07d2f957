// Executions of prepared statements: the values that are bound to them.
#include "mysql.hpp"
#include "mysql_compression.hpp"
#include "mysql_values.hpp"
#include "unseen_statement.hpp"

namespace tapscope {

using namespace mysql;

namespace {

constexpr std::size_t kMaxRequestTokens = 256;  // of one execution

}  // namespace

// The statement of an execution, whose class the request gets; nullptr where it is not known which one it is.
Statement* MysqlDissector::executed(std::uint32_t id, Recorder& recorder) {
    std::int32_t slot = statement_slot(id);
    if (slot == StatementTable::kNone) slot = adopt(id, recorder);
    if (slot == StatementTable::kNone) {
        recorder.set_class(request_, protocol, unseen::kExecution);
        return nullptr;
    }
    Statement& statement = statements_.at(slot);
    recorder.set_class(request_, statement.execute_class);
    remember(slot);
    return &statement;
}

void MysqlDissector::execute(Bytes payload, Recorder& recorder) {
    Reader reader(payload.subspan(1));
    const std::uint32_t id = reader.u32();
    const std::uint8_t flags = reader.u8();
    reader.u32();  // iterations, always 1
    Statement* const known = executed(id, recorder);
    if (known == nullptr) return;
    Statement& statement = *known;

    constexpr std::uint8_t kParameterCountAvailable = 8;
    const bool counted = (flags & kParameterCountAvailable) != 0;
    // Without the login the flag tells: only with query attributes do clients set it.
    const bool attributes = (caps_ & client::query_attributes) != 0 || (inferred_ && caps_ == 0 && counted);
    if (!attributes && !statement.params_known && !find_parameters(statement, payload)) return;
    std::uint64_t params = statement.params;
    if (params == 0 && !(attributes && counted)) return;
    if (attributes) params = reader.lenenc();
    const Bytes nulls = reader.take((params + 7) / 8);
    const bool new_types = reader.u8() == 1;
    if (!reader.ok() || params > 0xFFFF) {
        recorder.count("mysql.bad_execute");
        return;
    }
    if (new_types) {
        statement.types.resize(params);
        for (auto& type : statement.types) {
            type = reader.u16();
            if (attributes) reader.lenenc_string();  // name
        }
        statement.types_known = reader.ok();
    }
    if (!statement.types_known || statement.types.size() != params) {
        recorder.count("mysql.parameter_types_unseen");
        statement.forget_long();
        return;
    }
    char buffer[kMaxValueText];
    const std::uint16_t* const types = statement.types.begin();
    for (std::uint32_t i = 0; i < params && i < kMaxRequestTokens; ++i) {
        if ((nulls[i / 8] >> (i % 8) & 1) != 0) continue;
        if (statement.was_long(i)) continue;
        const Value value = read_binary_value(reader, types[i], buffer);
        if (!reader.ok()) break;  // cut at kMaxText
        if (value.kind() == Value::Kind::none || value.text().size() > kMaxTokenText) continue;
        recorder.token(request_, i, value.kind() == Value::Kind::number ? TokenKind::number : TokenKind::text,
                       as_bytes(value.text()));
    }
    statement.forget_long();
}

// MariaDB: u32 statement id, u16 flags (128: types follow), then rows of (indicator, value) per parameter.
void MysqlDissector::bulk_execute(Bytes payload, Recorder& recorder) {
    Reader reader(payload.subspan(1));
    const std::uint32_t id = reader.u32();
    const std::uint16_t flags = reader.u16();
    Statement* const known = executed(id, recorder);
    if (known == nullptr) return;
    Statement& statement = *known;
    const std::size_t params = statement.params;
    if (params == 0) return;
    constexpr std::uint16_t kTypesFollow = 128;
    if ((flags & kTypesFollow) != 0) {
        statement.types.resize(params);
        for (auto& type : statement.types) type = reader.u16();
        statement.types_known = reader.ok();
    }
    if (!statement.types_known || statement.types.size() != params) {
        recorder.count("mysql.parameter_types_unseen");
        return;
    }
    char buffer[kMaxValueText];
    for (std::uint32_t i = 0; i < kMaxRequestTokens && reader.ok() && reader.left() > 0; ++i) {
        if (reader.u8() != 0) continue;  // indicator: NULL, DEFAULT or IGNORE
        const Value value = read_binary_value(reader, statement.types.begin()[i % params], buffer);
        if (!reader.ok() || value.kind() == Value::Kind::none || value.text().size() > kMaxTokenText)
            continue;
        recorder.token(request_, i, value.kind() == Value::Kind::number ? TokenKind::number : TokenKind::text,
                       as_bytes(value.text()));
    }
}

}  // namespace tapscope
