// Statements that were prepared before the capture began: of a pool's connections all are. Their text is not on the wire
// any more, but each execution says how many values are bound, and each answer what its columns are:
//   EXECUTE (text unseen, 2 parameters): stories(id, title), users(nick)
// So executions of one statement have one class on all connections, and their values are evidence.
#include <optional>
#include <string>

#include "mysql.hpp"
#include "mysql_values.hpp"
#include "unseen_statement.hpp"

namespace tapscope {

using namespace mysql;

namespace {

constexpr std::uint32_t kMostParameters = 256;
// Bytes of an execution before its NULL bits: command, statement, flags, iterations.
constexpr std::size_t kBeforeNulls = 1 + 4 + 1 + 4;

// Whether the rest of an execution is this many parameters with their types, and nothing else.
bool is_filled_by(Bytes payload, std::uint32_t params, const Statement& statement) {
    Reader reader(payload.subspan(kBeforeNulls));
    const Bytes nulls = reader.take((params + 7) / 8);
    if (reader.u8() != 1 || !reader.ok()) return false;
    if (params % 8 != 0 && nulls.back() >> params % 8 != 0) return false;
    const Bytes types = reader.take(std::uint64_t{params} * 2);
    if (!reader.ok()) return false;
    for (std::uint32_t i = 0; i < params; ++i) {
        if (!is_type(types[2 * i]) || (types[2 * i + 1] & 0x7F) != 0) return false;
    }
    for (std::uint32_t i = 0; i < params && reader.ok(); ++i) {
        if ((nulls[i / 8] >> (i % 8) & 1) == 0 && !statement.was_long(i)) {
            skip_binary_value(reader, types[2 * i]);
        }
    }
    return reader.ok() && reader.left() == 0;
}

// The one number of parameters that fills the payload; none where several do, or where no types are sent.
std::optional<std::uint32_t> parameters_of(Bytes payload, const Statement& statement) {
    if (payload.size() == kBeforeNulls) return 0;
    std::optional<std::uint32_t> found;
    for (std::uint32_t params = 1; params <= kMostParameters; ++params) {
        const std::size_t flag = kBeforeNulls + (params + 7) / 8;
        if (flag + 2 * std::size_t{params} >= payload.size()) break;
        if (payload[flag] != 1 || !is_filled_by(payload, params, statement)) continue;
        if (found) return std::nullopt;
        found = params;
    }
    return found;
}

}  // namespace

// A slot for a statement that is executed and was never seen to be prepared; none for the one prepared last.
std::int32_t MysqlDissector::adopt(std::uint32_t id, Recorder& recorder) {
    if (id == kLastPrepared) return StatementTable::kNone;
    bool evicted = false;
    const std::int32_t slot = statements_.reserve(evicted);
    if (evicted) recorder.count("mysql.statement_evicted");
    recorder.count("mysql.statement_text_unseen");
    Statement& statement = statements_.at(slot);
    statement.execute_class = recorder.classes.id(protocol, unseen::kExecution);
    statement.text = Statement::Text::unseen;
    statement.params = 0;
    statement.params_known = false;
    statements_.bind(slot, id);
    return slot;
}

// Without query attributes, which count themselves. False where it cannot be told.
bool MysqlDissector::find_parameters(Statement& statement, Bytes payload) {
    const auto params = parameters_of(payload, statement);
    if (!params) return false;
    statement.params = static_cast<std::uint16_t>(*params);
    statement.params_known = true;
    return true;
}

// An answer to an execution begins: is it one that tells what its statement is?
void MysqlDissector::begin_naming(Recorder& recorder) {
    const Statement* const statement = answered_statement();
    if (statement == nullptr || statement->text != Statement::Text::unseen || recorder.pairing_in_doubt())
        return;
    name_ = std::make_unique<Naming>();
}

// A column definition: catalog, schema, table, original table, name, original name. Expressions have no original name;
// theirs may be the expression itself, with values in it.
void MysqlDissector::name_column(Bytes payload) {
    if (name_->text.size() > unseen::kLongest) return;
    Reader reader(payload);
    reader.lenenc_string();
    reader.lenenc_string();
    reader.lenenc_string();
    const Bytes table = reader.lenenc_string();
    reader.lenenc_string();
    const Bytes column = reader.lenenc_string();
    const bool known = reader.ok() && !column.empty();
    const std::string_view of = known ? as_text(table) : std::string_view{};
    std::string& text = name_->text;
    if (!text.empty() && of == name_->table) {
        text += ", ";
    } else {
        if (!name_->table.empty()) text += ')';
        if (!text.empty()) text += ", ";
        unseen::append_name(text, of);
        if (!of.empty()) text += '(';
        name_->table = of;
    }
    if (known) {
        unseen::append_name(text, as_text(column));
    } else {
        text += '?';
    }
}

// The first result of the answer is known: the class of its request, and of all executions of the statement to come.
void MysqlDissector::finish_naming(bool rows, Recorder& recorder) {
    const auto naming = std::move(name_);
    Statement* const statement = answered_statement();
    if (statement == nullptr) return;
    std::string& text = recorder.scratch.class_text;
    unseen::begin_class(text, statement->params_known ? std::optional(statement->params) : std::nullopt);
    if (!rows) {
        text += "no rows";
    } else if (naming->text.empty()) {  // the client keeps the definitions
        unseen::append_count(text, columns_, "column");
    } else {
        text += naming->text;
        if (naming->text.size() > unseen::kLongest) text += "...";
        if (!naming->table.empty()) text += ')';
    }
    statement->text = Statement::Text::told;
    statement->execute_class = recorder.classes.id(protocol, text);
    if (const MessageRef request = recorder.answers(answer_row_); request != kNoMessage)
        recorder.set_class(request, statement->execute_class);
}

}  // namespace tapscope
