// Requests of one class and their calls, row by row, as the columns of a problem. Nothing has content.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace tapscope::test {

struct RequestRows {
    std::vector<std::int32_t> parent_cls, child_cls, child_conn, parent_of;
    std::vector<match::Time> arrive, depart, begin, end;
    std::vector<std::uint8_t> answered;
    std::vector<std::int64_t> no_tokens_p{0}, no_tokens_c{0};

    std::int32_t request(match::Time from, match::Time to) {
        parent_cls.push_back(0);
        arrive.push_back(from);
        depart.push_back(to);
        answered.push_back(1);
        no_tokens_p.push_back(0);
        return static_cast<std::int32_t>(parent_cls.size()) - 1;
    }
    void call(std::int32_t parent, std::int32_t cls, match::Time from, match::Time to, std::int32_t conn) {
        child_cls.push_back(cls);
        child_conn.push_back(conn);
        begin.push_back(from);
        end.push_back(to);
        parent_of.push_back(parent);
        no_tokens_c.push_back(0);
    }
    // Refers to the rows.
    match::Problem problem(std::int32_t child_classes) const {
        match::Problem out;
        out.parents.cls = parent_cls;
        out.parents.arrive = out.parents.request_end = arrive;
        out.parents.response_begin = out.parents.depart = depart;
        out.parents.answered = answered;
        out.parents.tokens = {no_tokens_p, {}, {}};
        out.parents.n_classes = 1;
        out.children.cls = child_cls;
        out.children.conn = child_conn;
        out.children.begin = begin;
        out.children.response_begin = out.children.end = end;
        out.children.tokens = {no_tokens_c, {}, {}};
        out.children.n_classes = child_classes;
        return out;
    }
};

}  // namespace tapscope::test
