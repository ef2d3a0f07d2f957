// The Recorder: what dissectors report to. It turns stream offsets into packet times, pairs responses with requests,
// keeps the class dictionary, and hashes evidence. One Recorder serves all connections of an engine; the driver
// attaches one connection's Exchange before each call into a dissector. dissector.hpp documents the first group.
// A MessageRef is the message's number since the start: it outlives the rows, which may be handed over at any time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "class_dictionary.hpp"
#include "columns.hpp"
#include "counters.hpp"
#include "dissect/avatica_statements.hpp"
#include "dissect/dissector.hpp"
#include "dissect/path_words.hpp"
#include "dissect/route_words.hpp"
#include "dissect/scratch.hpp"
#include "dissect/sql_reader.hpp"
#include "evidence.hpp"
#include "exchange.hpp"
#include "hash.hpp"
#include "token_hashes.hpp"

namespace tapscope {

class TlsKeyLog;

// A segment whose bytes wait for more behind them: bytes before `end` (and behind the mark before it) came with it.
struct Mark {
    std::uint64_t end;  // stream offset
    std::int64_t time_ns;
    std::uint64_t ack;  // stream offset of the other side that it acknowledges
};

// The bytes that the running parse call sees, and the packets they came in.
struct Window {
    Direction direction = Direction::to_server;
    std::uint64_t base = 0;       // stream offset of the first byte given
    std::uint64_t first = 0;      // stream offset of the oldest byte that `marks` and `time_ns` speak of
    std::uint64_t end = 0;        // one past the last byte given
    std::span<const Mark> marks;  // older segments, in stream order; empty on the fast path
    std::int64_t time_ns = -1;    // the newest segment
    std::uint64_t ack = 0;
    std::int64_t before_ns = -1;  // packet of the byte before `first`
    bool borders_kept = false;    // set by on_gap
    bool aborted = false;         // on_end: no FIN
};

class Recorder : public MessageTables {
public:
    explicit Recorder(HashKey key, bool keep_text = false) : key_(key), hashes_(key), keep_text_(keep_text) {}
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    // --- for dissectors -------------------------------------------------------------------------------------------
    MessageRef begin(Direction direction, MessageKind kind, std::uint64_t at, std::uint32_t tag = 0);

    // One past the last byte; may be called again to move the end on. For a message of the other direction than the
    // one being parsed `at` is ignored: the message ends with the bytes delivered so far.
    void end(MessageRef ref, std::uint64_t at);

    // on_end only: the message ends with its stream, at the time of the FIN or RST.
    void end_with_stream(MessageRef ref);

