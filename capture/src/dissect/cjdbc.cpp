#include "dissect/cjdbc.hpp"

#include <algorithm>

#include "bytes.hpp"
#include "dissect/cjdbc_state.hpp"

namespace tapscope {

using namespace cjdbc;

namespace {

constexpr std::uint32_t kNoTag = ~0u;
constexpr std::uint32_t kLoginTag = 0x100;

// A segment that is a command without a text to know it by. Only where a command may well start.
bool is_alone(Bytes bytes) noexcept {
    constexpr std::uint32_t first_metadata = 50;
    const CommandInfo* command = bytes.size() >= 4 ? find_command(load_be32(bytes.data())) : nullptr;
    if (command == nullptr) return false;
    if (command->arguments[0] == 0) return bytes.size() == 4;
    if (command->arguments[0] == 'i') return bytes.size() == 8 && load_be32(&bytes[4]) <= 8;
    return command->code >= first_metadata && looks_like_client(bytes) == Probe::need_more;
}

}  // namespace

CjdbcDissector::CjdbcDissector() = default;
CjdbcDissector::CjdbcDissector(CjdbcDissector&&) noexcept = default;
CjdbcDissector& CjdbcDissector::operator=(CjdbcDissector&&) noexcept = default;
CjdbcDissector::~CjdbcDissector() = default;

Parsed CjdbcDissector::parse(Direction direction, Bytes bytes, Recorder& recorder) {
    if (state_ == nullptr) state_ = std::make_unique<State>();
    if (state_->mode == State::Mode::unknown && !find_mode(direction, bytes, recorder)) return {Step::ok, 0};
    if (state_->mode != State::Mode::cjdbc) return {Step::ok, sequoia(direction, bytes, recorder)};
    return {Step::ok,
            direction == Direction::to_server ? client(bytes, recorder) : controller(bytes, recorder)};
}

// C-JDBC, Sequoia, or (1.x) a stream of Java objects? False when more bytes are needed.
bool CjdbcDissector::find_mode(Direction direction, Bytes bytes, Recorder& recorder) {
    constexpr std::uint32_t object_stream = 0xACED0005;  // Java object serialization, version 5
    State& st = *state_;
    if (bytes.size() < 4) return false;
    const std::uint32_t first = load_be32(bytes.data());
    const bool version = direction == Direction::to_server && first >> 16 > 0 && first >> 16 < 64;
    if (first == object_stream) {
        st.mode = State::Mode::object_stream;
        recorder.count("cjdbc.object_stream");
    } else if (first == kSequoiaPrompt || first == kSequoiaCommand || version) {
        st.mode = State::Mode::sequoia;
        recorder.count("cjdbc.sequoia");
    } else {
        st.mode = State::Mode::cjdbc;
    }
    return true;
}

// ---- commands -------------------------------------------------------------------------------------------------------

std::uint64_t CjdbcDissector::client(Bytes bytes, Recorder& recorder) {
    State& st = *state_;
    Side& side = st.side(Direction::to_server);
    std::uint64_t pos = 0;
    while (pos < bytes.size()) {
        switch (side.where) {
            case Side::Where::lost: {
                client_speaks(recorder);
                const Bytes rest = bytes.subspan(static_cast<std::size_t>(pos));
                if (looks_like_client(rest) != Probe::yes && !is_alone(rest)) {
                    recorder.remainder(Direction::to_server, "cjdbc.after_loss");
                    return bytes.size();
                }
                side.where = Side::Where::between;
                break;
            }
            case Side::Where::between:
                if (!begin_command(bytes, pos, recorder)) return pos;
                break;
            case Side::Where::blind:
                return bytes.size();
            case Side::Where::inside:
                break;
        }
        if (side.where != Side::Where::inside) continue;
        const Run run = fields(side, bytes, pos, recorder);
        if (run == Run::more) return pos;
        if (run == Run::done) {
            recorder.end(side.message, pos);
            finish_command(recorder);
            side.where = Side::Where::between;
            continue;
        }
        recorder.count("cjdbc.unreadable_command");
        recorder.add_flags(side.message, message_flag::suspicious);
        side.where = Side::Where::blind;
    }
    return pos;
}

// False when more bytes are needed to tell.
bool CjdbcDissector::begin_command(Bytes bytes, std::uint64_t& pos, Recorder& recorder) {
    State& st = *state_;
    Side& side = st.side(Direction::to_server);
    if (bytes.size() - pos < 4) return false;
    const std::uint32_t code = load_be32(bytes.data() + pos);
    client_speaks(recorder);
    const CommandInfo* command = find_command(code);
    const bool ping = code == kPing && st.fresh;
    const bool login = command == nullptr && !ping && code < kLoginTag && st.fresh;
    if (command == nullptr && !ping && !login) {
        recorder.count("cjdbc.unknown_command");
        recorder.remainder(Direction::to_server, "cjdbc.unknown_command");
        side.where = Side::Where::lost;
        pos = bytes.size();
        return true;
    }
    const bool answered = !ping && (login || command->reply != Reply::none);
    side.message =
        recorder.begin(Direction::to_server, answered ? MessageKind::request : MessageKind::one_way, pos,
                       login ? kLoginTag : code);
    side.text = {};
    side.repeat = 0;
    pos += 4;
    st.command = command;
    st.cursor_asked = 0;
    st.command_class = kNoClass;
    if (ping) {
        set_class("Ping", recorder);
        side.op = "";
    } else if (login) {
        recorder.count("cjdbc.other_version");
        begin_login(side.message, recorder);
        side.op = layout::kLogin;
    } else if (code == kVersion && st.fresh) {
        side.op = layout::kBeginOrLogin;
        recorder.end(side.message, pos);  // moved on if it is a login
    } else {
        side.op = command->arguments;
    }
    if (command != nullptr && command->code == static_cast<std::uint8_t>(Command::reset)) st.cursors.clear();
    st.fresh = false;
    side.where = Side::Where::inside;
    if (*side.op != 0) return true;
    recorder.end(side.message, pos);
    finish_command(recorder);
    side.where = Side::Where::between;
    return true;
}

// Of the command that is being read.
void CjdbcDissector::set_class(std::string_view text, Recorder& recorder) {
    State& st = *state_;
    st.command_class = recorder.classes.id(protocol, text);
    recorder.set_class(st.side(Direction::to_server).message, st.command_class);
}

void CjdbcDissector::begin_login(MessageRef message, Recorder& recorder) {
    set_class("LOGIN", recorder);
    recorder.add_flags(message, message_flag::setup);
    state_->login = message;
    state_->cursors.clear();
}

void CjdbcDissector::finish_command(Recorder& recorder) {
    State& st = *state_;
    Side& side = st.side(Direction::to_server);
    if (st.command == nullptr || st.command_class != kNoClass) return;
    if (*side.op == 'q' && !side.text.value.empty() && !side.text.null) return statement(true, recorder);
    set_class(st.command->name, recorder);
}

// The client goes on: whatever the controller said is over.
void CjdbcDissector::client_speaks(Recorder& recorder) {
    Side& answer = state_->side(Direction::to_client);
    if (answer.where == Side::Where::inside) {
        recorder.count("cjdbc.answer_without_end");
        recorder.add_flags(answer.message, message_flag::suspicious);
    }
    if (answer.where == Side::Where::inside || answer.where == Side::Where::blind)
        recorder.end(answer.message, 0);
    answer.where = Side::Where::between;
}

// The controller answers: whatever the client said is over.
void CjdbcDissector::controller_speaks(Recorder& recorder) {
    Side& side = state_->side(Direction::to_server);
    if (side.where == Side::Where::inside && *side.op != 'V') {
        recorder.count("cjdbc.command_without_end");
        recorder.add_flags(side.message, message_flag::suspicious);
    }
    if (side.where == Side::Where::inside || side.where == Side::Where::blind) {
        if (*side.op != 'V' || side.where == Side::Where::blind) recorder.end(side.message, 0);
        finish_command(recorder);
    }
    side.where = Side::Where::between;
}

// ---- answers --------------------------------------------------------------------------------------------------------

std::uint64_t CjdbcDissector::controller(Bytes bytes, Recorder& recorder) {
    State& st = *state_;
    Side& side = st.side(Direction::to_client);
    std::uint64_t pos = 0;
    bool was_blind = side.where == Side::Where::blind;
    while (pos < bytes.size()) {
        switch (side.where) {
            case Side::Where::lost:
                if (looks_like_controller(bytes.subspan(static_cast<std::size_t>(pos))) != Probe::yes) {
                    recorder.remainder(Direction::to_client, "cjdbc.after_loss");
                    return bytes.size();
                }
                side.where = Side::Where::between;
                break;
            case Side::Where::between:
                controller_speaks(recorder);
                if (!begin_answer(bytes, pos, recorder)) return pos;
                break;
            case Side::Where::blind:
                // Nothing was asked, as far as is known: this may be the next answer.
                if (was_blind && !recorder.has_request() && looks_like_controller(bytes) == Probe::yes) {
                    was_blind = false;
                    recorder.end(side.message, 0);
                    side.where = Side::Where::between;
                    continue;
                }
                return bytes.size();
            case Side::Where::inside:
                break;
        }
        if (side.where != Side::Where::inside) continue;
        const Run run = fields(side, bytes, pos, recorder);
        if (run == Run::more) return pos;
        if (run == Run::done) {
            recorder.end(side.message, pos);
            side.where = Side::Where::between;
            continue;
        }
        if (run == Run::desynchronised) {
            recorder.count("cjdbc.unreadable_answer");
            recorder.add_flags(side.message, message_flag::suspicious);
        }
        side.where = Side::Where::blind;
    }
    return pos;
}

// False when more bytes are needed to tell.
bool CjdbcDissector::begin_answer(Bytes bytes, std::uint64_t& pos, Recorder& recorder) {
    State& st = *state_;
    Side& side = st.side(Direction::to_client);
    const Bytes rest = bytes.subspan(static_cast<std::size_t>(pos));
    if (!recorder.has_request()) {
        const Probe probe = looks_like_controller(rest);
        if (probe == Probe::need_more) return false;
        if (probe == Probe::no) {
            recorder.count("cjdbc.unexpected_answer");
            recorder.remainder(Direction::to_client, "cjdbc.unexpected_answer");
            side.where = Side::Where::lost;
            pos = bytes.size();
            return true;
        }
    }
    side.message = recorder.begin(Direction::to_client, MessageKind::response, pos);
    side.text = {};
    side.where = Side::Where::inside;
    const MessageRef request = recorder.answers(side.message);
    const bool known = request != kNoMessage;
    const bool login = known ? request == st.login : rest.size() > 2 && rest[1] <= 1 && rest[2] == 1;
    st.answered = known && !login ? find_command(recorder.front_tag(kNoTag)) : nullptr;
    side.op = login ? layout::kLoginAnswer : layout::kTag;
    return true;
}

// ---- losses ---------------------------------------------------------------------------------------------------------

void CjdbcDissector::on_gap(Direction direction, std::uint64_t, Recorder& recorder) {
    if (state_ == nullptr) return;
    Side& side = state_->side(direction);
    if (side.where == Side::Where::between) side.where = Side::Where::lost;
    if (side.where != Side::Where::inside) return;
    side.where = Side::Where::blind;
    if (direction == Direction::to_server && *side.op == 'V') {
        side.where = Side::Where::lost;  // Begin was over
        finish_command(recorder);
    }
}

void CjdbcDissector::on_end(Direction direction, Recorder& recorder) {
    if (state_ == nullptr) return;
    Side& side = state_->side(direction);
    const bool open = side.where == Side::Where::inside || side.where == Side::Where::blind;
    const bool begin = direction == Direction::to_server && *side.op == 'V';
    if (open && !(begin && side.where == Side::Where::inside)) {
        if (side.where == Side::Where::inside) recorder.add_flags(side.message, message_flag::unfinished);
        recorder.end(side.message, 0);
    }
    if (open && direction == Direction::to_server && state_->mode == State::Mode::cjdbc)
        finish_command(recorder);
    side.where = Side::Where::lost;
}

}  // namespace tapscope
