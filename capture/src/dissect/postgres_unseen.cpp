// Statements that were prepared before the capture began, or whose text was lost. Each Bind says how many values there
// are, each answer what was done, and mostly which columns it has:
//   EXECUTE (text unseen, 2 parameters): SELECT id, title
#include <string>

#include "dissect/postgres.hpp"
#include "dissect/postgres_session.hpp"
#include "dissect/postgres_wire.hpp"
#include "dissect/unseen_statement.hpp"
#include "evidence.hpp"

namespace tapscope {

using namespace postgres;

namespace {

// "INSERT 0 1", "SELECT 5", "CREATE TABLE": without the numbers.
std::string_view verb_of(std::string_view tag) noexcept {
    std::size_t size = 0;
    while (size < tag.size() && ((tag[size] >= 'A' && tag[size] <= 'Z') || tag[size] == ' ')) ++size;
    while (size > 0 && tag[size - 1] == ' ') --size;
    return tag.substr(0, size);
}

}  // namespace

std::int32_t PostgresDissector::adopt(std::string_view name, Recorder& recorder) {
    bool evicted = false;
    const std::int32_t slot = session_->statements.define(name, evicted);
    if (evicted) recorder.count("postgres.statement_evicted");
    recorder.count("postgres.statement_text_unseen");
    return slot;
}

// An answer begins: is it one that tells what its statement is?
void PostgresDissector::begin_naming(Recorder& recorder) {
    Session& session = *session_;
    session.column_names.clear();
    session.column_count = 0;
    const Statement* const statement = session.statements.get(session.answered.statement);
    session.naming = statement != nullptr && statement->execute_class < 0 &&
                     session.answered.kind == UnitKind::execute && !recorder.pairing_in_doubt();
}

// What is named by the server: an expression is "?column?", or called like its function.
void PostgresDissector::name_column(std::string_view name) {
    std::string& out = session_->column_names;
    if (out.size() > unseen::kLongest) return;
    out += out.empty() ? " " : ", ";
    unseen::append_name(out, name);
    if (out.size() > unseen::kLongest) out += "...";
}

// The answer is over: the class of its request, and of all executions of the statement to come. A SELECT that found
// nothing, and whose columns the client knows already, leaves it to the next answer.
void PostgresDissector::finish_naming(std::string_view tag, Recorder& recorder) {
    Session& session = *session_;
    session.naming = false;
    Statement* const statement = session.statements.get(session.answered.statement);
    const std::string_view verb = verb_of(tag);
    if (statement == nullptr || verb.empty()) return;
    if (verb == "SELECT" && session.column_count == 0) return;
    std::string& text = recorder.scratch.class_text;
    unseen::begin_class(text, statement->bound);
    text.append(verb);
    if (!session.column_names.empty()) {
        text.append(session.column_names);
    } else if (session.column_count > 0) {
        unseen::append_count(text += " of ", session.column_count, "column");
    }
    statement->execute_class = recorder.classes.id(protocol, text);
    if (const MessageRef request = recorder.answers(answer_); request != kNoMessage)
        recorder.set_class(request, statement->execute_class);
}

}  // namespace tapscope
