// The only file that knows both worlds: runs the engine with the GIL released and hands its columns to numpy as views.
//
// One capsule owns the Recorder with all columns; every array refers to the capsule, so the memory lives as long as
// any of them.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "bytes.hpp"
#include "engine.hpp"
#include "source/live.hpp"
#include "source/merge.hpp"

namespace py = pybind11;
using namespace tapscope;

namespace {

using Clock = std::chrono::steady_clock;
using Progress = std::optional<py::function>;

template <class T>
py::array view(const Column<T>& column, std::size_t rows, const py::capsule& owner) {
    return py::array(py::dtype::of<T>(), {rows}, {sizeof(T)}, column.data(), owner);
}

#define TAPSCOPE_EXPORT(type, name) out[#name] = view(table.name, table.size, owner);
py::dict export_table(const ConnectionColumns& table, const py::capsule& owner) {
    py::dict out;
    TAPSCOPE_CONNECTION_COLUMNS(TAPSCOPE_EXPORT)
    return out;
}
py::dict export_table(const MessageColumns& table, const py::capsule& owner) {
    py::dict out;
    TAPSCOPE_MESSAGE_COLUMNS(TAPSCOPE_EXPORT)
    return out;
}
py::dict export_table(const EvidenceColumns& table, const py::capsule& owner) {
    py::dict out;
    TAPSCOPE_EVIDENCE_COLUMNS(TAPSCOPE_EXPORT)
    return out;
}
#undef TAPSCOPE_EXPORT

// Bytes off the wire are not always UTF-8.
py::str text(const std::string& bytes) {
    return py::reinterpret_steal<py::str>(
        PyUnicode_DecodeUTF8(bytes.data(), static_cast<py::ssize_t>(bytes.size()), "backslashreplace"));
}

py::dict export_report(const SourceReport& report) {
    py::dict out;
    out["path"] = text(report.path);
    out["format"] = report.format;
    out["packets"] = report.packets;
    out["bytes"] = report.bytes;
    out["first_ns"] = report.first_ns;
    out["last_ns"] = report.last_ns;
    out["link_type"] = report.link_types.empty() ? -1 : int{report.link_types.front()};
    out["link_types"] = report.link_types;
    out["ts_resolution"] = report.resolution;
    out["truncated_packets"] = report.truncated_packets;
    if (report.drops_known) {
        out["received"] = report.received;
        out["dropped_by_kernel"] = report.dropped_by_kernel;
        out["dropped_by_interface"] = report.dropped_by_interface;
    }
    if (!report.warning.empty()) out["warning"] = text(report.warning);
    return out;
}

py::dict export_all(Engine& engine, const std::vector<const SourceReport*>& reports, bool interrupted) {
    auto* shared = new std::shared_ptr<Recorder>(engine.share_recorder());
    const py::capsule owner(shared, [](void* p) { delete static_cast<std::shared_ptr<Recorder>*>(p); });
    Recorder& recorder = engine.recorder();
    py::dict out;
    out["connections"] = export_table(recorder.connections, owner);
    out["messages"] = export_table(recorder.messages, owner);
    out["evidence"] = export_table(recorder.evidence, owner);
    py::list classes, examples, counters, sources;
    for (const auto& entry : recorder.classes.entries()) {
        classes.append(py::make_tuple(static_cast<int>(entry.protocol), text(entry.text)));
        examples.append(text(entry.example));
    }
    for (const auto& row : recorder.counters.rows())
        counters.append(py::make_tuple(text(row.name), row.value, unit_name(row.unit)));
    for (const auto& row : recorder.remainders.rows())
        counters.append(py::make_tuple(text("unparsed." + row.name), row.value, unit_name(row.unit)));
    for (const SourceReport* report : reports) sources.append(export_report(*report));
    out["classes"] = classes;
    out["examples"] = examples;
    out["addresses"] = engine.tracker().addresses().texts();
    out["counters"] = counters;
    out["sources"] = sources;
    out["interrupted"] = interrupted;
    return out;
}

// Calls back to Python a few times a second: signals and progress. Call without the GIL.
class Pulse {
public:
    explicit Pulse(const Progress& progress) : progress_(progress) {}
    // True when the user pressed Ctrl-C: stop, and keep what is done.
    bool interrupted(std::uint64_t done, std::uint64_t total) {
        const Clock::time_point now = Clock::now();
        if (now - last_ < std::chrono::milliseconds(200)) return false;
        last_ = now;
        const py::gil_scoped_acquire gil;
        if (PyErr_CheckSignals() != 0) {
            if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) throw py::error_already_set();
            PyErr_Clear();
            return true;
        }
        if (progress_) (*progress_)(done, total);
        return false;
    }

private:
    const Progress& progress_;
    Clock::time_point last_ = Clock::now();
};

Settings make_settings(const py::bytes& salt, bool keep_text,
                       const std::unordered_map<std::uint16_t, int>& port_map) {
    const std::string key = salt;
    if (key.size() != 16) throw py::value_error("salt must have 16 bytes, not " + std::to_string(key.size()));
    Settings settings;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(key.data());
    settings.salt = {load_le64(bytes), load_le64(bytes + 8)};
    settings.keep_text = keep_text;
    for (const auto& [port, protocol] : port_map) {
        AnyDissector probe;
        if (!emplace_dissector(probe, static_cast<Protocol>(protocol)))
            throw py::value_error("port_map: no dissector for protocol " + std::to_string(protocol));
        settings.port_map[port] = static_cast<Protocol>(protocol);
    }
    return settings;
}

