// Sequoia 2 to 4 (and the object streams of C-JDBC 1.x): messages by whose turn it is, and by Sequoia's markers.
// Experimental: written from descriptions, never seen on a wire; everything is flagged inferred.
//
//   controller  .. answer | 1F A1 50 1F                          the prompt for the next command: it ends an answer
//   client      00 B0 15 CA | int code | arguments               codes as in C-JDBC, with more of them
//   login       int version | STR database | STR user | STR password, then several turns without markers
#include <algorithm>

#include "bytes.hpp"
#include "dissect/cjdbc_state.hpp"

namespace tapscope {

using namespace cjdbc;

namespace {

constexpr CommandInfo kStatements[] = {
    {0, "StatementExecuteQuery", layout::kSequoiaStatement, Reply::none},
    {1, "StatementExecuteUpdate", layout::kSequoiaStatement, Reply::none},
    {2, "StatementExecuteUpdateWithKeys", layout::kSequoiaStatement, Reply::none},
    {3, "CallableStatementExecuteQuery", layout::kSequoiaStatement, Reply::none},
    {4, "CallableStatementExecuteUpdate", layout::kSequoiaStatement, Reply::none},
    {5, "StatementExecute", layout::kSequoiaStatement, Reply::none},
    {6, "CallableStatementExecute", layout::kSequoiaStatement, Reply::none},
    {7, "CallableStatementExecuteQueryWithParameters", layout::kSequoiaStatement, Reply::none},
    {8, "CallableStatementExecuteUpdateWithParameters", layout::kSequoiaStatement, Reply::none},
    {9, "CallableStatementExecuteWithParameters", layout::kSequoiaStatement, Reply::none},
};
constexpr CommandInfo kOther = {255, "(other command)", "", Reply::none};

bool may_be_marker(Bytes bytes) noexcept {
    constexpr std::uint8_t marker[] = {0x00, 0xB0, 0x15, 0xCA};
    return std::equal(bytes.begin(), bytes.end(), marker);
}

const CommandInfo* sequoia_command(std::uint32_t code) noexcept {
    if (code < std::size(kStatements)) return &kStatements[code];
    const CommandInfo* command = code >= 20 ? find_command(code) : nullptr;
    return command != nullptr ? command : &kOther;
}

}  // namespace

std::uint64_t CjdbcDissector::sequoia(Direction direction, Bytes bytes, Recorder& recorder) {
    State& st = *state_;
    Side& side = st.side(direction);
    const bool objects = st.mode == State::Mode::object_stream;
    const std::uint32_t flags =
        objects ? message_flag::inferred | message_flag::opaque : message_flag::inferred;
    if (direction == Direction::to_client) {
        if (side.where == Side::Where::between || side.where == Side::Where::lost) {
            controller_speaks(recorder);
            side.message = recorder.begin(direction, MessageKind::response, 0);
            recorder.add_flags(side.message, flags);
            side.where = Side::Where::blind;
            st.prompt = 0;
        }
        if (objects) return bytes.size();
        for (const std::uint8_t byte : bytes.last(std::min<std::size_t>(bytes.size(), 4)))
            st.prompt = st.prompt << 8 | byte;
        if (st.prompt == kSequoiaPrompt) {
            recorder.end(side.message, bytes.size());
            side.where = Side::Where::between;
        }
        return bytes.size();
    }

    std::uint64_t pos = 0;
    if (side.where == Side::Where::between || side.where == Side::Where::lost) {
        const bool marked = !objects && bytes.size() >= 4 && load_be32(bytes.data()) == kSequoiaCommand;
        const bool partial = marked ? bytes.size() < 8 : bytes.size() < 4 && may_be_marker(bytes);
        if (!objects && side.where == Side::Where::between && partial && st.command != nullptr) return 0;
        client_speaks(recorder);
        side.message = recorder.begin(direction, MessageKind::request, 0);
        recorder.add_flags(side.message, flags);
        side.text = {};
        side.repeat = 0;
        side.where = Side::Where::blind;
        st.command_class = kNoClass;
        if (marked && bytes.size() >= 8) {
            st.command = sequoia_command(load_be32(bytes.data() + 4));
            side.op = st.command->arguments[0] == 'q' ? st.command->arguments : "";
            pos = 8;
            side.where = *side.op != 0 ? Side::Where::inside : Side::Where::blind;
            if (*side.op == 0) set_class(st.command->name, recorder);
        } else {
            side.op = "";
            set_class(objects ? "(object stream)" : "LOGIN", recorder);
        }
    }
    if (side.where == Side::Where::inside) {
        const Run run = fields(side, bytes, pos, recorder);
        if (run == Run::more) return pos;
        if (run != Run::done) recorder.count("cjdbc.unreadable_command");
        side.where = Side::Where::blind;
    }
    return std::max<std::uint64_t>(pos, bytes.size());
}

}  // namespace tapscope
