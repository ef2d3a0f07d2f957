// Columns to numpy. One capsule owns the tables with all columns; every array refers to the capsule, so the memory
// lives as long as any of them.
#include <algorithm>
#include <utility>

#include "bindings.hpp"

namespace tapscope::bindings {
namespace {

template <class T>
py::array view(const Column<T>& column, std::size_t rows, const py::capsule& owner) {
    return py::array(py::dtype::of<T>(), {rows}, {sizeof(T)}, column.data(), owner);
}

#define TAPSCOPE_EXPORT(type, name) out[#name] = view(table.name, table.size, owner);
py::dict export_table(const ContentColumns& table, const py::capsule& owner) {
    py::dict out;
    TAPSCOPE_CONTENT_COLUMNS(TAPSCOPE_EXPORT)
    return out;
}
py::dict export_table(const ConnectionColumns& table, const ContentColumns& contents,
                      const py::capsule& owner) {
    py::dict out;
    TAPSCOPE_CONNECTION_COLUMNS(TAPSCOPE_EXPORT)
    for (const auto& [name, column] : export_table(contents, owner)) out[name] = column;
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
py::dict export_table(const TcpEventColumns& table, const py::capsule& owner) {
    py::dict out;
    TAPSCOPE_TCP_EVENT_COLUMNS(TAPSCOPE_EXPORT)
    return out;
}
py::dict export_table(const AmendmentColumns& table, const py::capsule& owner) {
    py::dict out;
    TAPSCOPE_AMENDMENT_COLUMNS(TAPSCOPE_EXPORT)
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
    if (!report.clock.empty()) out["clock"] = report.clock;
    out["truncated_packets"] = report.truncated_packets;
    if (report.drops_known) {
        out["received"] = report.received;
        out["dropped_by_kernel"] = report.dropped_by_kernel;
        out["dropped_by_interface"] = report.dropped_by_interface;
    }
    if (!report.warning.empty()) out["warning"] = text(report.warning);
    return out;
}

py::list export_counters(Engine& engine) {
    Recorder& recorder = engine.recorder();
    Counters all = engine.counters();
    all.add_all(recorder.counters);
    py::list counters;
    for (const auto& row : all.rows())
        counters.append(py::make_tuple(text(row.name), row.value, unit_name(row.unit)));
    for (const auto& row : recorder.remainders.rows())
        counters.append(py::make_tuple(text("unparsed." + row.name), row.value, unit_name(row.unit)));
    return counters;
}

namespace {

py::dict export_tables(Tables* tables, const py::capsule& owner) {
    py::dict out;
    out["connections"] = export_table(tables->connections, tables->contents, owner);
    out["messages"] = export_table(tables->messages, owner);
    out["evidence"] = export_table(tables->evidence, owner);
    out["tcp_events"] = export_table(tables->tcp_events, owner);
    return out;
}

py::capsule owner_of(Tables* tables) {
    return py::capsule(tables, [](void* p) { delete static_cast<Tables*>(p); });
}

py::list export_reports(const std::vector<const SourceReport*>& reports) {
    py::list sources;
    for (const SourceReport* report : reports) sources.append(export_report(*report));
    return sources;
}

// What a whole capture gave, by tap point. What came outside of any is the rest.
py::list export_tap_points(Engine& engine, const std::vector<const SourceReport*>& reports) {
    std::uint64_t other_packets = engine.packet_count(), other_bytes = 0;
    for (const SourceReport* report : reports) other_bytes += report->bytes;
    py::list tap_points;
    const auto& taps = engine.tap_points().rows();
    for (std::size_t i = 1; i < taps.size(); ++i) {
        tap_points.append(py::make_tuple(taps[i].code, taps[i].packets, taps[i].bytes, taps[i].copies));
        other_packets -= taps[i].packets;
        other_bytes -= std::min(other_bytes, taps[i].bytes);
    }
    tap_points.insert(0, py::make_tuple(0, other_packets, other_bytes, taps[0].copies));
    return tap_points;
}

}  // namespace

py::dict export_all(Engine& engine, const std::vector<const SourceReport*>& reports, bool interrupted) {
    auto* tables = new Tables(engine.drain());
    const py::capsule owner = owner_of(tables);
    py::dict out = export_tables(tables, owner);
    py::list classes, examples;
    for (const auto& entry : engine.recorder().classes.entries()) {
        classes.append(py::make_tuple(static_cast<int>(entry.protocol), text(entry.text)));
        examples.append(text(entry.example));
    }
    out["classes"] = classes;
    out["examples"] = examples;
    out["addresses"] = engine.tracker().addresses().texts();
    out["counters"] = export_counters(engine);
    out["sources"] = export_reports(reports);
    out["tap_points"] = export_tap_points(engine, reports);
    out["interrupted"] = interrupted;
    return out;
}

py::dict export_segment(Engine& engine, const std::vector<const SourceReport*>& reports,
                        std::size_t& classes_told) {
    auto* tables = new Tables(engine.drain());
    const py::capsule owner = owner_of(tables);
    py::dict out = export_tables(tables, owner);
    out["amendments"] = export_table(tables->amendments, owner);
    out["connections_again"] = export_table(tables->connections_again, tables->contents_again, owner);
    out["again"] = py::array(py::dtype::of<std::int64_t>(), {tables->again.size()}, {sizeof(std::int64_t)},
                             tables->again.data(), owner);
    out["first_message"] = tables->first_message;
    out["first_connection"] = tables->first_connection;
    py::list classes;
    Recorder& recorder = engine.recorder();
    const auto tell = [&](std::size_t id) {
        const auto& entry = recorder.classes.entries()[id];
        classes.append(
            py::make_tuple(id, static_cast<int>(entry.protocol), text(entry.text), text(entry.example)));
    };
    for (const std::int32_t id : std::exchange(recorder.new_examples, {}))
        if (static_cast<std::size_t>(id) < classes_told) tell(static_cast<std::size_t>(id));
    for (; classes_told < recorder.classes.entries().size(); ++classes_told) tell(classes_told);
    out["classes"] = classes;
    out["addresses"] = engine.tracker().addresses().texts();
    engine.tracker().addresses().clear();
    out["counters"] = export_counters(engine);
    out["sources"] = export_reports(reports);
    out["tap_points"] = export_tap_points(engine, reports);
    return out;
}

}  // namespace tapscope::bindings
