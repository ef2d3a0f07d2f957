// A FastCGI connection whose requests have several ids, as those that are open at once must: its messages by their id.
//
// An id is used again only after its END_REQUEST. So BEGIN_REQUEST tells that the answer to the request before it with
// the same id was over, seen or not; and an answer is given to another one's request only where both that END_REQUEST
// and the BEGIN_REQUEST behind it were lost, which is flagged as inferred.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "dissect/dissector.hpp"
#include "dissect/fastcgi_message.hpp"
#include "dissect/fastcgi_wire.hpp"
#include "record.hpp"

namespace tapscope::fastcgi {

// A message that was begun in one piece and is not over.
template <class Text>
struct OpenMessage {
    MessageRef ref = kNoMessage;
    Text text;
};

struct Stream {
    Interleaved request, answer;
    RequestText text;
    AnswerHead head;
    std::uint16_t id = 0;
    bool asked = false;              // the end of the request was seen, or its start was not
    bool ended = false;              // END_REQUEST
    bool lossy[2] = {false, false};  // by Direction: bytes were lost since the request began

    bool answered() const noexcept { return answer.ref != kNoMessage; }
};

class Streams {
public:
    static constexpr std::size_t kMaxOpen = 1024;          // the oldest one goes first
    static constexpr std::size_t kMaxTexts = 1024 * 1024;  // bytes of parameters and forms of all requests

    // Requests without an answer and messages begun in one piece, all of `id`, of a connection that turns out to have
    // several. `lossy`: by Direction, whether bytes were ever lost.
    void take_over(std::uint16_t id, OpenMessage<RequestText>&& request,
                   const OpenMessage<AnswerHead>& answer, const bool (&lossy)[2], Recorder& recorder);
    // The message of `direction` that was begun in one piece goes on in pieces from `at`. Before anything else of the
    // direction.
    void go_on(Direction direction, std::uint64_t at, Recorder& recorder);

    std::size_t wanted(Type type, std::uint16_t id, std::size_t length) const noexcept;
    void record(Bytes header, Bytes content, std::uint64_t at, std::uint64_t next, Recorder& recorder);

    // Of the record a part is lost, its end is not. False when that is as bad as if all was.
    bool content_lost(Type type, std::uint16_t id, std::uint64_t at, std::uint64_t next, Recorder& recorder);
    // Bytes of `direction` were lost, and which records they held is not known.
    void lose(Direction direction, Recorder& recorder);
    void end(Direction direction, Recorder& recorder);

private:
    using Place = std::list<Stream>::iterator;

    Stream* find(std::uint16_t id) const noexcept;
    Stream& add(std::uint16_t id, Recorder& recorder);
    void replace(std::uint16_t id, Recorder& recorder);
    void drop(Stream& stream, Recorder& recorder);
    void erase_if_over(const Stream& stream);
    void erase(std::uint16_t id);
    Stream* asking(std::uint16_t id, std::uint64_t at, Recorder& recorder);
    Stream* answering(std::uint16_t id, std::uint64_t at, Recorder& recorder);
    void begin_request(std::uint16_t id, Bytes content, std::uint64_t at, std::uint64_t next,
                       Recorder& recorder);
    void read_text(Stream& stream, Type type, Bytes content, std::size_t length, Recorder& recorder);
    void abort(std::uint16_t id, std::uint64_t at, std::uint64_t next, Recorder& recorder);
    void alone(const char* text, std::uint64_t at, std::uint64_t next, Recorder& recorder);
    // fastcgi_loss.cpp
    void text_lost(Stream& stream, Recorder& recorder);
    void answer_cut(Stream& stream, Recorder& recorder);

    std::list<Stream> open_;  // oldest first
    std::unordered_map<std::uint16_t, Place> by_id_;
    std::size_t texts_ = 0;                                  // bytes that the texts of all take
    MessageRef in_one_piece_[2] = {kNoMessage, kNoMessage};  // by Direction: for go_on
    std::uint16_t id_in_one_piece_ = 0;
};

}  // namespace tapscope::fastcgi
