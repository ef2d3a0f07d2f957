// What the files of the bindings share. They alone know both worlds: the engine runs with the GIL released, and its
// columns reach numpy as views.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "dissect/tls_keys.hpp"
#include "engine.hpp"
#include "source/byte_stream.hpp"
#include "source/merge.hpp"
#include "source/packet.hpp"

namespace tapscope::bindings {

namespace py = pybind11;
using Clock = std::chrono::steady_clock;
using Progress = std::optional<py::function>;
using PortMap = std::unordered_map<std::uint16_t, int>;

// tables.cpp
py::str text(const std::string& bytes);  // bytes off the wire are not always UTF-8
py::dict export_report(const SourceReport& report);
// All tables, classes, counters and sources. The arrays keep the memory alive.
py::dict export_all(Engine& engine, const std::vector<const SourceReport*>& reports, bool interrupted);

// The rows since the last time, with the ids of row 0, amendments, and classes from number `classes_told` on.
py::dict export_segment(Engine& engine, const std::vector<const SourceReport*>& reports,
                        std::size_t& classes_told);
py::list export_counters(Engine& engine);

// read_files.cpp
Settings make_settings(const py::bytes& salt, bool keep_text, const PortMap& port_map);
void set_limits(Settings& settings, const std::unordered_map<std::string, std::int64_t>& values);
// Secrets come before the packets that need them: a pcapng file holds them in a block of their own.
void take_secrets(const MergedSources& sources, TlsKeyLog& keys);
void define_read_files(py::module_& m);

// live.cpp
void define_live(py::module_& m);

// Calls back to Python a few times a second: signals and progress. Call without the GIL.
class Pulse {
public:
    explicit Pulse(const Progress& progress) : progress_(progress) {}
    // True when the user pressed Ctrl-C: stop, and keep what is done.
    bool interrupted(std::uint64_t done, std::uint64_t total) {
        const Clock::time_point now = Clock::now();
        if (now - last_ < std::chrono::milliseconds(200)) return false;
        last_ = now;
        if (pressed_) return true;
        const py::gil_scoped_acquire gil;
        if (ctrl_c()) return true;
        if (progress_) (*progress_)(done, total);
        return false;
    }
    // Was Ctrl-C pressed while a pipe kept the reader waiting?
    static bool pressed() noexcept { return pressed_; }

    // While it lives, Ctrl-C ends the wait for input of this thread.
    struct WhileWaiting {
        WhileWaiting() {
            pressed_ = false;
            stop_waiting = [] {
                const py::gil_scoped_acquire gil;
                return pressed_ = pressed_ || ctrl_c();
            };
        }
        ~WhileWaiting() { stop_waiting = nullptr; }
        WhileWaiting(const WhileWaiting&) = delete;
        WhileWaiting& operator=(const WhileWaiting&) = delete;
    };

private:
    static bool ctrl_c() {
        if (PyErr_CheckSignals() == 0) return false;
        if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) throw py::error_already_set();
        PyErr_Clear();
        return true;
    }

    static inline thread_local bool pressed_ = false;
    const Progress& progress_;
    Clock::time_point last_ = Clock::now();
};

}  // namespace tapscope::bindings
