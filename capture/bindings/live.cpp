// Captures that hand over while they run: by libpcap, or from files.
#include "source/live.hpp"
#include "capture.hpp"
#include "source/privileges.hpp"

namespace tapscope::bindings {
namespace {

using Limit = std::unordered_map<std::string, std::int64_t>;

std::unique_ptr<Capture> of_interface(const std::string& interface, int snaplen, const std::string& filter,
                                      const std::string& write, int ring_bytes, bool promiscuous,
                                      const py::bytes& salt, bool keep_text, const PortMap& port_map,
                                      bool handed_over, bool dissect) {
    auto capture = std::make_unique<Capture>(live_settings(salt, keep_text, port_map, handed_over));
    const LiveSettings settings{interface, filter, write, snaplen, ring_bytes, promiscuous};
    capture->read_live(std::make_unique<LiveSource>(settings, capture->counters()), dissect);
    return capture;
}

std::unique_ptr<Capture> of_files(const std::vector<std::string>& paths, const py::bytes& salt,
                                  bool keep_text, const PortMap& port_map, const Limit& limits) {
    Settings settings = make_settings(salt, keep_text, port_map);
    set_limits(settings, limits);
    settings.limits.handed_over = true;
    settings.tls_keys = std::make_shared<TlsKeyLog>();
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
        .def_static("of_interface", &of_interface, py::kw_only(), py::arg("interface"), py::arg("snaplen"),
                    py::arg("filter"), py::arg("write"), py::arg("ring_bytes"), py::arg("promiscuous"),
                    py::arg("salt"), py::arg("keep_text"), py::arg("port_map"), py::arg("handed_over"),
                    py::arg("dissect"))
        .def_static("of_files", &of_files, py::kw_only(), py::arg("paths"), py::arg("salt"),
                    py::arg("keep_text"), py::arg("port_map"), py::arg("limits"));
    m.def("drop_privileges", &drop_privileges, py::arg("user"));
}

}  // namespace tapscope::bindings
