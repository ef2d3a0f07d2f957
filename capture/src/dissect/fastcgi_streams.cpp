#include "dissect/fastcgi_streams.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tapscope::fastcgi {

namespace {

constexpr unsigned kToServer = static_cast<unsigned>(Direction::to_server);
constexpr unsigned kToClient = static_cast<unsigned>(Direction::to_client);

}  // namespace

std::size_t Streams::wanted(Type type, std::uint16_t id, std::size_t length) const noexcept {
    if (type == Type::begin_request || type == Type::end_request) return length;
    const Stream* const stream = find(id);
    switch (type) {
        case Type::params:
        case Type::stdin_:
            return stream != nullptr && !stream->asked ? stream->text.wanted(type, length) : 0;
        case Type::stdout_:
            return stream != nullptr && stream->answered() ? stream->head.wanted(length)
                                                           : std::min(length, kMaxHead);
        default:
            return 0;
    }
}

void Streams::record(Bytes header, Bytes content, std::uint64_t at, std::uint64_t next, Recorder& recorder) {
    const Type type = type_of(header);
    const std::uint16_t id = id_of(header), length = length_of(header);
    switch (type) {
        case Type::begin_request:
            return begin_request(id, content, at, next, recorder);
        case Type::params:
        case Type::stdin_:
        case Type::data:
            if (Stream* const stream = asking(id, at, recorder)) {
                recorder.piece(stream->request, at, next);
                read_text(*stream, type, content, length, recorder);
            }
            return;
        case Type::abort_request:
            return abort(id, at, next, recorder);
        case Type::get_values:
            return alone("GET_VALUES", at, next, recorder);
        case Type::get_values_result:
            return alone("GET_VALUES_RESULT", at, next, recorder);
        case Type::unknown_type:
            return alone("UNKNOWN_TYPE", at, next, recorder);
        case Type::stdout_:
        case Type::stderr_:
        case Type::end_request:
            break;
    }
    Stream* const stream = answering(id, at, recorder);
    if (stream == nullptr) return;
    recorder.piece(stream->answer, at, next);
    if (type == Type::stdout_) {
        stream->head.read(stream->answer.ref, content, recorder);
    } else if (type == Type::stderr_) {
        if (length > 0) recorder.count("fastcgi.stderr");
    } else {
        stream->head.end(stream->answer.ref, content, recorder);
        stream->ended = true;
        erase_if_over(*stream);
    }
}

// ---- web server to application --------------------------------------------------------------------------------------

void Streams::begin_request(std::uint16_t id, Bytes content, std::uint64_t at, std::uint64_t next,
                            Recorder& recorder) {
    replace(id, recorder);
    if (!open_.empty()) recorder.count("fastcgi.multiplexed");
    Stream& stream = add(id, recorder);
    stream.request = recorder.begin_stream(MessageKind::request, at);
    stream.text.begin(content);
    recorder.piece(stream.request, at, next);
}

// The stream whose request a record of the web server belongs to; nullptr: none that is known.
Stream* Streams::asking(std::uint16_t id, std::uint64_t at, Recorder& recorder) {
    Stream* const stream = find(id);
    if (stream != nullptr && !stream->asked) return stream;
    const bool known = stream != nullptr && !stream->lossy[kToServer];
    if (!known) replace(id, recorder);  // it is of another request, whose BEGIN_REQUEST was lost
    const char* const name = known ? "fastcgi.record_after_end" : "fastcgi.unknown_id";
    recorder.count(name);
    recorder.remainder_from(at, name);
    return nullptr;
}

void Streams::read_text(Stream& stream, Type type, Bytes content, std::size_t length, Recorder& recorder) {
    RequestText& text = stream.text;
    const bool too_much = !content.empty() && texts_ + content.size() > kMaxTexts;
    if (too_much && text.forget()) recorder.count("fastcgi.texts_cut");
    const std::size_t before = text.kept();
    const MessageRef ref = stream.request.ref;
    stream.asked = type == Type::params ? text.params(ref, content, length, recorder)
                                        : text.input(ref, type, content, length, recorder);
    if (!text.collects()) text.release();
    texts_ += text.kept() - before;
    erase_if_over(stream);
}

void Streams::abort(std::uint16_t id, std::uint64_t at, std::uint64_t next, Recorder& recorder) {
    recorder.count("fastcgi.abort");
    Stream* const stream = find(id);
    if (stream == nullptr || stream->asked) return alone("ABORT_REQUEST", at, next, recorder);
    recorder.piece(stream->request, at, next);
    stream->asked = true;
    erase_if_over(*stream);
}

void Streams::alone(const char* text, std::uint64_t at, std::uint64_t next, Recorder& recorder) {
    Interleaved message = recorder.begin_stream(MessageKind::one_way, at);
    recorder.set_class(message.ref, Protocol::fastcgi, text);
    recorder.piece(message, at, next);
}

// ---- application to web server --------------------------------------------------------------------------------------

