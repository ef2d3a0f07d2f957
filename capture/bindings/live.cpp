// A capture that hands over its tables while it runs, from an interface or from files.
#include <algorithm>
#include <memory>

#include "bindings.hpp"
#include "source/live.hpp"
#include "source/merge.hpp"
#include "source/privileges.hpp"

namespace tapscope::bindings {
namespace {

using Limit = std::unordered_map<std::string, std::int64_t>;

// Python drives it: run() for a few milliseconds, then look at signals and the clock, and drain() about once a second.
// One thread at a time.
class Capture {
public:
    // `handed_over`: drain() is called while packets come, not only behind finish(). `dissect` false: packets are only
    // counted and written.
    static std::unique_ptr<Capture> of_interface(const std::string& interface, int snaplen,
                                                 const std::string& filter, const std::string& write,
                                                 int ring_bytes, bool promiscuous, const py::bytes& salt,
                                                 bool keep_text, const PortMap& port_map, bool handed_over,
                                                 bool dissect) {
        Settings settings = make_settings(salt, keep_text, port_map);
        settings.limits.reorder_ns = 1'000'000'000;  // a live tap must not keep messages back for long
        settings.limits.handed_over = handed_over;
        auto capture = std::make_unique<Capture>(settings);
        capture->live_ = std::make_unique<LiveSource>(
            LiveSettings{interface, filter, write, snaplen, ring_bytes, promiscuous},
            capture->engine_.recorder().counters);
        capture->dissect_ = dissect;
        capture->batch_.reserve(Source::kBatch);
        return capture;
    }

    static std::unique_ptr<Capture> of_files(const std::vector<std::string>& paths, const py::bytes& salt,
                                             bool keep_text, const PortMap& port_map, const Limit& limits) {
        Settings settings = make_settings(salt, keep_text, port_map);
        set_limits(settings, limits);
        settings.limits.handed_over = true;
        auto capture = std::make_unique<Capture>(settings);
        const py::gil_scoped_release no_gil;
        std::vector<std::unique_ptr<Source>> opened;
        for (const std::string& path : paths)
            opened.push_back(open_file(path, static_cast<std::uint16_t>(opened.size()),
                                       capture->engine_.recorder().counters));
        capture->files_ = std::make_unique<MergedSources>(
            std::move(opened), capture->engine_.recorder().counters, settings.reorder_window_ns);
        capture->batch_.reserve(Source::kBatch);
        return capture;
    }

    explicit Capture(const Settings& settings) : engine_(settings) {}

    // Takes packets for `milliseconds`, or until there are `packets` (at least as many as so far) in total. False when there will be no more.
    bool run(int milliseconds, std::uint64_t packets) {
        const py::gil_scoped_release no_gil;
        const Clock::time_point until = Clock::now() + std::chrono::milliseconds(milliseconds);
        do {
            if (at_ == batch_.size()) {
                at_ = 0;
                if (live_)
                    live_->fill(batch_);
                else
                    files_->fill(batch_);
                if (batch_.empty() && !live_) return false;
            }
            const std::size_t n = std::min<std::uint64_t>(batch_.size() - at_, packets - packets_);
            if (dissect_) engine_.packets(std::span(batch_).subspan(at_, n));
            at_ += n;
            packets_ += n;
            if (live_ && batch_.empty())
                engine_.tick(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count());
            if (packets_ >= packets) return false;
        } while (Clock::now() < until);
        return true;
    }

    // The end of the input: everything that waits is decided, everything open is closed.
    void finish() {
        const py::gil_scoped_release no_gil;
        if (live_) live_->update_counters();
        engine_.finish();
        if (files_)
            for (const auto& source : files_->sources()) check_link_types(source->report());
    }

    // Rows that wait for drain().
    std::size_t rows() {
        const Recorder& recorder = engine_.recorder();
        return recorder.messages.size + recorder.evidence.size + recorder.connections.size +
               recorder.connections_again.size + recorder.amendments.size;
    }

    py::dict drain() {
        update();
        return export_segment(engine_, reports(), classes_told_);
    }
    py::dict tables(bool interrupted) { return export_all(engine_, reports(), interrupted); }

    py::dict status() {
        update();
        py::dict out;
        Tracker& tracker = engine_.tracker();
        out["packets"] = packets_;
        out["messages"] = engine_.recorder().first_message + engine_.recorder().messages.size;
        out["connections_open"] = tracker.connections_open();
        out["counters"] = export_counters(engine_.recorder());
        py::list sources;
        for (const SourceReport* report : reports()) sources.append(export_report(*report));
        out["sources"] = sources;
        return out;
    }

private:
    void update() {
        if (live_) live_->update_counters();
    }
    std::vector<const SourceReport*> reports() const {
        if (live_) return {&live_->report()};
        std::vector<const SourceReport*> out;
        for (const auto& source : files_->sources()) out.push_back(&source->report());
        return out;
    }

    Engine engine_;
    std::unique_ptr<LiveSource> live_;
    std::unique_ptr<MergedSources> files_;
    std::vector<Packet> batch_;
    std::size_t at_ = 0;  // packets of the batch that were taken
    std::uint64_t packets_ = 0;
    bool dissect_ = true;  // false: packets are counted (and written by the source), and no more
    std::size_t classes_told_ = 0;
};

}  // namespace

void define_live(py::module_& m) {
    py::class_<Capture>(m, "Capture")
        .def_static("of_interface", &Capture::of_interface, py::kw_only(), py::arg("interface"),
                    py::arg("snaplen"), py::arg("filter"), py::arg("write"), py::arg("ring_bytes"),
                    py::arg("promiscuous"), py::arg("salt"), py::arg("keep_text"), py::arg("port_map"),
                    py::arg("handed_over"), py::arg("dissect"))
        .def_static("of_files", &Capture::of_files, py::kw_only(), py::arg("paths"), py::arg("salt"),
                    py::arg("keep_text"), py::arg("port_map"), py::arg("limits"))
        .def("run", &Capture::run, py::arg("milliseconds"), py::arg("packets"))
        .def("rows", &Capture::rows)
        .def("finish", &Capture::finish)
        .def("drain", &Capture::drain)
        .def("tables", &Capture::tables, py::arg("interrupted"))
        .def("status", &Capture::status);
    m.def("drop_privileges", &drop_privileges, py::arg("user"));
}

}  // namespace tapscope::bindings
