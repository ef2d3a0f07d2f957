// The extension module: what Python can call, the codes, and errors as exceptions.
#include "bindings.hpp"
#include "bytes.hpp"
#include "evidence.hpp"

namespace tapscope::bindings {
namespace {

py::dict codes() {
    const auto number = [](auto value) { return static_cast<unsigned>(value); };
    py::dict protocol, direction, kind, flag, close, event, token;
    protocol["UNKNOWN"] = number(Protocol::unknown);
    protocol["HTTP"] = number(Protocol::http);
    protocol["AJP"] = number(Protocol::ajp);
    protocol["MYSQL"] = number(Protocol::mysql);
    protocol["CJDBC"] = number(Protocol::cjdbc);
    protocol["POSTGRES"] = number(Protocol::postgres);
    protocol["FASTCGI"] = number(Protocol::fastcgi);
    protocol["HTTP2"] = number(Protocol::http2);
    protocol["TLS"] = number(Protocol::tls);
    protocol["REDIS"] = number(Protocol::redis);
    protocol["MEMCACHED"] = number(Protocol::memcached);
    protocol["AVATICA"] = number(Protocol::avatica);
    protocol["GRPC"] = number(Protocol::grpc);
    direction["TO_SERVER"] = number(Direction::to_server);
    direction["TO_CLIENT"] = number(Direction::to_client);
    kind["REQUEST"] = number(MessageKind::request);
    kind["RESPONSE"] = number(MessageKind::response);
    kind["INTERIM"] = number(MessageKind::interim);
    kind["ONE_WAY"] = number(MessageKind::one_way);
    flag["NONE"] = 0;
    flag["TRUNCATED"] = message_flag::truncated;
    flag["INFERRED"] = message_flag::inferred;
    flag["RETRANSMITTED"] = message_flag::retransmitted;
    flag["OPAQUE"] = message_flag::opaque;
    flag["ERROR"] = message_flag::error;
    flag["UNFINISHED"] = message_flag::unfinished;
    flag["RESYNCHRONISED"] = message_flag::resynchronised;
    flag["SUSPICIOUS"] = message_flag::suspicious;
    flag["ANSWER_LOST"] = message_flag::answer_lost;
    flag["SETUP"] = message_flag::setup;
    close["OPEN"] = number(CloseHow::open);
    close["FIN"] = number(CloseHow::fin);
    close["RST"] = number(CloseHow::rst);
    close["REUSED"] = number(CloseHow::reused);
    close["EVICTED"] = number(CloseHow::evicted);
    close["JUMPED"] = number(CloseHow::jumped);
    event["SYN_AGAIN"] = number(TcpEventKind::syn_again);
    event["SYN_ANSWER_AGAIN"] = number(TcpEventKind::syn_answer_again);
    event["RESENT"] = number(TcpEventKind::resent);
    event["RESENT_ASKED"] = number(TcpEventKind::resent_asked);
    event["RESENT_NEEDLESS"] = number(TcpEventKind::resent_needless);
    event["RESENT_UNSEEN"] = number(TcpEventKind::resent_unseen);
    event["ZERO_WINDOW"] = number(TcpEventKind::zero_window);
    event["RST"] = number(TcpEventKind::rst);
    token["URI"] = number(TokenKind::uri);
    token["NUMBER"] = number(TokenKind::number);
    token["TEXT"] = number(TokenKind::text);
    token["ENDPOINT"] = number(TokenKind::endpoint);
    token["RESULT"] = number(TokenKind::result);
    token["STATEMENT"] = number(TokenKind::statement);
    token["WORD"] = number(TokenKind::word);
    py::dict out;
    out["Protocol"] = protocol;
    out["Direction"] = direction;
    out["MessageKind"] = kind;
    out["MessageFlag"] = flag;
    out["CloseHow"] = close;
    out["TcpEventKind"] = event;
    out["TokenKind"] = token;
    py::list dissected;
    for (const Protocol known : dissected_protocols()) dissected.append(number(known));
    out["Dissected"] = dissected;
    out["ID_LIKE"] = id_like;
    return out;
}

}  // namespace
}  // namespace tapscope::bindings

using namespace tapscope;
using namespace tapscope::bindings;

PYBIND11_MODULE(_native, m) {
    m.doc() = "C++ engine of tapscope.capture; wrapped and documented in read.py";
    static py::exception<SourceError> source_error(m, "SourceError");
    py::register_exception_translator([](std::exception_ptr raised) {
        try {
            if (raised) std::rethrow_exception(raised);
        } catch (const SourceError& error) {
            const py::object offset = error.offset < 0 ? py::object(py::none()) : py::cast(error.offset);
            PyErr_SetObject(
                source_error.ptr(),
                py::make_tuple(text(error.what()), text(error.path), offset, text(error.remedy)).ptr());
        }
    });
    define_read_files(m);
    define_live(m);
    m.def("codes", &codes);
    m.def("slot_of_name", [](const std::string& name) { return slot_of_name(name); });
    m.def("looks_like_id", [](const std::string& value) { return looks_like_id(value); });
    m.def("token_hash", [](const py::bytes& salt, const py::bytes& value) {
        const std::string key = salt, bytes = value;
        if (key.size() != 16) throw py::value_error("salt must have 16 bytes");
        const auto* k = reinterpret_cast<const std::uint8_t*>(key.data());
        return siphash13({load_le64(k), load_le64(k + 8)}, as_bytes(bytes));
    });
}
