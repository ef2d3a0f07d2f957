// Header blocks of HTTP/2: which message they begin or end, and what their fields say of it.
#include <algorithm>

#include "dissect/http2_session.hpp"
#include "dissect/route.hpp"
#include "evidence.hpp"

namespace tapscope {

using http2::Block;
using http2::Fields;
using http2::Side;
using http2::Stream;
using http2::Type;

namespace {

std::int32_t number(std::string_view text, std::size_t max_digits) noexcept {
    if (text.size() > max_digits || !all_digits(text)) return -1;
    std::int32_t value = 0;
    for (const char c : text) value = value * 10 + (c - '0');
    return value;
}

// "/package.Service/Method" and nothing behind it.
bool could_be_grpc(const Fields& fields) noexcept {
    const std::string_view path = fields.target;
    const std::size_t second = path.find('/', 1);
    return fields.method == "POST" && second != std::string_view::npos &&
           path.find_first_of("/?", second + 1) == std::string_view::npos;
}

void clear_text(std::string& text) {
    if (text.capacity() > 1024)
        text = {};
    else
        text.clear();
}

}  // namespace

namespace http2 {

void Fields::clear() {
    clear_text(method);
    clear_text(target);
    clear_text(authority);
    status = grpc_status = -1;
    extras = 0;
    grpc = form = typed = missing = false;
}

void Fields::read(std::string_view name, std::string_view value, Recorder& recorder, MessageRef evidence_of) {
    if (name.empty()) {
        missing = true;
        return;
    }
    const std::string_view kept = value.substr(0, kMaxTarget);
    switch (name.front()) {
        case ':':
            if (name == ":path")
                target = kept;
            else if (name == ":method")
                method = kept;
            else if (name == ":authority")
                authority = kept;
            else if (name == ":status")
                status = number(value, 3);
            return;
        case 'c':
            if (name == "content-type") {
                typed = true;
                grpc = value.starts_with("application/grpc");
                form = value.starts_with("application/x-www-form-urlencoded");
            } else if (name == "cookie" && evidence_of != kNoMessage && extras++ < HttpHead::kMaxExtras) {
                cookie_evidence(recorder, evidence_of, value);
            }
            return;
        case 'g':
            if (name == "grpc-status") grpc_status = number(value, 4);
            return;
        case 't':
        case 'x':
            if ((name.starts_with("x-") ? name.size() > 2 : name == kTraceParent) &&
                evidence_of != kNoMessage && extras++ < HttpHead::kMaxExtras)
                header_evidence(recorder, evidence_of, name, value);
            return;
        default:
            return;
    }
}

}  // namespace http2

// HEADERS or PUSH_PROMISE: begins a message, or a block of one that has begun.
void Http2Dissector::Session::open_block(Direction direction, Recorder& recorder) {
    Side& mine = side(direction);
    mine.fields.clear();
    mine.broken = false;
    mine.block = Block::other;
    mine.block_stream = mine.frame.stream;
    mine.block_ends_stream = mine.frame.type == Type::headers && mine.frame.has(http2::kEndStream);
    if (mine.frame.type == Type::push_promise) {
        if (direction == Direction::to_server) return;
        mine.block = Block::promise;
        mine.promise = recorder.begin_stream(MessageKind::one_way, 0);
        return;
    }
    const std::uint32_t id = mine.frame.stream;
    const bool by_client = (id & 1) != 0;
    Stream* stream = streams.find(id);
    if (direction == Direction::to_server) {
        if (stream == nullptr) {
            // Numbers only grow: a lower one is the trailer of a request that was not seen, or that is long over.
            if (!by_client || id <= highest) return;
            highest = id;
            mine.block = Block::request;
            add_stream(id, recorder).request = recorder.begin_stream(MessageKind::request, 0);
        } else if (!stream->closed && !stream->client_ended && stream->request.ref != kNoMessage) {
            mine.block = Block::trailer;
        }
        return;
    }
    if (stream == nullptr) {
        const bool upgraded = id == 1 && recorder.has_request();  // begun in HTTP/1
        if (!upgraded && !(by_client && lossy[0])) return;
        stream = &add_stream(id, recorder);
        if (upgraded) stream->request.ref = recorder.take_request();
        stream->client_ended = true;
        highest = std::max(highest, id);
    }
    if (stream->closed || stream->server_ended) return;
    if (stream->answered) {
        mine.block = Block::trailer;
        return;
    }
    mine.block = Block::response;
    stream->response = recorder.begin_stream(MessageKind::response, 0, stream->request.ref);
}

Interleaved* Http2Dissector::Session::message_of_block(Direction direction) noexcept {
    Side& mine = side(direction);
    if (mine.block == Block::promise) return &mine.promise;
    if (mine.block == Block::none || mine.block == Block::other) return nullptr;
    Stream* const stream = streams.find(mine.block_stream);
    if (stream == nullptr) return nullptr;
    return direction == Direction::to_server ? &stream->request : &stream->response;
}

void Http2Dissector::Session::end_block(Direction direction, Recorder& recorder) {
    Side& mine = side(direction);
    const Block block = mine.block;
    mine.block = Block::none;
    if (block == Block::promise) {
        Stream promise;
        promise.request = mine.promise;
        end_request(promise, mine, recorder);
        return;
    }
    Stream* const stream = streams.find(mine.block_stream);
    if (stream == nullptr || block == Block::other) return;
    if (block == Block::request)
        end_request(*stream, mine, recorder);
    else if (block == Block::response)
        end_response(*stream, mine, recorder);
    else
        end_trailer(*stream, direction, mine, recorder);
    if (mine.block_ends_stream) stream_ended(direction, *stream, recorder);
}

void Http2Dissector::Session::end_request(Stream& stream, Side& mine, Recorder& recorder) {
    const Fields& fields = mine.fields;
    const MessageRef ref = stream.request.ref;
    if (fields.missing) recorder.add_flags(ref, message_flag::inferred);
    stream.grpc = fields.grpc;
    stream.form = fields.form;
    if (fields.grpc) recorder.set_protocol(ref, Protocol::grpc);
    if (fields.grpc && !fields.target.empty()) {
        call_route(recorder, ref, Protocol::grpc, fields.method, fields.target);
    } else if (!fields.method.empty() && !fields.target.empty()) {
        if (!fields.missing || fields.typed || !could_be_grpc(fields))
            request_route(recorder, ref, protocol, fields.method, fields.target);
        else
            request_evidence(recorder, ref, fields.target);
    } else if (fields.method == "CONNECT" && !fields.authority.empty()) {
        request_route(recorder, ref, protocol, fields.method, fields.authority);
    } else if (!fields.missing) {
        recorder.add_flags(ref, message_flag::suspicious);
        recorder.count("http2.request_without_path");
    }
    recorder.endpoint_token(ref);
}

void Http2Dissector::Session::end_response(Stream& stream, Side& mine, Recorder& recorder) {
    const Fields& fields = mine.fields;
    const MessageRef ref = stream.response.ref;
    if (fields.missing) recorder.add_flags(ref, message_flag::inferred);
    if (fields.status >= 0) recorder.set_status(ref, fields.status);
    if (fields.status >= 100 && fields.status < 200 && !mine.block_ends_stream)
        return recorder.make_interim(ref);
    stream.answered = true;
    if (fields.status < 0 && !fields.missing) {
        // A trailer whose head was lost, or no HTTP/2.
        recorder.add_flags(
            ref, is_lossy() ? message_flag::truncated | message_flag::inferred : message_flag::suspicious);
        recorder.count(is_lossy() ? "http2.answer_without_head" : "http2.response_without_status");
    }
    stream.grpc = stream.grpc || fields.grpc;
    if (stream.grpc) recorder.set_protocol(ref, Protocol::grpc);
    if (fields.status >= 500 || (stream.grpc && fields.status >= 0 && fields.status != 200))
        recorder.add_flags(ref, message_flag::error);
    grpc_result(ref, fields, recorder);
}

void Http2Dissector::Session::end_trailer(Stream& stream, Direction direction, Side& mine,
                                          Recorder& recorder) {
    const MessageRef ref = direction == Direction::to_server ? stream.request.ref : stream.response.ref;
    if (mine.fields.missing) recorder.add_flags(ref, message_flag::inferred);
    if (direction == Direction::to_client && stream.grpc) grpc_result(ref, mine.fields, recorder);
}

// The status of a gRPC call is in its trailer; in the head when there is nothing else ("Trailers-Only").
void Http2Dissector::Session::grpc_result(MessageRef ref, const Fields& fields, Recorder& recorder) {
    if (fields.grpc_status < 0) return;
    recorder.set_protocol(ref, Protocol::grpc);
    recorder.set_status(ref, fields.grpc_status);
    if (fields.grpc_status != 0) recorder.add_flags(ref, message_flag::error);
}

}  // namespace tapscope
