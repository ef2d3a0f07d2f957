// The module _dpdk: captures by DPDK. A module of its own, so that everything else runs where DPDK is not installed.
#include "source/dpdk.hpp"
#include "capture.hpp"

namespace tapscope::bindings {
namespace {

std::unique_ptr<Capture> of_device(const std::vector<std::string>& eal, const std::string& device,
                                   const std::string& interface, std::uint16_t queues, bool promiscuous,
                                   const py::bytes& salt, bool keep_text, const PortMap& port_map,
                                   bool handed_over, const std::string& tls_keylog,
                                   std::int64_t tls_key_wait_ns) {
    auto capture = std::make_unique<Capture>(
        live_settings(salt, keep_text, port_map, handed_over, tls_keylog, tls_key_wait_ns));
    const DpdkSettings settings{eal, device, interface, queues, promiscuous};
    capture->read_live(std::make_unique<DpdkSource>(settings, capture->counters()), true);
    return capture;
}

}  // namespace
}  // namespace tapscope::bindings

PYBIND11_MODULE(_dpdk, m) {
    using namespace tapscope::bindings;
    m.doc() = "Packets by DPDK; wrapped and documented in live.py";
    py::module_::import("tapscope.capture._native");  // it knows how SourceError is told to Python
    define_capture(m).def_static("of_device", &of_device, py::kw_only(), py::arg("eal"), py::arg("device"),
                                 py::arg("interface"), py::arg("queues"), py::arg("promiscuous"),
                                 py::arg("salt"), py::arg("keep_text"), py::arg("port_map"),
                                 py::arg("handed_over"), py::arg("tls_keylog"), py::arg("tls_key_wait_ns"));
}
