// Python binding of the matching kernel: columns in, columns out, GIL released.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <future>
#include <limits>
#include <string>

#include "stop.hpp"
#include "stream.hpp"

namespace py = pybind11;
using namespace tapscope::match;

namespace {

template <class T>
std::span<const T> column(const py::dict& table, const char* name) {
    // No conversion: a converted copy would die with this function and leave the span dangling.
    const py::object value = table[name];
    if (!py::isinstance<py::array_t<T, py::array::c_style>>(value)) {
        throw py::type_error(std::string("column ") + name + " has another dtype than the kernel expects");
    }
    const auto array = py::reinterpret_borrow<py::array_t<T, py::array::c_style>>(value);
    if (array.ndim() != 1) throw py::value_error(std::string("column ") + name + " must have one dimension");
    return {array.data(), static_cast<std::size_t>(array.shape(0))};
}

template <class T>
py::array_t<T> array_of(std::vector<T> values) {
    auto* kept = new std::vector<T>(std::move(values));
    py::capsule owner(kept, [](void* p) { delete static_cast<std::vector<T>*>(p); });
    return py::array_t<T>(static_cast<py::ssize_t>(kept->size()), kept->data(), owner);
}

Tokens tokens(const py::dict& table, const std::string& name = "token") {
    return {column<std::int64_t>(table, (name + "_offset").c_str()),
            column<std::uint32_t>(table, (name + "_slot").c_str()),
            column<std::uint64_t>(table, (name + "_hash").c_str())};
}

void same_length(std::size_t got, std::size_t expected, const char* what) {
    if (got != expected) {
        throw py::value_error(std::string(what) + " has " + std::to_string(got) + " rows, expected " +
                              std::to_string(expected));
    }
}

// Runs `work` in a thread of its own, so that Ctrl-C can stop it; then Python's error is thrown. Signals are the main
// thread's: what others have begun is stopped by Stream::stop, and returns.
template <class Work>
void interruptibly(Stop& stop, Work&& work) {
    auto done = std::async(std::launch::async, [&] {
        try {
            work();
        } catch (const Stopped&) {}
    });
    while (true) {
        bool ready = false;
        {
            py::gil_scoped_release release;
            ready = done.wait_for(std::chrono::milliseconds(100)) == std::future_status::ready;
        }
        if (ready) break;
        if (PyErr_CheckSignals() != 0) {
            stop.ask();
            {
                py::gil_scoped_release release;
                done.wait();
            }
            throw py::error_already_set();
        }
    }
    done.get();
}

void ordered(std::span<const Time> times, Time& latest, const char* what) {
    for (const Time at : times) {
        if (at < latest) throw py::value_error(std::string(what) + " are not in the order of time");
        latest = at;
    }
}

class Stream {
public:
    Stream(const Options& options, const StretchOptions& stretch) : stream_(options, stretch, stop_) {}

    void push(const py::dict& parents, const py::dict& children) {
        ParentRows p;
        p.cls = column<std::int64_t>(parents, "cls");
        p.conn = column<std::int64_t>(parents, "conn");
        p.arrive = column<std::int64_t>(parents, "arrive");
        p.request_end = column<std::int64_t>(parents, "request_end");
        p.response_begin = column<std::int64_t>(parents, "response_begin");
        p.depart = column<std::int64_t>(parents, "depart");
        p.tokens = tokens(parents);
        for (const auto length : {p.conn.size(), p.arrive.size(), p.request_end.size(),
                                  p.response_begin.size(), p.depart.size()}) {
            same_length(length, p.cls.size(), "a column of parents");
        }
        same_length(p.tokens.offset.size(), p.cls.size() + 1, "token_offset of parents");
        if (parents.contains("answer_bytes")) {
            p.answer_bytes = column<float>(parents, "answer_bytes");
            same_length(p.answer_bytes.size(), p.cls.size(), "a column of parents");
        }
        if (parents.contains("latest")) {
            p.latest = column<std::int64_t>(parents, "latest");
            same_length(p.latest.size(), p.cls.size(), "a column of parents");
        }
        ChildRows c;
        c.cls = column<std::int64_t>(children, "cls");
        c.conn = column<std::int64_t>(children, "conn");
        c.begin = column<std::int64_t>(children, "begin");
        c.response_begin = column<std::int64_t>(children, "response_begin");
        c.end = column<std::int64_t>(children, "end");
        c.tokens = tokens(children);
        c.results = tokens(children, "result");
        if (children.contains("as_parent")) {
            c.as_parent = column<std::int64_t>(children, "as_parent");
            same_length(c.as_parent.size(), c.cls.size(), "a column of children");
        }
        if (children.contains("answer_bytes")) {
            c.answer_bytes = column<float>(children, "answer_bytes");
            same_length(c.answer_bytes.size(), c.cls.size(), "a column of children");
        }
        if (children.contains("setup")) {
            c.setup = column<std::uint8_t>(children, "setup");
            same_length(c.setup.size(), c.cls.size(), "a column of children");
        }
        if (children.contains("server")) {
            c.server = column<std::int64_t>(children, "server");
            same_length(c.server.size(), c.cls.size(), "a column of children");
        }
        for (const auto length : {c.conn.size(), c.begin.size(), c.response_begin.size(), c.end.size()}) {
            same_length(length, c.cls.size(), "a column of children");
        }
        same_length(c.tokens.offset.size(), c.cls.size() + 1, "token_offset of children");
        same_length(c.results.offset.size(), c.cls.size() + 1, "result_offset of children");
        ordered(p.arrive, latest_arrive_, "parents");
        ordered(c.begin, latest_begin_, "children");
        stream_.push(p, c);
    }