void set_limits(Limits& limits, const std::unordered_map<std::string, std::int64_t>& values) {
    for (const auto& [name, value] : values) {
        if (value < 0) throw py::value_error("limits: " + name + " must not be negative");
        if (name == "reorder_packets")
            limits.reorder_packets = static_cast<std::uint32_t>(value);
        else if (name == "held_bytes")
            limits.held_bytes = static_cast<std::size_t>(value);
        else if (name == "held_bytes_of_stream")
            limits.held_bytes_of_stream = static_cast<std::size_t>(value);
        else if (name == "connections")
            limits.connections = static_cast<std::size_t>(value);
        else
            throw py::value_error("limits: there is no " + name);
    }
}

py::dict read_files(const std::vector<std::string>& paths, const py::bytes& salt, bool keep_text,
                    const std::unordered_map<std::uint16_t, int>& port_map, const Progress& progress,
                    const std::unordered_map<std::string, std::int64_t>& limits) {
    Settings settings = make_settings(salt, keep_text, port_map);
    set_limits(settings.limits, limits);
    Engine engine(settings);
    bool interrupted = false;
    std::vector<std::unique_ptr<Source>> opened;
    {
        const py::gil_scoped_release no_gil;
        for (const std::string& path : paths)
            opened.push_back(
                open_file(path, static_cast<std::uint16_t>(opened.size()), engine.recorder().counters));
    }
    MergedSources sources(std::move(opened));
    {
        const py::gil_scoped_release no_gil;
        Pulse pulse(progress);
        std::vector<Packet> batch;
        batch.reserve(Source::kBatch);
        while (!interrupted) {
            sources.fill(batch);
            if (batch.empty()) break;
            engine.packets(batch);
            interrupted = pulse.interrupted(sources.bytes_done(), sources.bytes_total());
        }
        engine.finish();
        if (!interrupted)
            for (const auto& source : sources.sources()) check_link_types(source->report());
    }
    if (progress) (*progress)(sources.bytes_done(), sources.bytes_total());
    std::vector<const SourceReport*> reports;
    for (const auto& source : sources.sources()) reports.push_back(&source->report());
    return export_all(engine, reports, interrupted);
}

py::dict capture_live(const std::string& interface, std::optional<double> seconds,
                      std::optional<std::uint64_t> packets, int snaplen, const std::string& filter,
                      const std::string& write, int ring_bytes, bool promiscuous, const std::string& user,
                      const py::bytes& salt, bool keep_text,
                      const std::unordered_map<std::uint16_t, int>& port_map, const Progress& progress) {
    Settings settings = make_settings(salt, keep_text, port_map);
    settings.limits.reorder_ns = 1'000'000'000;  // a live tap must not keep messages back for long
    Engine engine(settings);
    LiveSource source({interface, filter, write, user, snaplen, ring_bytes, promiscuous},
                      engine.recorder().counters);
    bool interrupted = false;
    {
        const py::gil_scoped_release no_gil;
        Pulse pulse(progress);
        const Clock::time_point start = Clock::now();
        std::vector<Packet> batch;
        while (!interrupted) {
            source.fill(batch);
            if (packets && engine.packet_count() + batch.size() > *packets)
                batch.resize(static_cast<std::size_t>(*packets - engine.packet_count()));
            engine.packets(batch);
            if (batch.empty())
                engine.tick(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count());
            if (packets && engine.packet_count() >= *packets) break;
            if (seconds && std::chrono::duration<double>(Clock::now() - start).count() >= *seconds) break;
            interrupted = pulse.interrupted(source.bytes_done(), 0);
        }
        source.update_counters();
        engine.finish();
    }
    return export_all(engine, {&source.report()}, interrupted);
}

py::dict codes() {
    const auto number = [](auto value) { return static_cast<unsigned>(value); };
    py::dict protocol, direction, kind, flag, close, token;
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
    close["OPEN"] = number(CloseHow::open);
    close["FIN"] = number(CloseHow::fin);
    close["RST"] = number(CloseHow::rst);
    close["REUSED"] = number(CloseHow::reused);
    close["EVICTED"] = number(CloseHow::evicted);
    token["URI"] = number(TokenKind::uri);
    token["NUMBER"] = number(TokenKind::number);
    token["TEXT"] = number(TokenKind::text);
    token["ENDPOINT"] = number(TokenKind::endpoint);
    token["RESULT"] = number(TokenKind::result);
    token["STATEMENT"] = number(TokenKind::statement);
    py::dict out;
    out["Protocol"] = protocol;
    out["Direction"] = direction;
    out["MessageKind"] = kind;
    out["MessageFlag"] = flag;
    out["CloseHow"] = close;
    out["TokenKind"] = token;
    py::list dissected;
    for (const Protocol known : dissected_protocols()) dissected.append(number(known));
    out["Dissected"] = dissected;
    out["ID_LIKE"] = id_like;
    return out;
}

}  // namespace

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
    m.def("read_files", &read_files, py::arg("paths"), py::arg("salt"), py::arg("keep_text"),
          py::arg("port_map"), py::arg("progress"), py::arg("limits"));
    m.def("capture_live", &capture_live, py::arg("interface"), py::arg("seconds"), py::arg("packets"),
          py::arg("snaplen"), py::arg("filter"), py::arg("write"), py::arg("ring_bytes"),
          py::arg("promiscuous"), py::arg("user"), py::arg("salt"), py::arg("keep_text"), py::arg("port_map"),
          py::arg("progress"));
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
