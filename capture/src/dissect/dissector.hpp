// What a dissector is: a small value with four operations, which sees bytes and a direction, never times.
//
//   probe     does this look like my protocol? (static; bytes = start of the stream, or of a segment when joined
//             midstream)
//   parse     takes a prefix of the stream bytes of one direction, reports messages to the Recorder, and says how much
//             it consumed. `consumed` may exceed the bytes given: the driver then skips by counting (bodies are never
//             buffered). consumed < bytes.size() means "the rest must come again, with more bytes behind it"; the
//             driver keeps that rest (bounded by kMaxPending; beyond it the stream is malformed).
//   on_gap    `missing` stream bytes of one direction were never seen (they come before the next parse of it). Bytes
//             that were kept back for the dissector are dropped: the message they began must be ended here (`at` 0 =
//             the first missing byte). A gap inside bytes that `consumed` skips is counted by the driver alone.
//             After `malformed` the driver drops the rest of the segment and calls on_gap with missing = 0.
//             The next parse starts at the start of a segment.
//   on_end    the stream of one direction ended (FIN, RST, eviction or end of the capture): a message that only the
//             end of the stream ends is finished here
//
// The driver calls parse in an order that respects causality: bytes of one side are delivered only after the bytes of
// the other side that they acknowledge were delivered (or declared lost). So when a response is parsed, its request
// has been.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "codes.hpp"

namespace tapscope {

using Bytes =
    std::span<const std::uint8_t>;  // points into the packet or the pending buffer; copy it to keep it

enum class Probe : std::uint8_t { no, yes, need_more };

enum class Step : std::uint8_t {
    ok,         // consumed bytes are accounted for; call again with what follows
    malformed,  // not this protocol (any more): nothing behind this point is trusted until a resynchronisation
    switch_to,  // behind `consumed` both directions speak `next` (Upgrade, STARTTLS); unknown: to be found from content
};

struct Parsed {
    Step step = Step::ok;
    std::uint64_t consumed = 0;
    const char* label =
        nullptr;  // malformed: name of the reason, a string literal such as "http.bad_chunk_size"
    Protocol next = Protocol::unknown;  // switch_to
};

inline constexpr std::size_t kMaxPending = 256 * 1024;

using MessageRef =
    std::uint64_t;  // number of the message since the start; stays valid when rows are handed over
inline constexpr MessageRef kNoMessage = ~MessageRef{0};
inline constexpr std::int32_t kNoClass = -1;

// The Recorder (record.hpp) is what a dissector reports to. Offsets `at` count from the first byte given to the parse
// call that is running (0), and may lie beyond the bytes given.
//
//   MessageRef begin(Direction, MessageKind, std::uint64_t at, std::uint32_t tag = 0)
//       A message starts at stream byte `at`. For a request, `tag` is the dissector's own note on how to read the
//       answer (HTTP method, MySQL command, ...). For a response or interim the Recorder finds the request that it
//       answers by the connection's FIFO, checked against TCP acknowledgements.
//   void end(MessageRef, std::uint64_t at)
//       One past the last byte of the message. Ending a response takes its request off the FIFO.
//   std::uint32_t front_tag(std::uint32_t otherwise) const
//       Tag of the oldest unanswered request, or `otherwise` when there is none (response without a request seen).
//   bool has_request() const
//   void set_class(MessageRef, Protocol, std::string_view text)     class dictionary: text is the whole key
//   void set_class(MessageRef, std::int32_t id)                     the same, for an id known from recorder.classes.id
//   void set_status(MessageRef, std::int32_t)
//   void set_protocol(MessageRef, Protocol)      the message is of a protocol that this one carries
//   void set_tag(MessageRef, std::uint32_t tag)  a new note on the last request begun
//   void add_flags(MessageRef, std::uint32_t)
//   void token(MessageRef, std::uint32_t slot, TokenKind, Bytes value)   the Recorder hashes, salts, and marks id_like
//   void count(const char* name, std::uint64_t n = 1)               named counter, string literal: "mysql.auth_switch"
//   void remainder(Direction, const char* name)                     name for bytes outside messages from here on
//   void borders_kept()                                             on_gap: no message border is lost
//   void end_with_stream(MessageRef), bool aborted() const          on_end: the end time is that of FIN or RST

// `D` is one protocol's state for one connection (both directions); it must be cheap to create and to move.
template <class D, class R>
concept Dissector = requires(D d, R& recorder, Bytes bytes, Direction dir, std::uint64_t missing) {
    { D::protocol } -> std::convertible_to<Protocol>;
    { D::probe(bytes, dir) } noexcept -> std::same_as<Probe>;
    { d.parse(dir, bytes, recorder) } -> std::same_as<Parsed>;
    { d.on_gap(dir, missing, recorder) };
    { d.on_end(dir, recorder) };
};

}  // namespace tapscope
