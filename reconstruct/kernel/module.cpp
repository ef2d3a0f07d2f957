// Python binding of the matching kernel: columns in, columns out, GIL released.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <future>
#include <string>

#include "assign.hpp"

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

Tokens tokens(const py::dict& table) {
    return {column<std::int64_t>(table, "token_offset"), column<std::uint32_t>(table, "token_slot"),
            column<std::uint64_t>(table, "token_hash")};
}

void same_length(std::size_t got, std::size_t expected, const char* what) {
    if (got != expected) {
        throw py::value_error(std::string(what) + " has " + std::to_string(got) + " rows, expected " +
                              std::to_string(expected));
    }
}

py::dict match_node(const py::dict& parents, const py::dict& children, int draws) {
    Problem problem;
    auto& p = problem.parents;
    p.cls = column<std::int32_t>(parents, "cls");
    p.conn = column<std::int32_t>(parents, "conn");
    p.arrive = column<std::int64_t>(parents, "arrive");
    p.request_end = column<std::int64_t>(parents, "request_end");
    p.response_begin = column<std::int64_t>(parents, "response_begin");
    p.depart = column<std::int64_t>(parents, "depart");
    p.answered = column<std::uint8_t>(parents, "answered");
    p.tokens = tokens(parents);
    for (const auto length : {p.conn.size(), p.arrive.size(), p.request_end.size(), p.response_begin.size(),
                              p.depart.size(), p.answered.size()}) {
        same_length(length, p.size(), "a column of parents");
    }
    same_length(p.tokens.offset.size(), p.size() + 1, "token_offset of parents");
    auto& c = problem.children;
    c.cls = column<std::int32_t>(children, "cls");
    c.conn = column<std::int32_t>(children, "conn");
    c.begin = column<std::int64_t>(children, "begin");
    c.response_begin = column<std::int64_t>(children, "response_begin");
    c.end = column<std::int64_t>(children, "end");
    c.tokens = tokens(children);
    for (const auto length : {c.conn.size(), c.begin.size(), c.response_begin.size(), c.end.size()}) {
        same_length(length, c.size(), "a column of children");
    }
    same_length(c.tokens.offset.size(), c.size() + 1, "token_offset of children");
    for (const auto a : p.cls) p.n_classes = std::max(p.n_classes, a + 1);
    for (const auto k : c.cls) c.n_classes = std::max(c.n_classes, k + 1);

    Options options;
    options.draws = draws;
    std::atomic<bool> stop{false};
    Assignment result;
    {
        auto work = std::async(std::launch::async, [&] { return assign(problem, options, stop); });
        while (true) {  // Ctrl-C must stop the kernel, too
            bool ready = false;
            {
                py::gil_scoped_release release;
                ready = work.wait_for(std::chrono::milliseconds(100)) == std::future_status::ready;
            }
            if (ready) break;
            if (PyErr_CheckSignals() != 0) {
                stop = true;
                {
                    py::gil_scoped_release release;
                    work.wait();
                }
                throw py::error_already_set();
            }
        }
        result = work.get();
    }
    py::dict out;
    out["parent"] = array_of(std::move(result.parent));
    out["probability"] = array_of(std::move(result.probability));
    out["runner_up"] = array_of(std::move(result.runner_up));
    out["runner_up_probability"] = array_of(std::move(result.runner_up_probability));
    out["pairs_too_large"] = result.pairs_too_large;
    return out;
}

}  // namespace

PYBIND11_MODULE(_kernel, module) {
    module.doc() = "Matching kernel of tapscope.reconstruct.";
    module.def(
        "match_node", &match_node, py::arg("parents"), py::arg("children"), py::kw_only(),
        py::arg("draws") = Options{}.draws,
        "Parent of every child call of one node.\n\n"
        "parents: dict of columns cls i32, conn i32, arrive, request_end, response_begin, depart i64 ns,\n"
        "answered u8, token_offset i64 (n+1), token_slot u32, token_hash u64; sorted by arrive.\n"
        "children: cls, conn i32, begin, response_begin, end i64 ns, token_*; sorted by begin.\n"
        "draws: assignments that are drawn to weigh the edges.\n"
        "Returns parent, runner_up (i32, -1 none), probability, runner_up_probability (f64) per child.");
}
