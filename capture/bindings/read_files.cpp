// Capture files to tables.
#include <memory>

#include "bindings.hpp"
#include "bytes.hpp"
#include "dissect/tls_keys.hpp"
#include "pipeline.hpp"
#include "source/merge.hpp"

namespace tapscope::bindings {

Settings make_settings(const py::bytes& salt, bool keep_text, const PortMap& port_map) {
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

void set_limits(Settings& settings, const std::unordered_map<std::string, std::int64_t>& values) {
    Limits& limits = settings.limits;
    for (const auto& [name, value] : values) {
        const auto port = [&, port_number = value](UdpTunnel tunnel) {
            settings.tunnel_ports.insert(settings.tunnel_ports.begin(),
                                         {static_cast<std::uint16_t>(port_number), tunnel});
        };
        if (value < 0) throw py::value_error("limits: " + name + " must not be negative");
        if (name == "reorder_packets")
            limits.reorder_packets = static_cast<std::uint32_t>(value);
        else if (name == "held_bytes")
            limits.held_bytes = static_cast<std::size_t>(value);
        else if (name == "held_bytes_of_stream")
            limits.held_bytes_of_stream = static_cast<std::size_t>(value);
        else if (name == "connections")
            limits.connections = static_cast<std::size_t>(value);
        else if (name == "tls_key_wait_ns")
            limits.tls_key_wait_ns = value;
        else if (name == "reorder_window_ns")
            settings.reorder_window_ns = value;
        else if (name == "vxlan_port")
            port(UdpTunnel::vxlan);
        else if (name == "geneve_port")
            port(UdpTunnel::geneve);
        else
            throw py::value_error("limits: there is no " + name);
    }
}

void take_secrets(const MergedSources& sources, TlsKeyLog& keys) {
    for (const auto& source : sources.sources()) {
        const std::string lines = source->take_secrets();
        if (!lines.empty()) keys.add(lines);
    }
}

namespace {

struct Read {
    const std::vector<std::string>& paths;
    const Settings& settings;
    const Progress& progress;

    std::unique_ptr<MergedSources> open(Counters& counters) const {
        try {
            const py::gil_scoped_release no_gil;
            std::vector<std::unique_ptr<Source>> opened;
            for (const std::string& path : paths)
                opened.push_back(open_file(path, static_cast<std::uint16_t>(opened.size()), counters));
            return std::make_unique<MergedSources>(std::move(opened), counters, settings.reorder_window_ns);
        } catch (const SourceError&) {
            if (!Pulse::pressed()) throw;
            PyErr_SetNone(PyExc_KeyboardInterrupt);
            throw py::error_already_set();
        }
    }
    void check(const MergedSources& sources, bool interrupted) const {
        if (!interrupted)
            for (const auto& source : sources.sources()) check_link_types(source->report());
    }
    py::dict tables(Engine& engine, const MergedSources& sources, bool interrupted) const {
        if (progress) (*progress)(sources.bytes_done(), sources.bytes_total());
        std::vector<const SourceReport*> reports;
        for (const auto& source : sources.sources()) reports.push_back(&source->report());
        return export_all(engine, reports, interrupted);
    }

    py::dict by_one() const {
        Engine engine(settings);
        const std::unique_ptr<MergedSources> sources = open(engine.counters());
        bool interrupted = false;
        {
            const py::gil_scoped_release no_gil;
            Pulse pulse(progress);
            std::vector<Packet> batch;
            batch.reserve(Source::kBatch);
            while (!interrupted) {
                sources->fill(batch);
                if (batch.empty()) break;
                take_secrets(*sources, *settings.tls_keys);
                engine.packets(batch);
                interrupted = pulse.interrupted(sources->bytes_done(), sources->bytes_total());
            }
            interrupted = interrupted || Pulse::pressed();
            engine.finish();
            check(*sources, interrupted);
        }
        return tables(engine, *sources, interrupted);
    }

    py::dict by_two() const {
        Pipeline pipeline(settings);
        const std::unique_ptr<MergedSources> sources = open(pipeline.source_counters());
        bool interrupted = false;
        {
            const py::gil_scoped_release no_gil;
            Pulse pulse(progress);
            interrupted = !pipeline.read(*sources, [&](std::uint64_t done, std::uint64_t total) {
                return pulse.interrupted(done, total);
            });
            interrupted = interrupted || Pulse::pressed();
            check(*sources, interrupted);
        }
        return tables(pipeline.engine(), *sources, interrupted);
    }
};

py::dict read_files(const std::vector<std::string>& paths, const py::bytes& salt, bool keep_text,
                    const PortMap& port_map, const Progress& progress,
                    const std::unordered_map<std::string, std::int64_t>& limits,
                    const std::string& tls_keylog, unsigned threads) {
    Settings settings = make_settings(salt, keep_text, port_map);
    set_limits(settings, limits);
    settings.tls_keys = std::make_shared<TlsKeyLog>(tls_keylog);
    settings.tls_keys->refresh();
    const Pulse::WhileWaiting waiting;
    const Read read{paths, settings, progress};
    return threads <= 1 || settings.limits.tls_key_wait_ns > 0 ? read.by_one() : read.by_two();
}

}  // namespace

void define_read_files(py::module_& m) {
    m.def("read_files", &read_files, py::arg("paths"), py::arg("salt"), py::arg("keep_text"),
          py::arg("port_map"), py::arg("progress"), py::arg("limits"), py::arg("tls_keylog"),
          py::arg("threads"));
}

}  // namespace tapscope::bindings
