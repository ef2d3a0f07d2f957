// The fields of a C-JDBC message, one at a time, by its layout. Fields that say nothing are passed over by counting.
#include <charconv>

#include "dissect/cjdbc_input.hpp"
#include "dissect/cjdbc_state.hpp"
#include "dissect/sql_evidence.hpp"
#include "evidence.hpp"
#include "hash.hpp"

namespace tapscope {

using namespace cjdbc;

namespace {

constexpr std::size_t kMaxTag = 32;    // bytes of the longest tag and more
constexpr std::size_t kMaxName = 256;  // bytes of a cursor's or savepoint's name

// Bytes of a STR that are wanted, by its field.
std::size_t limit_of(char op) noexcept {
    switch (op) {
        case 'q':
        case 'p':
            return kMaxStatementText;
        case 'n':
        case 'k':
            return kMaxName;
        case 'O':
        case 'H':
        case 'Y':
        case 'r':
        case 'K':
            return kMaxTag;
        default:
            return 0;
    }
}

}  // namespace

CjdbcDissector::Run CjdbcDissector::fields(Side& side, Bytes bytes, std::uint64_t& pos, Recorder& recorder) {
    Input in(bytes, pos);
    while (*side.op != 0) {
        const Run run = field(side, in, recorder);
        if (run != Run::done) return run;
    }
    return Run::done;
}

// Reads the field at `side.op` and moves `op` on.
CjdbcDissector::Run CjdbcDissector::field(Side& side, Input& in, Recorder& recorder) {
    State& st = *state_;
    switch (*side.op) {
        case 'b':
        case '?':
        case '!':
        case '~':
        case 'a':
        case 'M':
        case 'E': {
            if (!in.have(1)) return Run::more;
            if (*in.here() > 1) return Run::desynchronised;
            const bool value = *in.here() == 1;
            in.pass(1);
            return flag(side, value, recorder);
        }
        case 'i':
        case 't':
        case '*':
        case 'C':
        case 'R':
        case 'W':
        case 'F':
        case 'c':
            if (!in.have(4)) return Run::more;
            return number(side, static_cast<std::int32_t>(in.u32()), recorder);
        case 'l':
            if (!in.have(8)) return Run::more;
            in.pass(8);
            ++side.op;
            return Run::done;
        case 'T': {
            if (!in.have(8)) return Run::more;
            char digits[24];
            const auto end =
                std::to_chars(digits, digits + sizeof digits, static_cast<std::int64_t>(in.u64())).ptr;
            recorder.token(side.message, 0, TokenKind::result,
                           as_bytes({digits, static_cast<std::size_t>(end - digits)}), true);
            ++side.op;
            return Run::done;
        }
        case 'V':
            if (in.left() == 0) return Run::more;
            if (*in.here() != 1) {  // no text: the next command, whose answer was not seen
                side.op = "";
                return Run::done;
            }
            begin_login(side.message, recorder);
            ++side.op;
            return Run::done;
        case '@':
            side.op = st.write_kind == kInsert ? side.op + 1 : "";
            return Run::done;
        case '&':
            side.op = st.more ? side.op + 1 : "";
            return Run::done;
        case 'g':
            side.op = --side.left > 0 ? layout::kColumn : layout::kTypes;
            return Run::done;
        case 'f':
            side.op = --side.left > 0 ? layout::kFrame : layout::kBehindFrames;
            return Run::done;
        case 'w':
            ++st.rows_shown;
            side.op = --st.rows_left > 0 ? side.op - 3 : side.op + 1;
            return Run::done;
        case 'u':
            return nulls(side, in);
        case 'v':
            return values(side, in, recorder);
        default:
            return text_field(side, in, recorder);
    }
}

CjdbcDissector::Run CjdbcDissector::flag(Side& side, bool value, Recorder& recorder) {
    State& st = *state_;
    switch (*side.op) {
        case '?':
            side.op += value ? 1 : 2;
            break;
        case '!':
            side.op = value ? side.op + 1 : "";
            break;
        case '~':
            side.op = value ? "" : side.op + 1;
            break;
        case 'a':
            if (!value) recorder.add_flags(side.message, message_flag::error);
            if (value) recorder.set_status(side.message, 0);
            side.op = value ? layout::kLoginAccepted : layout::kLoginRefused;
            break;
        case 'M':
            st.more = value;
            if (!value && st.answered != nullptr && st.answered->reply == Reply::rows)
                st.drop_cursor(st.cursor_asked);  // the controller forgets it
            ++side.op;
            break;
        case 'E':
            if (value) ++st.depth;
            side.op = value ? layout::kCause : layout::kFrames;
            break;
        default:
            ++side.op;
    }
    return Run::done;
}

CjdbcDissector::Run CjdbcDissector::number(Side& side, std::int32_t value, Recorder& recorder) {
    State& st = *state_;
    const auto n = static_cast<std::uint32_t>(value);
    switch (*side.op) {
        case 'i':
            if (side.repeat > 1) {
                --side.repeat;
                return Run::done;
            }
            break;
        case 't':
            if (!is_write_kind(n)) return Run::desynchronised;
            st.write_kind = n;
            break;
        case '*':
            if (n > 0xFFFF) return Run::desynchronised;
            side.repeat = n;
            if (n == 0) ++side.op;
            break;
        case 'C':
            if (n > kMaxColumns) return Run::desynchronised;
            st.columns = side.left = n;
            st.types.clear();
            side.op = n > 0 ? layout::kColumn : layout::kTypes;
            return Run::done;
        case 'R':
            if (value < 0) return Run::desynchronised;
            st.rows = n;
            if (n == 0) ++side.op;  // no type tags
            break;
        case 'W':
            if (value < 0 || (st.rows != State::kAnyRows && st.rows != n)) return Run::desynchronised;
            st.rows_left = n;
            if (n == 0) side.op += 4;
            break;
        case 'F':
            if (n > 0xFFFF) return Run::desynchronised;
            side.left = n;
            side.op = n > 0 ? layout::kFrame : layout::kBehindFrames;
            return Run::done;
        case 'c':
            recorder.set_status(side.message, value);  // that of the outermost exception comes last
            side.op = st.depth > 0 ? layout::kFrames : "";
            if (st.depth > 0) --st.depth;
            return Run::done;
        default:
            break;
    }
    ++side.op;
    return Run::done;
}

// ---- texts ----------------------------------------------------------------------------------------------------------

// Reads on in the STR `text`; the caller begins the next one by Phase::start.
CjdbcDissector::Run CjdbcDissector::text(Text& text, Input& in) const {
    const bool wide = state_->mode == State::Mode::sequoia;  // chunks with a length of four bytes
    for (;;) {
        switch (text.phase) {
            case Text::Phase::start:
                if (!in.have(1)) return Run::more;
                if (*in.here() > 1) return Run::desynchronised;
                text.null = *in.here() == 0;
                text.cut = false;
                text.value.clear();
                in.pass(1);
                if (text.null) return Run::done;
                text.phase = Text::Phase::units;
                break;
            case Text::Phase::units:
                if (!in.have(4)) return Run::more;
                text.units_left = in.u32();
                text.phase = Text::Phase::start;
                if (text.units_left > kMaxUnits) return Run::desynchronised;
                if (text.units_left == 0) return Run::done;
                text.phase = Text::Phase::chunk_size;
                break;
            case Text::Phase::chunk_size: {
                if (!in.have(wide ? 4 : 2)) return Run::more;
                const std::uint32_t units = std::min(text.units_left, kChunkUnits);
                text.chunk_left = wide ? load_be32(in.here()) : load_be16(in.here());
                in.pass(wide ? 4 : 2);
                if (text.chunk_left < units || text.chunk_left > units * 3) {
                    text.phase = Text::Phase::start;
                    return Run::desynchronised;
                }
                text.units_left -= units;
                text.phase = Text::Phase::chunk;
                break;
            }
            case Text::Phase::chunk: {
                const std::size_t room = text.limit - std::min(text.limit, text.value.size());
                const auto n = std::min<std::size_t>(text.chunk_left, in.left());
                const std::size_t kept = std::min(n, room);
                if (kept > 0) text.value.append(reinterpret_cast<const char*>(in.here()), kept);
                if (n > kept || room == 0) {
                    text.cut = true;
                    in.pass(text.chunk_left);
                    text.chunk_left = 0;
                } else {
                    in.pass(n);
                    text.chunk_left -= static_cast<std::uint32_t>(n);
                    if (text.chunk_left > 0) return Run::more;
                }
                text.phase = text.units_left > 0 ? Text::Phase::chunk_size : Text::Phase::start;
                if (text.units_left == 0) return Run::done;
                break;
            }
        }
    }
}

CjdbcDissector::Run CjdbcDissector::text_field(Side& side, Input& in, Recorder& recorder) {
    if (side.text.phase == Text::Phase::start) side.text.limit = limit_of(*side.op);
    const Run run = text(side.text, in);
    return run == Run::done ? text_read(side, recorder) : run;
}

CjdbcDissector::Run CjdbcDissector::text_read(Side& side, Recorder& recorder) {
    State& st = *state_;
    const std::string_view value = side.text.value;
    switch (*side.op) {
        case 's':
            if (side.repeat > 1) {
                --side.repeat;
                return Run::done;
            }
            side.repeat = 0;
            break;
        case 'q':
            statement(side.text.cut, recorder);
            break;
        case 'p':
            parameters(recorder);
            break;
        case 'n':
            if (!side.text.null) named(recorder);
            break;
        case 'O':
            return answer_tag(side, recorder);
        case 'H':
            if (value != "T-Column types") return Run::desynchronised;
            break;
        case 'r':
            if (value != "T-Row") return Run::desynchronised;
            st.nulls.clear();
            st.column = 0;
            break;
        case 'Y': {
            const Type type = type_of(value);
            if (type == Type::unknown) return Run::desynchronised;
            st.types.push_back(type);
            if (st.types.size() < st.columns) return Run::done;
            break;
        }
        case 'k':
            st.cursor_name = text_hash(value);
            recorder.token(side.message, 0, TokenKind::result, as_bytes(value), true);
            keep_cursor(recorder);
            break;
        case 'K':
            if (value != "T-BackendException" && value != "T-CoreException") return Run::desynchronised;
            break;
        default:
            return Run::desynchronised;
    }
    ++side.op;
    return Run::done;
}

}  // namespace tapscope
