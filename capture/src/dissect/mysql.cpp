// The packet layer: one packet after the other, skipping what is not needed, and back on track after a loss.
#include "mysql.hpp"

#include <algorithm>
#include <utility>

#include "mysql_compression.hpp"

namespace tapscope {

using namespace mysql;

namespace {

// Where a chain of packet headers with rising sequence numbers starts in `bytes`, at or behind `from`; bytes.size()
// when there is none. A chain counts when it has three headers, or two and ends with the bytes.
std::size_t find_chain(Bytes bytes, std::size_t from) noexcept {
    const std::size_t size = bytes.size();
    for (std::size_t p = from; p + kHeader < size; ++p) {
        std::size_t q = p, headers = 0;
        std::uint8_t seq = bytes[p + 3];
        for (;;) {
            if (q + kHeader > size) break;
            const std::uint32_t length = load_le24(&bytes[q]);
            if (length == 0 || bytes[q + 3] != seq) {
                headers = 0;
                break;
            }
            ++headers;
            ++seq;
            q += kHeader + length;
            if (headers == 3) return p;
        }
        if (headers >= 2 && q == size) return p;
    }
    return size;
}

}  // namespace

MysqlDissector::MysqlDissector() = default;
MysqlDissector::MysqlDissector(MysqlDissector&&) noexcept = default;
MysqlDissector& MysqlDissector::operator=(MysqlDissector&&) noexcept = default;
MysqlDissector::~MysqlDissector() = default;

Probe MysqlDissector::probe(Bytes bytes, Direction direction) noexcept {
    if (bytes.size() < kHeader + 1) return Probe::need_more;
    const std::uint32_t length = load_le24(bytes.data());
    const std::uint8_t seq = bytes[3];
    const std::uint8_t first = bytes[kHeader];
    if (direction == Direction::to_server) {
        if (plausible_login(bytes) || plausible_compressed(bytes)) return Probe::yes;
        return plausible_command(bytes) ? Probe::yes : Probe::no;
    }
    if (compressed_answer(bytes, 0) == Probe::yes) return Probe::yes;
    const std::size_t have = std::min<std::size_t>(bytes.size() - kHeader, length);
    const Bytes payload = bytes.subspan(kHeader, have);
    if (seq == 0 && first == 0x0A) {  // greeting: version text, NUL, thread id, ...
        if (length < 30 || length > 1024) return Probe::no;
        for (std::size_t i = 1; i < have && i < 64; ++i) {
            if (payload[i] == 0) return i > 3 ? Probe::yes : Probe::no;
            if (payload[i] < 0x20 || payload[i] > 0x7E) return Probe::no;
        }
        return have < 64 ? Probe::need_more : Probe::no;
    }
    if (seq == 0 && first == 0xFF && length > 8 && length < 512) {  // refused: code and text
        if (have < 8) return Probe::need_more;
        const std::uint16_t code = load_le16(&payload[1]);
        const bool text = std::all_of(payload.begin() + 3, payload.begin() + 8,
                                      [](std::uint8_t c) { return c >= 0x20 && c < 0x7F; });
        return code >= 1000 && code < 5000 && text ? Probe::yes : Probe::no;
    }
    // Midstream: a result set shows by its first column definition.
    if (seq == 1 && length <= 2 && first > 0 && first < 0xFB) {
        const std::size_t next = kHeader + length;
        if (bytes.size() < next + kHeader + 4) return Probe::need_more;
        const std::uint8_t* d = &bytes[next];
        return d[3] == 2 && d[4] == 3 && d[5] == 'd' && d[6] == 'e' && d[7] == 'f' ? Probe::yes : Probe::no;
    }
    return Probe::no;
}

Parsed MysqlDissector::parse(Direction direction, Bytes bytes, Recorder& recorder) {
    static constexpr OffsetMap kPlain{};
    std::uint64_t consumed = 0;
    if (!compressed_) [[likely]]
        consumed = packets(direction, bytes, kPlain, recorder);
    if (turns_to_tls_) [[unlikely]] {  // the login goes on inside
        turns_to_tls_ = false;
        return {Step::switch_to, consumed, nullptr, Protocol::tls};
    }
    // The answer to the login may just have switched compression on.
    if (compressed_ && consumed < bytes.size()) [[unlikely]]
        consumed = outer_packets(direction, bytes, consumed, recorder);
    side(direction).left = consumed < bytes.size() ? bytes.size() - consumed : 0;
    return {Step::ok, consumed, nullptr};
}

std::uint64_t MysqlDissector::packets(Direction direction, Bytes bytes, const OffsetMap& map,
                                      Recorder& recorder) {
    Side& s = side(direction);
    const bool plain = map.in == 0;
    const std::size_t size = bytes.size();
    std::uint64_t pos = 0;
    s.partial = 0;
    if (s.skip > 0 || s.due != kNoMessage) {
        if (s.skip > size && !plain) {
            s.skip -= size;
            return size;
        }
        pos = s.skip;
        s.skip = 0;
        if (s.due != kNoMessage) recorder.end(s.due, map(pos));
        s.due = kNoMessage;
        if (pos >= size) return pos;
    }
    if (phase_ == Phase::auth && direction == Direction::to_server && plain && pos == 0 &&
        (caps_ & (client::compress | client::zstd_compression)) != 0) {
        if (compressed_header(bytes)) return pos;
        if (plausible_compressed(bytes)) {
            recorder.count("mysql.login_answer_not_seen");
            compression_under_way(Direction::to_server);
            return pos;
        }
    }
    if (inferred_ && plain && pos == 0 && direction == Direction::to_client) [[unlikely]] {
        if (compressed_unheard(bytes, recorder)) return pos;
    }
    if (phase_ == Phase::start) [[unlikely]] {
        if (size < kHeader + 1) return pos;
        const bool greets = direction == Direction::to_client && bytes[3] == 0 &&
                            (bytes[kHeader] == 0x0A || bytes[kHeader] == 0x09 || bytes[kHeader] == 0xFF);
        if (!greets) {
            s.lost = uncertain_ = true;
            recorder.remainder(direction, "mysql.before_first_command");
        }
    }
    while (pos < size) {
        const auto here = static_cast<std::size_t>(pos);
        if (s.lost) [[unlikely]] {
            if (here == 0 && size < kHeader + 1) return 0;
            // A client may send the header of a compressed packet in a segment of its own.
            if (here == 0 && direction == Direction::to_server && login_unseen() && compressed_header(bytes))
                return 0;
            std::size_t found = here;
            const bool ok = direction == Direction::to_server ? here == 0 && find_command(bytes, recorder)
                                                              : find_answer(bytes, found, map, recorder);
            if (!ok) return size;
            if (compressed_ && plain) return found;
            s.lost = false;
            pos = found;
            continue;
        }
        if (direction == Direction::to_client && answer_row_ != kNoMessage && !s.continues &&
            phase_ == Phase::command && (answer_ == Answer::rows || answer_ == Answer::definitions)) {
            const std::size_t next = result_set(bytes, here, recorder);
            if (next != here) {
                pos = next;
                continue;
            }
        }
        if (size - here < kHeader) break;
        const PacketHeader head = read_header(&bytes[here]);
        const auto [length, seq] = head;
        const std::size_t have = std::min<std::size_t>(size - here - kHeader, length);
        const Bytes payload = bytes.subspan(here + kHeader, have);
        const std::size_t need = wanted(direction, length, seq, payload);
        if (have < need) {
            begin_early(direction, seq, payload, map(here), recorder);
            s.partial = kHeader + length;
            break;
        }
        // Never more than was asked for: what is reported must not depend on how much happens to be at hand.
        pos = packet(direction, bytes, here, head, need, map, recorder);
        if (pos > size) {
            if (plain) return pos;
            s.skip = pos - size;
            return size;
        }
        if (turns_to_tls_) return pos;
        if (compressed_ && plain) return pos;
    }
    return pos;
}

std::size_t MysqlDissector::wanted(Direction direction, std::uint32_t length, std::uint8_t seq,
                                   Bytes payload) const noexcept {
    if (sides_[static_cast<unsigned>(direction)].continues || length == 0) return 0;
    return direction == Direction::to_server ? wanted_of_client(length, seq, payload)
                                             : wanted_of_server(length, payload);
}

// Reports the message of a packet that is not complete yet, so that a loss inside it does not lose the message.
void MysqlDissector::begin_early(Direction direction, std::uint8_t seq, Bytes payload, std::uint64_t at,
                                 Recorder& recorder) {
    Side& s = side(direction);
    if (s.begun || payload.empty()) return;
    if (direction == Direction::to_server) {
        if (!starts_command(seq)) return;
        begin_command(payload[0], at, recorder);
        s.begun = true;
    } else if (answer_row_ == kNoMessage && !(unheard() && continues_unheard(seq))) {
        begin_answer(payload, seq, at, recorder);
    }
}

std::uint64_t MysqlDissector::packet(Direction direction, Bytes bytes, std::size_t pos, PacketHeader head,
                                     std::size_t need, const OffsetMap& map, Recorder& recorder) {
    Side& s = side(direction);
    const auto [length, seq] = head;
    const std::uint64_t next = pos + kHeader + length;
    const Bytes payload = bytes.subspan(pos + kHeader, need);
    const bool continues = s.continues;
    s.continues = length == kMaxPayload;
    if (direction == Direction::to_server) {
        if (!continues) client_packet(length, seq, payload, map(pos), recorder);
        if (request_ != kNoMessage) end_message(direction, request_, next, bytes, map, recorder);
        return next;
    }
    if (continues) return next;
    if (unheard()) [[unlikely]] {
        const bool more = continues_unheard(seq);
        if (!more) restart_unheard(seq, map(pos), recorder);
        unheard_.next_seq = static_cast<std::uint8_t>(seq + 1);
        if (more) {
            end_message(direction, unheard_.last_answer, next, bytes, map, recorder);
            return next;
        }
    }
    if (answer_row_ == kNoMessage) begin_answer(payload, seq, map(pos), recorder);
    const bool eof_follows = answer_ == Answer::prepare && next + kHeader + 1 <= bytes.size() &&
                             bytes[next] == 5 && bytes[next + 1] == 0 && bytes[next + 2] == 0 &&
                             bytes[next + kHeader] == 0xFE;
    if (server_packet(length, seq, payload, eof_follows, recorder)) {
        const MessageRef ref = answer_row_;
        answer_row_ = kNoMessage;
        if (unheard()) [[unlikely]]
            unheard_.last_answer = ref;
        if (ref != kNoMessage) end_message(direction, ref, next, bytes, map, recorder);
    }
    return next;
}

// Of a compressed stream only what is there can be placed; the end of a longer packet is reported when it is reached.
void MysqlDissector::end_message(Direction direction, MessageRef ref, std::uint64_t next, Bytes bytes,
                                 const OffsetMap& map, Recorder& recorder) {
    if (map.in == 0 || next <= bytes.size()) {
        recorder.end(ref, map(next));
    } else {
        side(direction).due = ref;
    }
}

// ---- losses ---------------------------------------------------------------------------------------------------------

void MysqlDissector::on_gap(Direction direction, std::uint64_t missing, Recorder& recorder) {
    Side& s = side(direction);
    if (compressed_) {
        if (direction == Direction::to_server && missing > 0) command_lost(recorder);
        outer_gap(direction, missing);
        return lose(direction);
    }
    if (s.lost) return;
    if (missing > 0 && s.skip >= missing) {
        s.skip -= missing;
        return recorder.borders_kept();
    }
    if (s.partial > 0 && s.left + missing <= s.partial &&
        pass_over_packet(direction, s.partial - kHeader, recorder)) {
        s.skip = s.partial - s.left - missing;
        s.left = s.partial = 0;
        doubt_strings(direction);
        return recorder.borders_kept();
    }
    lose(direction);
    if (phase_ != Phase::start) recorder.remainder(direction, "mysql.resynchronisation");
    if (phase_ == Phase::login && direction == Direction::to_server && missing > 0) login_not_seen(recorder);
}

// The client's answer to the greeting was lost: what it asked for shows in what follows.
void MysqlDissector::login_not_seen(Recorder& recorder) {
    recorder.count("mysql.login_not_seen");
    phase_ = Phase::auth;
    inferred_ = true;
    if ((server_caps_ & client::deprecate_eof) == 0) deprecate_eof_ = Known::no;
}

void MysqlDissector::lose(Direction direction) {
    Side& s = side(direction);
    s.lost = true;
    s.skip = s.left = s.partial = 0;
    s.due = kNoMessage;
    s.continues = s.begun = false;
    uncertain_ = true;
    doubt_strings(direction);
    name_.reset();
    if (direction == Direction::to_client) command_since_loss_ = false;
    // A PREPARE may be among the lost bytes, or the answer that says whether one succeeded.
    if (last_prepared_ != StatementTable::kNone &&
        (direction == Direction::to_server || !statements_.at(last_prepared_).bound))
        last_prepared_ = StatementTable::kNone;
}

// A packet of known length of which a part was lost: the state behind it, if that can be told.
bool MysqlDissector::pass_over_packet(Direction direction, std::uint64_t length, Recorder& recorder) {
    Side& s = side(direction);
    if (direction == Direction::to_server) {
        if (!s.begun) return false;
        s.begun = false;
        s.due = request_;
        s.continues = length == kMaxPayload;
        recorder.count("mysql.request_text_lost");
        return true;
    }
    if (answer_row_ == kNoMessage || length < 9) return false;
    switch (answer_) {
        case Answer::rows:
            break;
        case Answer::definitions:
            definition(0, {});
            break;
        case Answer::prepare:
            --definitions_left_;
            break;
        default:
            return false;
    }
    s.continues = length == kMaxPayload;
    return true;
}

// The client's packet borders are unknown, `bytes` starts with a segment: is it a command?
bool MysqlDissector::find_command(Bytes bytes, Recorder& recorder) {
    if (phase_ == Phase::start && plausible_login(bytes)) {
        phase_ = Phase::login;
        return true;
    }
    if (phase_ == Phase::start) inferred_ = true;
    if (login_unseen() && plausible_compressed(bytes)) {
        infer_compression(Direction::to_server, recorder);
        return true;
    }
    if (!plausible_command(bytes)) return false;
    if (phase_ == Phase::start) {
        phase_ = Phase::command;
        side(Direction::to_client).lost = true;
        recorder.count("mysql.joined_midstream");
    }
    recorder.remainder(Direction::to_server, "mysql.resynchronisation");
    return true;
}

// The server's packet borders are unknown. Finds the next packet at or behind `pos` and the state to read it with.
// Without a border in sight, the bytes are taken for more of the answer that is due.
bool MysqlDissector::find_answer(Bytes bytes, std::size_t& pos, const OffsetMap& map, Recorder& recorder) {
    if (phase_ == Phase::start) {
        // With the client in sight it tells where to begin.
        if (pos > 0 || !recorder.after_gap(Direction::to_server)) return false;
        const bool inferred = std::exchange(inferred_, true);
        if (joins_unheard(bytes, recorder)) return true;
        inferred_ = inferred;
        return false;
    }
    recorder.remainder(Direction::to_client, "mysql.resynchronisation");
    const Bytes rest = bytes.subspan(pos);
    if (pos == 0 && joins_unheard(bytes, recorder)) {
        answer_row_ = kNoMessage;
        return true;
    }
    if (command_since_loss_) answer_row_ = kNoMessage;  // the client went on: that answer was over
    const bool auth = phase_ == Phase::auth;            // its packets can be read one by one
    const bool start = opens_answer(rest) && (rest[3] == 1 || compressed_ || auth);
    if (start && recorder.has_request() && (answer_row_ == kNoMessage || auth)) return true;
    if (!recorder.has_request() && answer_row_ == kNoMessage) return false;

    const std::size_t at = find_chain(bytes, pos);
    if (answer_row_ == kNoMessage) begin_answer({}, 1, map(pos), recorder);
    if (at == bytes.size()) {
        recorder.end(answer_row_, map(bytes.size()));  // so far
        recorder.count("mysql.answer_end_guessed");
        return false;
    }
    pos = at;
    const Bytes payload = bytes.subspan(at + kHeader);
    if (payload.size() >= 4 && payload[0] == 3 && payload[1] == 'd' && payload[2] == 'e' &&
        payload[3] == 'f') {
        answer_ = Answer::definitions;
        definitions_left_ = ~0u;  // until something else comes
    } else {
        answer_ = Answer::rows;
        columns_ = 0;
    }
    return true;
}

void MysqlDissector::on_end(Direction direction, Recorder& recorder) {
    Side& s = side(direction);
    if (direction == Direction::to_server && s.begun) recorder.count("mysql.request_cut");
    s.begun = false;
}

}  // namespace tapscope