    std::uint32_t front_tag(std::uint32_t otherwise) const noexcept {
        return exchange_->requests.empty() ? otherwise : exchange_->requests.front().tag;
    }
    bool has_request() const noexcept { return !exchange_->requests.empty(); }
    // The message turned out to be of a protocol that the connection's one carries.
    void set_protocol(MessageRef ref, Protocol protocol) {
        write(messages.protocol, MessageColumn::protocol, ref, static_cast<std::uint8_t>(protocol));
    }
    // The request that `ref`, the last message begun on its side, answers; kNoMessage: none.
    MessageRef answers(MessageRef ref) const noexcept {
        for (const MessageSide& side : exchange_->side)
            if (side.current == ref) return static_cast<MessageRef>(side.current_answers);
        return kNoMessage;
    }
    // A new note on the request `ref`, if it is the last one begun and has no answer yet.
    void set_tag(MessageRef ref, std::uint32_t tag) noexcept {
        RequestQueue& open = exchange_->requests;
        if (!open.empty() && open.back().row == ref) open.back().tag = tag;
    }
    std::size_t open_requests() const noexcept { return exchange_->requests.size(); }
    // Was the oldest open request received by the server when it sent the byte `at`?
    bool front_received(std::uint64_t at) const noexcept {
        return has_request() && exchange_->requests.front().begin < ack_of_byte(window_.base + at);
    }
    // Bytes of `direction` were lost since the last message of it.
    bool after_gap(Direction direction) const noexcept { return exchange_->at(direction).after_gap; }
    // Is a request with this tag open?
    bool has_open_tag(std::uint32_t tag) const noexcept {
        const RequestQueue& open = exchange_->requests;
        for (std::size_t i = 0; i < open.size(); ++i)
            if (open.at(i).tag == tag) return true;
        return false;
    }
    // The oldest open request gets no answer that can be told from others: counts as one whose answer was lost.
    void give_up_request() {
        if (has_request()) drop_answer_lost();
    }
    // From here on the dissector tells after a loss which requests have no answer that can be told.
    void dissector_pairs() noexcept { exchange_->dissector_pairs = true; }
    // The server had received all lost requests when it sent the byte `at`.
    bool lost_requests_received(std::uint64_t at) const noexcept {
        return ack_of_byte(window_.base + at) >= exchange_->request_lost_end;
    }
    // Whatever was lost of the server's bytes had been read when the oldest open request was sent: its answer is not among
    // them.
    bool front_asked_behind_loss() const noexcept {
        return exchange_->requests.front().peer_ack >= exchange_->lost_end;
    }
    // The protocol itself told which requests are answered: the next answer is the oldest open request's, whatever
    // was lost before.
    void answers_in_step() noexcept {
        exchange_->at(Direction::to_client).after_gap = false;
        exchange_->lost_begin = exchange_->lost_end = 0;
    }
    void set_class(MessageRef ref, Protocol protocol, std::string_view text);
    // A response turns out not to be the final one; before its end.
    void make_interim(MessageRef ref) {
        write(messages.kind, MessageColumn::kind, ref, static_cast<std::uint8_t>(MessageKind::interim));
        for (MessageSide& side : exchange_->side)
            if (side.current == ref) side.current_kind = MessageKind::interim;
    }
    // `id` of an earlier call of classes.id().
    void set_class(MessageRef ref, std::int32_t id);
    void set_status(MessageRef ref, std::int32_t status) {
        write(messages.status, MessageColumn::status, ref, status);
    }
    void add_flags(MessageRef ref, std::uint32_t flags) {
        const std::size_t row = ref - first_message;
        if (row < messages.size) [[likely]]
            messages.flags[row] |= flags;
        else
            amend(ref, MessageColumn::flags, Change::set_bits, flags);
    }
    void token(MessageRef ref, std::uint32_t slot, TokenKind kind, Bytes value);
    // Same, where the caller knows better than looks_like_id.
    void token(MessageRef ref, std::uint32_t slot, TokenKind kind, Bytes value, bool is_id);
    // ENDPOINT token of the TCP peer that is the client of this connection.
    void endpoint_token(MessageRef ref);
    // A value whose hash is known.
    void known_token(MessageRef ref, std::uint32_t slot, TokenKind kind, std::uint64_t hash);
    void count(const char* name, std::uint64_t n = 1) { counters.add(name, n); }
    // From here on, bytes of `direction` outside messages are counted under `name`, a string literal.
    void remainder(Direction direction, const char* name) noexcept {
        exchange_->at(direction).remainder = name;
    }
    // on_gap only: the loss lies inside a message whose end is still known, so that no message border is lost.
    void borders_kept() noexcept { window_.borders_kept = true; }
    // on_end only: the stream ended by RST, eviction or the end of the capture, not by FIN.
    bool aborted() const noexcept { return window_.aborted; }
    // The byte at `at` came with an acknowledgement of all that was delivered of the other direction, and of more than the
    // newest request acknowledges: its sender has read an answer that was not there then.
    bool acknowledges_answer(std::uint64_t at) const noexcept;
    // How much of the other direction had come when the byte at `at` was sent, as its packet says.
    std::uint64_t acknowledged(std::uint64_t at) const noexcept { return ack_of_byte(window_.base + at); }
    // After a loss between several requests on the way: front_tag() is an estimate.
    bool pairing_in_doubt() const noexcept { return exchange_->doubt != nullptr; }
    // True when the last request begun came while an older one was still open and no loss explains it.
    bool pipelined() const noexcept { return exchange_->pipelined; }

    // --- for dissectors whose messages interleave on one connection (record_interleaved.cpp) ------------------------
    // A message is the sum of its pieces; which one answers which is the dissector's knowledge, not order. All of it is
    // about the direction that is being parsed, and on_gap may use it too (`at` 0 = the first missing byte).

