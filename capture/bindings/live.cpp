// Captures that hand over while they run: by libpcap, or from files.
#include "source/live.hpp"
#include "capture.hpp"
#include "source/live_group.hpp"
#include "source/privileges.hpp"

namespace tapscope::bindings {
namespace {

using Limit = std::unordered_map<std::string, std::int64_t>;

std::unique_ptr<Capture> of_interfaces(const std::vector<std::string>& interfaces, int snaplen,
                                       const std::string& filter, int ring_bytes, bool promiscuous,
                                       const std::string& clock, int fanout, const py::bytes& salt,
                                       bool keep_text, const PortMap& port_map, bool handed_over,
                                       const std::string& tls_keylog, std::int64_t tls_key_wait_ns,
                                       bool dissect) {
    auto capture = std::make_unique<Capture>(
        live_settings(salt, keep_text, port_map, handed_over, tls_keylog, tls_key_wait_ns));
    std::vector<std::unique_ptr<LiveInput>> inputs;
    for (const std::string& interface : interfaces)
        inputs.push_back(std::make_unique<LiveSource>(
            LiveSettings{interface, filter, snaplen, ring_bytes, promiscuous, clock, fanout},
            capture->counters()));
    if (inputs.size() == 1)
        capture->read_live(std::move(inputs.front()), dissect);
    else
        capture->read_live(std::make_unique<LiveGroup>(std::move(inputs)), dissect);
    return capture;
}

std::unique_ptr<Capture> of_files(const std::vector<std::string>& paths, const py::bytes& salt,
                                  bool keep_text, const PortMap& port_map, const Limit& limits,
                                  const std::string& tls_keylog) {
    Settings settings = make_settings(salt, keep_text, port_map);
    set_limits(settings, limits);
    settings.limits.handed_over = true;
    settings.tls_keys = std::make_shared<TlsKeyLog>(tls_keylog);
    settings.tls_keys->refresh();
    auto capture = std::make_unique<Capture>(settings);
    const py::gil_scoped_release no_gil;
    std::vector<std::unique_ptr<Source>> opened;
    for (const std::string& path : paths)
        opened.push_back(open_file(path, static_cast<std::uint16_t>(opened.size()), capture->counters()));
    capture->read_files(
        std::make_unique<MergedSources>(std::move(opened), capture->counters(), settings.reorder_window_ns),
        settings.tls_keys);
    return capture;
}

}  // namespace

void define_live(py::module_& m) {
    define_capture(m)
        .def_static("of_interfaces", &of_interfaces, py::kw_only(), py::arg("interfaces"), py::arg("snaplen"),
                    py::arg("filter"), py::arg("ring_bytes"), py::arg("promiscuous"), py::arg("clock"),
                    py::arg("fanout"), py::arg("salt"), py::arg("keep_text"), py::arg("port_map"),
                    py::arg("handed_over"), py::arg("tls_keylog"), py::arg("tls_key_wait_ns"),
                    py::arg("dissect"))
        .def_static("of_files", &of_files, py::kw_only(), py::arg("paths"), py::arg("salt"),
                    py::arg("keep_text"), py::arg("port_map"), py::arg("limits"), py::arg("tls_keylog") = "");
    m.def("drop_privileges", &drop_privileges, py::arg("user"));
}

}  // namespace tapscope::bindings
