// FastCGI with several ids where bytes are missing, and at the end of a stream.
#include "dissect/fastcgi_streams.hpp"

namespace tapscope::fastcgi {

bool Streams::content_lost(Type type, std::uint16_t id, std::uint64_t at, std::uint64_t next,
                           Recorder& recorder) {
    if (type == Type::params || type == Type::stdin_) {
        Stream* const stream = find(id);
        if (stream == nullptr || stream->asked) return false;
        recorder.piece(stream->request, at, next);
        text_lost(*stream, recorder);
        return true;
    }
    if (type != Type::stdout_ && type != Type::end_request) return false;
    Stream* const stream = answering(id, at, recorder);
    if (stream == nullptr) return false;
    recorder.piece(stream->answer, at, next);
    stream->head.cut(stream->answer.ref, recorder);
    if (type == Type::end_request) {
        stream->ended = true;
        erase_if_over(*stream);
    }
    return true;
}

void Streams::text_lost(Stream& stream, Recorder& recorder) {
    if (!stream.text.forget()) return;
    recorder.count("fastcgi.request_text_lost");
    texts_ -= stream.text.kept();
    stream.text.release();
}

// Records of every open message may be among what was lost, and END_REQUEST and BEGIN_REQUEST of every id.
void Streams::lose(Direction direction, Recorder& recorder) {
    for (Stream& stream : open_) {
        stream.lossy[static_cast<unsigned>(direction)] = true;
        if (direction == Direction::to_server) {
            if (stream.asked) continue;
            recorder.add_flags(stream.request.ref, message_flag::truncated);
            text_lost(stream, recorder);
        } else if (stream.answered() && !stream.ended) {
            recorder.add_flags(stream.answer.ref, message_flag::truncated);
            stream.head.cut(stream.answer.ref, recorder);
        }
    }
}

void Streams::end(Direction direction, Recorder& recorder) {
    for (Stream& stream : open_) {
        if (direction == Direction::to_client) {
            answer_cut(stream, recorder);
            stream.ended = true;
        } else if (!stream.asked) {
            recorder.add_flags(stream.request.ref, message_flag::unfinished);
            if (stream.text.in_params()) recorder.count("fastcgi.request_cut");
            stream.asked = true;
        }
    }
}

// No more comes of the answer to the stream's request.
void Streams::answer_cut(Stream& stream, Recorder& recorder) {
    if (stream.ended) return;
    if (stream.answered()) {
        stream.head.cut(stream.answer.ref, recorder);
        recorder.add_flags(stream.answer.ref, message_flag::unfinished);
    } else if (stream.request.ref != kNoMessage && stream.lossy[1]) {
        recorder.add_flags(stream.request.ref, message_flag::answer_lost);
        recorder.counters.add("pairing.answer_lost", 1, Unit::messages);
    }
}

}  // namespace tapscope::fastcgi
