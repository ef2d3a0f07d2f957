// The fields of a C-JDBC message, one at a time, by its layout. Fields that say nothing are passed over by counting.
#include <bit>
#include <charconv>

#include "dissect/cjdbc_state.hpp"
#include "dissect/sql_evidence.hpp"
#include "evidence.hpp"
#include "hash.hpp"

namespace tapscope {

using namespace cjdbc;

// The bytes at hand. `pos` may come to lie beyond them: that much is passed over.
class CjdbcDissector::Input {
public:
    Input(Bytes bytes, std::uint64_t& pos) noexcept : bytes_(bytes), pos_(pos) {}
    bool have(std::size_t n) const noexcept { return pos_ + n <= bytes_.size(); }
    std::size_t left() const noexcept {
        return pos_ < bytes_.size() ? bytes_.size() - static_cast<std::size_t>(pos_) : 0;
    }
    const std::uint8_t* here() const noexcept { return bytes_.data() + pos_; }
    void pass(std::uint64_t n) noexcept { pos_ += n; }
    std::uint32_t u32() noexcept { return load_be32(take(4)); }
    std::uint64_t u64() noexcept { return load_be64(take(8)); }

private:
    const std::uint8_t* take(std::size_t n) noexcept {
        const std::uint8_t* at = here();
        pos_ += n;
        return at;
    }
    Bytes bytes_;
    std::uint64_t& pos_;
};

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

// ---- answers --------------------------------------------------------------------------------------------------------

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
        const bool wanted =
            st.tokens < kMaxResultTokens && st.rows_shown < kMaxResultRows && st.column < kMaxResultColumns;
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