    void advance(Time now) {
        interruptibly(stop_, [&] { stream_.advance(now); });
    }
    void finish() {
        interruptibly(stop_, [&] { stream_.finish(); });
    }

    void stop() { stop_.ask(); }

    py::dict take() {
        auto links = stream_.take();
        py::dict out;
        out["parent"] = array_of(std::move(links.parent));
        out["probability"] = array_of(std::move(links.probability));
        out["runner_up"] = array_of(std::move(links.runner_up));
        out["runner_up_probability"] = array_of(std::move(links.runner_up_probability));
        return out;
    }

    py::dict counters() const {
        const auto& counted = stream_.counters();
        py::dict out;
        out["stretches"] = counted.stretches;
        out["learned_anew"] = counted.learned_anew;
        out["pairs_too_large"] = counted.pairs_too_large;
        out["parents_given_up"] = counted.parents_given_up;
        out["classes_shared"] = counted.classes_shared;
        out["not_remembered"] = counted.not_remembered;
        out["no_longer_remembered"] = counted.no_longer_remembered;
        out["kept_bytes"] = counted.kept_bytes;
        out["most_kept_bytes"] = counted.most_kept_bytes;
        return out;
    }

private:
    Stop stop_;
    NodeStream stream_;
    Time latest_arrive_ = std::numeric_limits<Time>::min(), latest_begin_ = latest_arrive_;
};

}  // namespace

PYBIND11_MODULE(_kernel, module) {
    module.doc() = "Matching kernel of tapscope.reconstruct.";
    const StretchOptions stretch;
    py::class_<Stream>(
        module, "NodeStream",
        "Parents of the child calls of one node, a bounded time after the calls came.\n\n"
        "draws: assignments that are drawn to weigh the edges.\n"
        "first_stretch, stretch, ahead: calls made by the node in the stretch that teaches the\n"
        "model, in a later one, and of the next one that are looked at.")
        .def(py::init([](int draws, std::size_t first_children, std::size_t children, std::size_t ahead) {
                 Options options;
                 options.draws = draws;
                 StretchOptions lengths;
                 lengths.first_children = std::max<std::size_t>(first_children, 1);
                 lengths.children = std::max<std::size_t>(children, 1);
                 lengths.ahead = ahead;
                 return std::make_unique<Stream>(options, lengths);
             }),
             py::kw_only(), py::arg("draws") = Options{}.draws,
             py::arg("first_stretch") = stretch.first_children, py::arg("stretch") = stretch.children,
             py::arg("ahead") = stretch.ahead)
        .def(
            "push", &Stream::push, py::arg("parents"), py::arg("children"),
            "Rows in the order of time, after all that were pushed before.\n\n"
            "parents: dict of columns cls, conn i64 (any numbers), arrive, request_end, response_begin, "
            "depart\n"
            "i64 ns (response_begin -1: no answer seen; depart is then the latest end, -1 not known),\n"
            "token_offset i64 (n+1), token_slot u32, token_hash u64, answer_bytes f32 (optional; negative: "
            "not\n"
            "known), latest i64 (optional; >= 0: it was not seen, and arrived between arrive and then).\n"
            "children: cls, conn i64, begin, response_begin, end i64 ns, token_*, and result_* of the\n"
            "answers; as_parent i64 (optional): number of the same call among the parents, -1 none;\n"
            "answer_bytes, setup u8 (optional; 1: sets up the next call on its connection), and server i64\n"
            "(optional, any numbers: who is asked; each has a pool of connections).\n"
            "ValueError when rows are out of order or columns differ in length, TypeError for another dtype.")
        .def("advance", &Stream::advance, py::arg("now"),
             "All rows that begin before `now` (ns) were pushed: matches what this decides.")
        .def("finish", &Stream::finish, "No more rows will come: matches the rest.")
        .def("stop", &Stream::stop,
             "Called from another thread: what is matched ends soon, and says nothing. For good.")
        .def("take", &Stream::take,
             "Links that were not taken yet, of consecutive children as pushed: parent, runner_up (i64, "
             "parents\n"
             "numbered as pushed, -1 none), probability, runner_up_probability (f64).")
        .def("counters", &Stream::counters,
             "stretches, learned_anew, pairs_too_large, parents_given_up, classes_shared, not_remembered,\n"
             "no_longer_remembered, kept_bytes,\n"
             "most_kept_bytes.");
}
