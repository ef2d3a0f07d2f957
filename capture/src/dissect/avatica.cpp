#include "dissect/avatica.hpp"

#include <zlib.h>

#include <algorithm>
#include <charconv>

#include "dissect/avatica_wire.hpp"
#include "dissect/sql_evidence.hpp"
#include "evidence.hpp"

namespace tapscope {

namespace {

constexpr std::size_t kDecide = 64;  // bytes that tell a call from another body
constexpr std::size_t kKeepCapacity = 8 * 1024;
constexpr std::int64_t kLossMark = -2;  // no statement id

struct Space {
    avatica::Request request;
    avatica::Answer answer;
    std::string text, fingerprint, inflated;
};

Space& space_of_thread() {
    thread_local Space instance;
    return instance;
}

// Up to kMaxAnswer bytes of a gzip or zlib stream that may be cut; false when it is neither.
bool inflate_start(Bytes packed, std::string& out) {
    out.resize(AvaticaBodies::kMaxAnswer);
    z_stream stream{};
    constexpr int any_header = 32 + MAX_WBITS;
    if (inflateInit2(&stream, any_header) != Z_OK) return false;
    stream.next_in = const_cast<Bytef*>(packed.data());
    stream.avail_in = static_cast<uInt>(packed.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    const int result = inflate(&stream, Z_SYNC_FLUSH);
    out.resize(out.size() - stream.avail_out);
    inflateEnd(&stream);
    return (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) && !out.empty();
}

// The client makes connection ids up at random, so that they need no server beside them. Never 0.
std::uint64_t statement_key(std::uint64_t connection, std::int64_t statement) noexcept {
    return mix64(connection, static_cast<std::uint64_t>(statement) + 1) | 1;
}

bool is_word(std::string_view name) noexcept {
    return name.size() <= 40 && std::all_of(name.begin(), name.end(), is_alpha);
}

}  // namespace

void AvaticaBodies::requests_lost(Recorder& recorder) {
    AvaticaStatements::Entry mark;
    mark.key = statement_key(connection_, kLossMark);
    if (connection_ != 0) recorder.avatica_statements.put(mark);
}

void AvaticaBodies::watch(Direction direction, MessageRef message, bool compressed) {
    Side& side = at(direction);
    side.message = message;
    side.compressed = compressed;
    side.decided = direction == Direction::to_client;
    side.full = false;
    if (side.bytes.capacity() > kKeepCapacity) side.bytes = {};
    side.bytes.clear();
}

bool AvaticaBodies::body(Direction direction, Bytes bytes) {
    Side& side = at(direction);
    const std::size_t limit = direction == Direction::to_server ? kMaxRequest : kMaxAnswer;
    const std::size_t n = std::min(bytes.size(), limit - side.bytes.size());
    if (!side.decided) {
        // Most bodies are no calls: look at the bytes where they are, if that will do.
        Probe found = Probe::need_more;
        if (side.bytes.empty()) found = avatica::starts_request(bytes.first(std::min(n, kDecide)));
        if (found == Probe::no) {
            side.message = kNoMessage;
            return false;
        }
        side.bytes.insert(side.bytes.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
        if (found == Probe::need_more)
            found = avatica::starts_request(Bytes(side.bytes).first(std::min(side.bytes.size(), kDecide)));
        if (found == Probe::no) side.message = kNoMessage;
        side.decided = found == Probe::yes;
        if (found == Probe::no) return false;
    } else {
        side.bytes.insert(side.bytes.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    }
    side.full = side.bytes.size() == limit;
    return !side.full;
}

bool AvaticaBodies::finish(Direction direction, bool complete, Recorder& recorder) {
    Side& side = at(direction);
    const MessageRef ref = side.message;
    side.message = kNoMessage;
    if (ref == kNoMessage || !side.decided) return false;
    if (direction == Direction::to_server) return request(ref, side.bytes, complete && !side.full, recorder);
    answer(ref, side.bytes, side.compressed, recorder);
    return false;
}

bool AvaticaBodies::request(MessageRef ref, Bytes body, bool complete, Recorder& recorder) {
    Space& space = space_of_thread();
    avatica::Request& call = space.request;
    if (!avatica::read_request(body, call) || !is_word(call.name)) {
        if (!complete) return false;
        recorder.count("avatica.unknown_request");
        call.name = {};
    }
    if (!complete) recorder.count("avatica.request_cut");
    recorder.set_protocol(ref, Protocol::avatica);
    if (call.name.empty()) {
        recorder.set_class(ref, Protocol::avatica, "(unknown request)");
        return true;
    }

    const std::uint64_t connection = text_hash(call.connection, 1);
    if (!call.connection.empty()) connection_ = connection;
    const bool named = !call.connection.empty() && call.statement >= 0;
    const std::uint64_t key = statement_key(connection, call.statement);
    AvaticaStatements& statements = recorder.avatica_statements;
    if (!call.connection.empty())
        recorder.token(ref, slot_of_name("connectionId"), TokenKind::text, as_bytes(call.connection), true);
    if (named) {
        char digits[24];
        const auto end = std::to_chars(digits, digits + sizeof digits, call.statement).ptr;
        recorder.token(ref, slot_of_name("statementId"), TokenKind::number,
                       as_bytes({digits, static_cast<std::size_t>(end - digits)}), true);
    }
    for (const avatica::Value& value : call.parameters)
        parameter_token(recorder, ref, value.slot, value.number, value.text);

    std::string& text = space.text;
    text.assign(call.name);
    const bool executes = call.name == "execute" || call.name == "executeBatch";
    if (!call.sql.empty()) {
        const bool cut = call.sql_cut;
        // An execution repeats the statement's text as it was prepared: its literals are evidence again.
        text.append(" ").append(
            statement_evidence(recorder, ref, call.sql, cut, SqlDialect::mysql, kAnyDatabase).fingerprint());
        recorder.set_class(ref, Protocol::avatica, text);
        const auto class_of = [&](std::string_view name) {
            space.fingerprint.assign(name).append(text, call.name.size());
            return recorder.classes.id(Protocol::avatica, space.fingerprint);
        };
        if (call.name == "prepare") {
            prepared_ = {ref, connection, class_of("execute"), class_of("executeBatch"), class_of("fetch")};
        } else if (named) {
            if (statements.put({key, class_of("execute"), class_of("executeBatch"), class_of("fetch"), 0}))
                recorder.count("avatica.statement_evicted");
        }
        return true;
    }
    if (!call.commands.empty()) {
        std::uint32_t slot = 0;
        bool others = false;
        for (const std::string_view command : call.commands) {
            const bool cut = call.sql_cut && &command == &call.commands.back();
            const std::string_view fingerprint =
                statement_evidence(recorder, ref, command, cut, SqlDialect::mysql, kAnyDatabase, slot)
                    .fingerprint();
            if (text.size() == call.name.size()) {
                text.append(" ").append(fingerprint);
            } else if (std::string_view(text).substr(call.name.size() + 1) != fingerprint) {
                others = true;
            }
        }
        if (others) text.append("; ...");
        recorder.set_class(ref, Protocol::avatica, text);
        return true;
    }
    if (executes || call.name == "fetch") {
        const AvaticaStatements::Entry* entry = named ? statements.find(key) : nullptr;
        if (entry != nullptr) {
            if (statements.is_older(*entry, statement_key(connection, kLossMark)))
                recorder.add_flags(ref, message_flag::inferred);
            recorder.set_class(ref, call.name == "fetch"     ? entry->fetch_class
                                    : call.name == "execute" ? entry->execute_class
                                                             : entry->batch_class);
            return true;
        }
        recorder.count("avatica.statement_not_seen");
        text.append(" (statement not seen)");
    } else if (call.name == "closeStatement" && named) {
        statements.erase(key);
    }
    recorder.set_class(ref, Protocol::avatica, text);
    return true;
}

void AvaticaBodies::answer(MessageRef ref, Bytes body, bool compressed, Recorder& recorder) {
    Space& space = space_of_thread();
    avatica::Answer& said = space.answer;
    if (compressed) {
        const bool good = inflate_start(body, space.inflated);
        body = good ? as_bytes(space.inflated) : Bytes{};
    }
    if (!avatica::read_answer(body, said)) {
        recorder.count("avatica.unreadable_answer");
        recorder.add_flags(ref, message_flag::opaque);
        return;
    }
    if (said.error || said.missing_statement) recorder.add_flags(ref, message_flag::error);
    if (said.missing_statement) recorder.count("avatica.missing_statement");
    for (const avatica::Value& value : said.results)
        recorder.token(ref, value.slot, TokenKind::result, as_bytes(value.text));
    if (said.statement >= 0 && prepared_.request != kNoMessage &&
        recorder.answers(ref) == prepared_.request) {
        if (recorder.avatica_statements.put({statement_key(prepared_.connection, said.statement),
                                             prepared_.execute_class, prepared_.batch_class,
                                             prepared_.fetch_class, 0}))
            recorder.count("avatica.statement_evicted");
    }
    if (recorder.answers(ref) == prepared_.request) prepared_ = {};
}

}  // namespace tapscope