    // A message begins at `at` and gets its bytes by pieces. `request`: what it answers.
    Interleaved begin_stream(MessageKind kind, std::uint64_t at, MessageRef request = kNoMessage);
    // [at_begin, at_end) belongs to the message; the end may lie beyond the bytes given (they are skipped by counting).
    // What was given to a message before is not counted again. The message ends, so far, with this piece.
    void piece(Interleaved& message, std::uint64_t at_begin, std::uint64_t at_end);
    // Bytes before `at` that are in no message have the name that was set last; the ones behind it are `name`.
    void remainder_from(std::uint64_t at, const char* name);
    // The oldest request that was begun by `begin` and has no answer; it is taken off the queue. kNoMessage: none.
    MessageRef take_request() noexcept;
    // From here on messages interleave, and pairs do not depend on their order: what was in doubt stays an estimate.
    void leave_order();
    // The message of the direction that is being parsed which was begun by `begin` and is open goes on in pieces from `at`.
    Interleaved in_pieces(MessageRef ref, std::uint64_t at);

    // --- for the driver -------------------------------------------------------------------------------------------
    void attach(Exchange& exchange) noexcept { exchange_ = &exchange; }
    Exchange& attached() noexcept { return *exchange_; }
    // A tunnel's bytes up to `at` are through: the last `inside` of them are accounted for by what they carried.
    void carried(Direction direction, std::uint64_t at, std::uint64_t inside);
    Window& window() noexcept { return window_; }

    // A packet of `time_ns` brings the bytes of `direction` up to `offset`: resolves the end of a message that is
    // skipped by counting. Call before the dissector sees the packet.
    void arrived(Direction direction, std::uint64_t offset, std::int64_t time_ns) {
        MessageSide& side = exchange_->at(direction);
        if (side.due && offset >= side.current_end) {
            write(messages.end_ns, MessageColumn::end_ns, side.current, time_ns);
            side.due = false;
        }
    }
    // The dissector is through with (or keeps) everything up to `offset`. Call after it has seen the packet.
    void delivered(Direction direction, std::uint64_t offset, std::int64_t time_ns) noexcept {
        MessageSide& side = exchange_->at(direction);
        side.delivered = offset;
        side.last_ns = time_ns;
    }
    // [begin, end) of `direction` was never seen. Call after the dissector's on_gap.
    void gap(Direction direction, std::uint64_t begin, std::uint64_t end, bool borders_lost);
    // Bytes of [begin, end) came again, in a packet of `time_ns`.
    void retransmitted(Direction direction, std::uint64_t begin, std::uint64_t end, std::int64_t time_ns);
    // [begin, end), read from a packet of the microsecond `first_us` (modulo 2^32), came in one of `time_ns` before.
    void stamped_earlier(Direction direction, std::uint64_t begin, std::uint64_t end, std::uint32_t first_us,
                         std::int64_t time_ns);
    // Bytes of `direction` before stream offset `to` that are in no message count as `name` (the driver read them).
    void outside(Direction direction, std::uint64_t to, const char* name) {
        MessageSide& side = exchange_->at(direction);
        const char* const otherwise = side.remainder;
        side.remainder = name;
        if (to > side.covered) outside_bytes(side, to);
        side.remainder = otherwise;
    }
    // The stream has `end` bytes and no more: closes what is open, and counts what is in no message.
    void stream_ended(Direction direction, std::uint64_t end);

    // What the attached connection carried so far, for its row of the connection table (of `again`: of those again).
    void contents_of(std::size_t row, bool again);

    HashKey key() const noexcept { return key_; }

    // Hashes that are still to be written. Call before evidence is read; hand_over does.
    void settle_hashes() noexcept { hashes_.settle(evidence.hash); }
    // The rows so far, and goes on with empty tables. References to messages stay valid for good.
    MessageTables hand_over();

