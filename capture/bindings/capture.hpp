// A capture that hands over its tables while it runs, from an interface, a device or files.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "bindings.hpp"
#include "source/live_input.hpp"
#include "source/merge.hpp"
#include "source/packet_file.hpp"

namespace tapscope::bindings {

// Python drives it: run() for a few milliseconds, then look at signals and the clock, and drain() about once a second.
// One thread at a time.
class Capture {
public:
    explicit Capture(const Settings& settings) : engine_(settings) { batch_.reserve(Source::kBatch); }

    // `dissect` false: packets are only counted and written.
    void read_live(std::unique_ptr<LiveInput> input, bool dissect) {
        live_ = std::move(input);
        dissect_ = dissect;
    }
    // `keys` get what pcapng files hold.
    void read_files(std::unique_ptr<MergedSources> files, std::shared_ptr<TlsKeyLog> keys) {
        files_ = std::move(files);
        files_->do_not_wait();
        tls_keys_ = std::move(keys);
    }
    // Every packet goes to pcap files, too. All interfaces must have one link type.
    void write_to(const std::string& path, std::uint64_t bytes, std::int64_t seconds, std::uint32_t files,
                  std::uint32_t snaplen) {
        const auto told = reports();
        for (const SourceReport* report : told)
            if (report->link_types != told.front()->link_types)
                throw SourceError("the interfaces have different link types", path, -1,
                                  "Write one file for each interface.");
        written_ =
            std::make_unique<PacketFile>(path, Rotation{bytes, seconds, files},
                                         static_cast<LinkType>(told.front()->link_types.front()), snaplen);
    }
    // The open packet file; empty: none, or none yet.
    std::string packet_file() const { return written_ ? written_->open_path() : std::string(); }
    bool packet_file_lost() const noexcept { return written_ && written_->lost(); }
    Counters& counters() noexcept { return engine_.counters(); }

    // Takes packets for `milliseconds`, or until there are `packets` (at least as many as so far) in total. False
    // when there will be no more.
    bool run(int milliseconds, std::uint64_t packets) {
        const py::gil_scoped_release no_gil;
        const bool more = take(milliseconds, packets);
        if (const Clock::time_point now = Clock::now(); live_ && now - asked_ >= kAskEvery) {
            live_->update_counters();
            asked_ = now;
        }
        if (written_)
            written_->flush();  // who reads the file meanwhile sees it grow, and killing costs no second
        return more;
    }

    // The end of the input: everything that waits is decided, everything open is closed.
    void finish() {
        const py::gil_scoped_release no_gil;
        update();
        engine_.finish();
        if (files_)
            for (const auto& source : files_->sources()) check_link_types(source->report());
    }

    // Rows that wait for drain().
    std::size_t rows() {
        const MessageTables& messages = engine_.recorder();
        const FlowTables& flows = engine_.tracker().rows();
        return messages.messages.size + messages.evidence.size + messages.amendments.size +
               flows.connections.size + flows.connections_again.size + flows.tcp_events.size;
    }

    py::dict drain() {
        update();
        return export_segment(engine_, reports(), classes_told_);
    }
    py::dict tables(bool interrupted) { return export_all(engine_, reports(), interrupted); }

    py::dict status() {
        update();
        engine_.count_totals();
        py::dict out;
        Tracker& tracker = engine_.tracker();
        out["packets"] = packets_;
        out["messages"] = engine_.recorder().first_message + engine_.recorder().messages.size;
        out["connections_open"] = tracker.connections_open();
        out["counters"] = export_counters(engine_);
        py::list sources;
        for (const SourceReport* report : reports()) sources.append(export_report(*report));
        out["sources"] = sources;
        return out;
    }

private:
    static constexpr std::chrono::milliseconds kPause{10};  // for a pipe that is silent
    static constexpr std::chrono::seconds kAskEvery{1};     // for counters of drops

    bool take(int milliseconds, std::uint64_t packets) {
        const Clock::time_point until = Clock::now() + std::chrono::milliseconds(milliseconds);
        do {
            if (at_ == batch_.size()) {
                at_ = 0;
                if (live_) {
                    live_->fill(batch_);
                } else {
                    files_->fill(batch_);
                    take_secrets(*files_, *tls_keys_);
                }
                if (batch_.empty() && !live_) {
                    if (!files_->waiting()) return false;
                    std::this_thread::sleep_for(kPause);
                    continue;
                }
            }
            const std::size_t offered = std::min<std::uint64_t>(batch_.size() - at_, packets - packets_);
            const std::span<const Packet> here = std::span<const Packet>(batch_).subspan(at_, offered);
            const std::size_t n = written_ ? written_->write(here) : offered;
            if (live_) live_->taken(here.first(n));
            if (dissect_) engine_.packets(here.first(n));
            at_ += n;
            packets_ += n;
            if (n < offered)
                return false;  // the last file is full: what is in the files is what is dissected
            if (live_ && batch_.empty())
                engine_.tick(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count());
            if (packets_ >= packets) return false;
        } while (Clock::now() < until);
        return true;
    }

    void update() {
        if (live_) live_->update_counters();
        if (written_) written_->flush();
    }
    std::vector<const SourceReport*> reports() const {
        if (live_) return live_->reports();
        std::vector<const SourceReport*> out;
        for (const auto& source : files_->sources()) out.push_back(&source->report());
        return out;
    }

    Engine engine_;
    std::unique_ptr<LiveInput> live_;
    std::unique_ptr<MergedSources> files_;
    std::shared_ptr<TlsKeyLog> tls_keys_;  // of files
    std::unique_ptr<PacketFile> written_;  // gets every packet; null: none
    Clock::time_point asked_ = Clock::now();
    std::vector<Packet> batch_;
    std::size_t at_ = 0;  // packets of the batch that were taken
    std::uint64_t packets_ = 0;
    bool dissect_ = true;  // false: packets are counted (and written by the source), and no more
    std::size_t classes_told_ = 0;
};

// What a capture of packets as they come is set up with. `handed_over`: drain() is called while packets come, not only
// behind finish(). `tls_keylog` is opened here, empty: none; connections wait `tls_key_wait_ns` for their secrets.
inline Settings live_settings(const py::bytes& salt, bool keep_text, const PortMap& port_map,
                              bool handed_over, const std::string& tls_keylog, std::int64_t tls_key_wait_ns) {
    Settings settings = make_settings(salt, keep_text, port_map);
    if (!tls_keylog.empty()) {
        settings.tls_keys = std::make_shared<TlsKeyLog>(tls_keylog, TlsKeyLog::Keep::newest);
        settings.limits.tls_key_wait_ns = tls_key_wait_ns;
    }
    settings.limits.reorder_ns = 1'000'000'000;  // a live tap must not keep messages back for long
    settings.limits.handed_over = handed_over;
    return settings;
}

// The class in Python, known to this module alone; factories are added by who calls.
inline py::class_<Capture> define_capture(py::module_& m) {
    return py::class_<Capture>(m, "Capture", py::module_local())
        .def("write_to", &Capture::write_to, py::kw_only(), py::arg("path"), py::arg("bytes"),
             py::arg("seconds"), py::arg("files"), py::arg("snaplen"))
        .def("packet_file", &Capture::packet_file)
        .def("packet_file_lost", &Capture::packet_file_lost)
        .def("run", &Capture::run, py::arg("milliseconds"), py::arg("packets"))
        .def("rows", &Capture::rows)
        .def("finish", &Capture::finish)
        .def("drain", &Capture::drain)
        .def("tables", &Capture::tables, py::arg("interrupted"))
        .def("status", &Capture::status);
}

}  // namespace tapscope::bindings