// The stream whose answer a record of the application belongs to; the answer begins with it. nullptr: none.
Stream* Streams::answering(std::uint16_t id, std::uint64_t at, Recorder& recorder) {
    Stream* stream = find(id);
    if (stream != nullptr && stream->ended) {
        if (!stream->lossy[kToServer]) {
            recorder.count("fastcgi.record_after_end");
            recorder.remainder_from(at, "fastcgi.record_after_end");
            return nullptr;
        }
        replace(id, recorder);  // of another request, whose BEGIN_REQUEST was lost
        stream = nullptr;
    }
    if (stream == nullptr) {
        recorder.count("fastcgi.unknown_id");
        stream = &add(id, recorder);
        stream->asked = true;
    }
    if (stream->answered()) return stream;
    const MessageRef request = stream->request.ref;
    stream->answer = recorder.begin_stream(MessageKind::response, at, request);
    stream->head.begin(request != kNoMessage && !stream->lossy[kToClient]);
    if (request != kNoMessage && stream->lossy[kToServer] && stream->lossy[kToClient]) {
        recorder.add_flags(stream->answer.ref, message_flag::inferred);
        recorder.counters.add("pairing.inferred", 1, Unit::messages);
    }
    return stream;
}

// ---- ids ------------------------------------------------------------------------------------------------------------

Stream* Streams::find(std::uint16_t id) const noexcept {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &*found->second;
}

// `id` must be in no use.
Stream& Streams::add(std::uint16_t id, Recorder& recorder) {
    if (open_.size() >= kMaxOpen) {
        recorder.count("fastcgi.too_many_open");
        drop(open_.front(), recorder);
    }
    Stream& stream = open_.emplace_back();
    stream.id = id;
    by_id_.emplace(id, std::prev(open_.end()));
    return stream;
}

// Another request has the id: what had it is over.
void Streams::replace(std::uint16_t id, Recorder& recorder) {
    Stream* const stream = find(id);
    if (stream == nullptr) return;
    if (!stream->ended && !stream->lossy[kToClient]) recorder.count("fastcgi.id_in_use");
    drop(*stream, recorder);
}

// Nothing that comes belongs to it any more.
void Streams::drop(Stream& stream, Recorder& recorder) {
    if (!stream.asked) recorder.add_flags(stream.request.ref, message_flag::unfinished);
    answer_cut(stream, recorder);
    erase(stream.id);
}

void Streams::erase_if_over(const Stream& stream) {
    if (stream.asked && stream.ended) erase(stream.id);
}

void Streams::erase(std::uint16_t id) {
    const auto found = by_id_.find(id);
    texts_ -= found->second->text.kept();
    open_.erase(found->second);
    by_id_.erase(found);
}

// ---- from one id to several -----------------------------------------------------------------------------------------

void Streams::take_over(std::uint16_t id, OpenMessage<RequestText>&& request,
                        const OpenMessage<AnswerHead>& answer, const bool (&lossy)[2], Recorder& recorder) {
    const MessageRef answered = answer.ref != kNoMessage ? recorder.answers(answer.ref) : kNoMessage;
    recorder.leave_order();
    const auto take = [&](MessageRef ref) -> Stream& {
        replace(id, recorder);
        Stream& stream = add(id, recorder);
        stream.request.ref = ref;
        stream.asked = ref == kNoMessage || ref != request.ref;
        std::copy_n(lossy, 2, stream.lossy);
        if (ref == answered && answer.ref != kNoMessage) {
            stream.answer.ref = answer.ref;
            stream.head = answer.text;
        }
        return stream;
    };
    while (recorder.has_request()) take(recorder.take_request());
    if (request.ref != kNoMessage) {
        Stream* stream = find(id);
        if (stream == nullptr || stream->request.ref != request.ref) {
            stream = &take(request.ref);
            stream->ended = !stream->answered();  // it has its answer already
        }
        stream->text = std::move(request.text);
        texts_ += stream->text.kept();
    }
    if (answer.ref != kNoMessage) {
        if (find(id) == nullptr) take(answered);
        // Else it was to a request before the one that has the id now.
        if (find(id)->answer.ref != answer.ref) recorder.add_flags(answer.ref, message_flag::unfinished);
    }
    in_one_piece_[kToServer] = request.ref;
    in_one_piece_[kToClient] = answer.ref;
    id_in_one_piece_ = id;
}

void Streams::go_on(Direction direction, std::uint64_t at, Recorder& recorder) {
    MessageRef& ref = in_one_piece_[static_cast<unsigned>(direction)];
    if (ref == kNoMessage) [[likely]]
        return;
    const Interleaved so_far = recorder.in_pieces(std::exchange(ref, kNoMessage), at);
    Stream* const stream = find(id_in_one_piece_);
    if (stream == nullptr) return;
    Interleaved& message = direction == Direction::to_server ? stream->request : stream->answer;
    if (message.ref == so_far.ref) message = so_far;
}

}  // namespace tapscope::fastcgi