    std::shared_ptr<TlsKeyLog> tls_keys;  // null: nothing is decrypted
    ClassDictionary classes;
    RouteWords routes;
    PathWords path_words;
    AvaticaStatements avatica_statements;
    SqlReader sql;
    Scratch scratch;
    Counters counters;
    std::vector<std::int32_t>
        new_examples;     // keep_text: classes that got their example, at most one entry each
    Counters remainders;  // bytes seen that are in no message, by reason

private:
    std::int64_t time_of_byte(std::uint64_t offset) const noexcept {
        return in_newest(offset) ? window_.time_ns : mark_of(offset).time_ns;
    }
    std::uint64_t ack_of_byte(std::uint64_t offset) const noexcept {
        return in_newest(offset) ? window_.ack : mark_of(offset).ack;
    }
    bool in_newest(std::uint64_t offset) const noexcept {
        return window_.marks.empty() || offset >= window_.marks.back().end;
    }
    const Mark& mark_of(std::uint64_t offset) const noexcept;
    // pairing.cpp
    std::int64_t answered(MessageRef row, MessageKind kind, std::uint64_t offset, bool after_loss);
    void open_request(MessageRef row, std::uint64_t offset, std::uint32_t tag, bool after_loss);
    void close_before(std::uint64_t offset, std::uint64_t ack);
    std::uint64_t packets_lost() const noexcept;
    std::size_t append_row(MessageSide& side, Direction direction, MessageKind kind, std::uint64_t offset);
    void leave_current(MessageSide& side, std::uint64_t offset);
    void drop_answer_lost();
    void close_unanswered();
    // pairing_doubt.cpp
    void begin_unproven(const OpenRequest& request, bool after_loss);
    void note_unproven(const OpenRequest& request);
    void note_unproven(MessageRef row, std::int64_t request, bool after_loss);
    void begin_doubt();
    void note_request(const OpenRequest& request);
    void note_response(MessageRef row, std::int64_t request, bool after_loss);
    bool all_read(std::uint64_t ack) const noexcept;
    bool room_for_two_requests() const noexcept;
    bool standing_known(bool after_loss) const noexcept;
    void settle_doubt(std::size_t standing, bool request_lost_behind, bool response_lost_behind,
                      bool sure = true);
    void abandon_doubt();
    void answered_by(MessageRef response, std::int64_t request);
    // Writes to a row, or notes an amendment when the row was handed over.
    template <class T>
    void write(Column<T>& column, MessageColumn name, MessageRef ref, T value) {
        const std::size_t row = ref - first_message;
        if (row < messages.size) [[likely]]
            column[row] = value;
        else
            amend(ref, name, Change::set, static_cast<std::int64_t>(value));
    }
    void lower(Column<std::int64_t>& column, MessageColumn name, MessageRef ref, std::int64_t value) {
        const std::size_t row = ref - first_message;
        if (row < messages.size) [[likely]]
            column[row] = std::min(column[row], value);
        else
            amend(ref, name, Change::lower, value);
    }
    void lower_current(MessageSide& side, std::uint64_t begin, std::uint64_t end, std::int64_t time_ns);
    void amend(MessageRef ref, MessageColumn column, Change change, std::int64_t value);
    void add_missing(MessageSide& side, std::uint64_t bytes);
    void take_answered(const MessageSide& side) noexcept;
    void close_current(MessageSide& side, std::uint64_t offset);
    void outside_bytes(MessageSide& side, std::uint64_t to);
    std::size_t append_evidence(MessageRef ref, std::uint32_t slot, std::uint8_t kind);
    [[gnu::noinline]] void token_of_any_length(MessageRef ref, std::uint32_t slot, TokenKind kind,
                                               Bytes value);
    void keep_example(std::int32_t class_id, std::string_view text);
    void keep_example_of(MessageRef ref, std::string_view text);

    HashKey key_;
    TokenHashes hashes_;
    bool keep_text_;
    Exchange* exchange_ = nullptr;
    Window window_;
    MessageRef example_of_ = kNoMessage;  // keep_text: a text whose class is not known yet
    std::string example_;
};

// A row with what is known of every message, that begins at `offset`.
[[gnu::always_inline]] inline std::size_t Recorder::append_row(MessageSide& side, Direction direction,
                                                               MessageKind kind, std::uint64_t offset) {
    const std::size_t row = messages.append();
    messages.conn[row] = exchange_->conn;
    messages.direction[row] = static_cast<std::uint8_t>(direction);
    messages.protocol[row] = static_cast<std::uint8_t>(exchange_->protocol);
    messages.kind[row] = static_cast<std::uint8_t>(kind);
    messages.begin_ns[row] = time_of_byte(offset);
    messages.end_ns[row] = -1;
    messages.class_id[row] = kNoClass;
    messages.status[row] = -1;
    messages.tcp_seq[row] = side.base_seq + static_cast<std::uint32_t>(offset);
    messages.request[row] = -1;
    // What is zero stays as it was made (columns.hpp, mostly_zero).
    if (side.after_gap) [[unlikely]] {
        messages.flags[row] = message_flag::resynchronised;
        side.after_gap = false;
    }
    return row;
}

// A row whose hash is still to come.
[[gnu::always_inline]] inline std::size_t Recorder::append_evidence(MessageRef ref, std::uint32_t slot,
                                                                    std::uint8_t kind) {
    const std::size_t row = evidence.append();
    evidence.message[row] = static_cast<std::int64_t>(ref);
    evidence.slot[row] = slot;
    evidence.kind[row] = kind;
    return row;
}

}  // namespace tapscope
