// Statements that were prepared before the capture began, or whose text was lost. Each Bind says how many values there
// are, each answer what was done, and mostly which columns it has:
//   EXECUTE (text unseen, 2 parameters): SELECT id, title
#include <algorithm>
#include <string>

#include "dissect/postgres.hpp"
#include "dissect/postgres_session.hpp"
#include "dissect/postgres_wire.hpp"
#include "evidence.hpp"

namespace tapscope {

using namespace postgres;

namespace {

constexpr std::size_t kLongestNames = 240;  // bytes of the names of columns; then "..."

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
void PostgresDissector::begin_telling(Recorder& recorder) {
    Session& session = *session_;
    session.told.clear();
    session.told_columns = 0;
    const Statement* const statement = session.statements.get(session.answered.statement);
    session.telling = statement != nullptr && statement->execute_class < 0 &&
                      session.answered.kind == UnitKind::execute && !recorder.pairing_in_doubt();
}

// What is named by the server: an expression is "?column?", or called like its function.
void PostgresDissector::tell_column(std::string_view name) {
    std::string& out = session_->told;
    if (out.size() > kLongestNames) return;
    out += out.empty() ? " " : ", ";
    for (const char c : name) out += static_cast<unsigned char>(c) < ' ' || c == 0x7F ? '?' : c;
    if (out.size() > kLongestNames) out += "...";
}

// The answer is over: the class of its request, and of all executions of the statement to come. A SELECT that found
// nothing, and whose columns the client knows already, leaves it to the next answer.
void PostgresDissector::tell_statement(std::string_view tag, Recorder& recorder) {
    Session& session = *session_;
    session.telling = false;
    Statement* const statement = session.statements.get(session.answered.statement);
    const std::string_view verb = verb_of(tag);
    if (statement == nullptr || verb.empty()) return;
    if (verb == "SELECT" && session.told_columns == 0) return;
    std::string& text = recorder.scratch.class_text;
    text.assign("EXECUTE (text unseen, ").append(std::to_string(statement->bound));
    text.append(statement->bound == 1 ? " parameter): " : " parameters): ").append(verb);
    if (!session.told.empty()) {
        text.append(session.told);
    } else if (session.told_columns > 0) {
        text.append(" of ").append(std::to_string(session.told_columns));
        text.append(session.told_columns == 1 ? " column" : " columns");
    }
    statement->execute_class = recorder.classes.id(protocol, text);
    if (const MessageRef request = recorder.answers(answer_); request != kNoMessage)
        recorder.set_class(request, statement->execute_class);
}

}  // namespace tapscope
