// Answers of C-JDBC: what the first tag says, and the rows of result sets.
#include <charconv>

#include "dissect/cjdbc_input.hpp"
#include "dissect/cjdbc_state.hpp"
#include "dissect/sql_evidence.hpp"
#include "evidence.hpp"

namespace tapscope {

using namespace cjdbc;

namespace {

std::size_t fixed_size(Type type) noexcept {
    switch (type) {
        case Type::boolean:
            return 1;
        case Type::integer:
        case Type::float_:
        case Type::time:
        case Type::bytes:  // its length
            return 4;
        case Type::long_:
        case Type::double_:
        case Type::date:
            return 8;
        case Type::timestamp:
            return 12;
        default:
            return 0;
    }
}

}  // namespace

CjdbcDissector::Run CjdbcDissector::answer_tag(Side& side, Recorder& recorder) {
    State& st = *state_;
    const std::string_view tag = side.text.value;
    if (tag == "T-Exception") {
        recorder.add_flags(side.message, message_flag::error);
        st.depth = 0;
        side.op = layout::kException;
        return Run::done;
    }
    if (tag != "OK" && tag != "T-ResultSet" && tag != "null ResultSet") return Run::desynchronised;
    recorder.set_status(side.message, 0);
    if (tag == "null ResultSet") {
        side.op = "";
        return Run::done;
    }
    st.rows = State::kAnyRows;
    st.more = false;
    st.tokens = st.rows_shown = 0;
    if (tag == "T-ResultSet") {
        side.op = layout::kColumns;
        return Run::done;
    }
    if (st.answered == nullptr) {  // what follows depends on the command
        recorder.add_flags(side.message, message_flag::inferred);
        side.where = Side::Where::blind;
        return Run::blind;
    }
    switch (st.answered->reply) {
        case Reply::boolean:
            side.op = "b";
            return Run::done;
        case Reply::integer:
            side.op = "i";
            return Run::done;
        case Reply::transaction:
            side.op = "T";
            return Run::done;
        case Reply::text:
            side.op = "s";
            return Run::done;
        case Reply::value:
            st.columns = 1;
            st.types.clear();
            st.nulls.assign(1, false);
            st.column = 0;
            side.op = layout::kOneValue;
            return Run::done;
        case Reply::rows: {
            const State::OpenCursor* cursor = st.find_cursor(st.cursor_asked);
            if (cursor == nullptr) {
                recorder.count("cjdbc.cursor_not_seen");
                recorder.add_flags(side.message, message_flag::inferred);
                side.where = Side::Where::blind;
                return Run::blind;
            }
            st.types = cursor->types;
            st.columns = static_cast<std::uint32_t>(st.types.size());
            side.op = layout::kRows;
            return Run::done;
        }
        default:
            return Run::desynchronised;
    }
}

CjdbcDissector::Run CjdbcDissector::nulls(Side& side, Input& in) {
    State& st = *state_;
    while (st.nulls.size() < st.columns) {
        if (!in.have(1)) return Run::more;
        if (*in.here() > 1) return Run::desynchronised;
        st.nulls.push_back(*in.here() == 1);
        in.pass(1);
    }
    ++side.op;
    return Run::done;
}

void CjdbcDissector::result_token(std::string_view value, Recorder& recorder) {
    State& st = *state_;
    if (value.empty() || value.size() > kMaxResultText) return;
    ++st.tokens;
    recorder.token(st.side(Direction::to_client).message, st.column, TokenKind::result, as_bytes(value));
}

// The values of a row that are not null, from `column` on.
CjdbcDissector::Run CjdbcDissector::values(Side& side, Input& in, Recorder& recorder) {
    State& st = *state_;
    for (; st.column < st.columns; ++st.column) {
        if (st.nulls[st.column]) continue;
        const Type type = st.types[st.column];
        const bool wanted = wants_result(st.rows_shown, st.column, st.tokens);
        if (type == Type::text || type == Type::decimal) {
            if (side.text.phase == Text::Phase::start)
                side.text.limit = wanted && type == Type::text ? kMaxResultText + 1 : 0;
            const Run run = text(side.text, in);
            if (run != Run::done) return run;
            if (!side.text.cut && side.text.limit > 0) result_token(side.text.value, recorder);
            continue;
        }
        const std::size_t size = fixed_size(type);
        if (!in.have(size)) return Run::more;
        if (type == Type::bytes) {
            const std::uint32_t n = load_be32(in.here());
            if (n > kMaxUnits) return Run::desynchronised;
            in.pass(4 + std::uint64_t{n});
            continue;
        }
        if (type == Type::boolean && *in.here() > 1) return Run::desynchronised;
        if (wanted && (type == Type::integer || type == Type::long_)) {
            const std::int64_t value = type == Type::integer
                                           ? static_cast<std::int32_t>(load_be32(in.here()))
                                           : static_cast<std::int64_t>(load_be64(in.here()));
            char digits[24];
            const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
            result_token({digits, static_cast<std::size_t>(end - digits)}, recorder);
        }
        in.pass(size);
    }
    ++side.op;
    return Run::done;
}

}  // namespace tapscope
