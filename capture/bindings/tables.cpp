// Columns to numpy. One capsule owns the Recorder with all columns; every array refers to the capsule, so the memory
// lives as long as any of them.
#include <algorithm>
#include <memory>

#include "bindings.hpp"

namespace tapscope::bindings {
namespace {

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

}  // namespace

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
    py::list classes, examples, counters, sources, tap_points;
    for (const auto& entry : recorder.classes.entries()) {
        classes.append(py::make_tuple(static_cast<int>(entry.protocol), text(entry.text)));
        examples.append(text(entry.example));
    }
    for (const auto& row : recorder.counters.rows())
        counters.append(py::make_tuple(text(row.name), row.value, unit_name(row.unit)));
    for (const auto& row : recorder.remainders.rows())
        counters.append(py::make_tuple(text("unparsed." + row.name), row.value, unit_name(row.unit)));
    std::uint64_t other_packets = engine.packet_count(), other_bytes = 0;
    for (const SourceReport* report : reports) {
        sources.append(export_report(*report));
        other_bytes += report->bytes;
    }
    const auto& taps = recorder.tap_points.rows();
    for (std::size_t i = 1; i < taps.size(); ++i) {
        tap_points.append(py::make_tuple(taps[i].code, taps[i].packets, taps[i].bytes, taps[i].copies));
        other_packets -= taps[i].packets;
        other_bytes -= std::min(other_bytes, taps[i].bytes);
    }
    tap_points.insert(0, py::make_tuple(0, other_packets, other_bytes, taps[0].copies));
    out["classes"] = classes;
    out["examples"] = examples;
    out["addresses"] = engine.tracker().addresses().texts();
    out["counters"] = counters;
    out["sources"] = sources;
    out["tap_points"] = tap_points;
    out["interrupted"] = interrupted;
    return out;
}

}  // namespace tapscope::bindings
