// Connections of which one side is not seen. Only the server: where answers begin, and what is more of the last one.
// Only the client: which statement an id means.
#include "mysql.hpp"

namespace tapscope {

using namespace mysql;

namespace {

// A packet that begins a segment and, by its contents and what follows it, an answer: of the rows of a long one the
// numbers come round to 1, too.
bool surely_opens_answer(Bytes bytes) noexcept {
    if (bytes.size() < kHeader + 1 || bytes[3] != 1) return false;
    const std::size_t next = kHeader + load_le24(bytes.data());
    const std::uint8_t first = bytes[kHeader];
    if (first == kErr) {
        if (next != bytes.size() || next < kHeader + 9) return false;
        const std::uint16_t code = load_le16(&bytes[kHeader + 1]);
        return code >= 1000 && code < 5000 && bytes[kHeader + 3] == '#';
    }
    if (first != kOk) return false;
    // Rows, affected and inserted, a status of known bits, warnings: an OK without text ends like that.
    Reader reader(bytes.subspan(kHeader + 1));
    reader.lenenc();
    reader.lenenc();
    reader.skip(4);
    return reader.ok() && next == bytes.size() && reader.here() == bytes.data() + next;
}

}  // namespace

// Only the server is seen, and an answer of it is due: does it come compressed, or is that still to show?
bool MysqlDissector::compressed_unheard(Bytes bytes, Recorder& recorder) {
    if (phase_ != Phase::command || side(Direction::to_client).lost || answer_row_ != kNoMessage ||
        !unheard() || !login_unseen())
        return false;
    const Probe compressed = compressed_answer(bytes, server_caps_);
    if (compressed == Probe::yes) infer_compression(Direction::to_client, recorder);
    return compressed != Probe::no;
}

// Only the server is seen, and this is a segment of it: do its bytes begin an answer?
bool MysqlDissector::joins_unheard(Bytes bytes, Recorder& recorder) {
    if (!unheard() || !inferred_) return false;
    if (compressed_) return opens_answer(bytes) && bytes[3] == 1;
    const bool compressed = compressed_answer(bytes, server_caps_) == Probe::yes;
    if (!compressed && !surely_opens_answer(bytes) && probe(bytes, Direction::to_client) != Probe::yes)
        return false;
    if (phase_ == Phase::start) {
        phase_ = Phase::command;
        side(Direction::to_server).lost = true;
        recorder.count("mysql.joined_midstream");
    }
    if (compressed) infer_compression(Direction::to_client, recorder);
    return true;
}

// A packet of the server by its number, without the client: the grammar of an answer may be mistaken then (rows that a
// FETCH asked for come without what a result set begins with), but the numbers of an answer begin with 1 and rise by 1.
// True when the packet is more of the answer that was taken for ended.
bool MysqlDissector::continues_unheard(std::uint8_t seq) noexcept {
    return answer_row_ == kNoMessage && unheard_.last_answer != kNoMessage && phase_ == Phase::command &&
           seq == unheard_.next_seq && seq != 1;
}

// The statement that the client means by an id not used before, where its login was seen and never an answer: that of
// the PREPARE since the last id that was told, if there was one only. Servers number statements upwards.
std::int32_t MysqlDissector::slot_unheard(std::uint32_t id) {
    if (heard_ || login_unseen() || unheard_.prepares != 1 || id <= unheard_.id ||
        !statements_.at(unheard_.slot).used)
        return StatementTable::kNone;
    unheard_.prepares = 0;
    unheard_.id = id;
    statements_.bind(unheard_.slot, id);
    return unheard_.slot;
}

// A packet numbered 1 out of turn, without the client: the answer that is being read is over.
void MysqlDissector::restart_unheard(std::uint8_t seq, std::uint64_t at, Recorder& recorder) {
    if (answer_row_ == kNoMessage || answer_ == Answer::infile || phase_ != Phase::command || seq != 1 ||
        unheard_.next_seq == 1)
        return;
    recorder.count("mysql.answer_ended_by_next_answer");
    recorder.end(answer_row_, at);
    answer_row_ = kNoMessage;
}

}  // namespace tapscope
