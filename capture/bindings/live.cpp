// Packets of an interface to tables.
#include "source/live.hpp"
#include "bindings.hpp"

namespace tapscope::bindings {
namespace {

py::dict capture_live(const std::string& interface, std::optional<double> seconds,
                      std::optional<std::uint64_t> packets, int snaplen, const std::string& filter,
                      const std::string& write, int ring_bytes, bool promiscuous, const std::string& user,
                      const py::bytes& salt, bool keep_text, const PortMap& port_map,
                      const Progress& progress) {
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

}  // namespace

void define_live(py::module_& m) {
    m.def("capture_live", &capture_live, py::arg("interface"), py::arg("seconds"), py::arg("packets"),
          py::arg("snaplen"), py::arg("filter"), py::arg("write"), py::arg("ring_bytes"),
          py::arg("promiscuous"), py::arg("user"), py::arg("salt"), py::arg("keep_text"), py::arg("port_map"),
          py::arg("progress"));
}

}  // namespace tapscope::bindings
