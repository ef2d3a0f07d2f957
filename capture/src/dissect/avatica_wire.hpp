// Bodies of Apache Avatica calls (JDBC over HTTP), in JSON and in protocol buffers.
// https://calcite.apache.org/avatica/docs/json_reference.html, .../protobuf_reference.html
//
//   {"request":"prepareAndExecute","connectionId":"..","statementId":0,"sql":"select ..",..}
//   WireMessage{1: "org.apache.calcite.avatica.proto.Requests$PrepareAndExecuteRequest", 2: {1: "..", 2: "select ..", ..}}
//
// Both give the same Request and Answer. A body may be the beginning of a longer one (`cut`).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dissect/dissector.hpp"

namespace tapscope::avatica {

inline constexpr std::size_t kMaxBatch = 64;  // statements or parameter rows of a batch that are looked at

struct Value {
    std::uint32_t slot;  // ordinal of the parameter, or column of the result
    bool number;
    std::string_view text;
};

// Reusable. Texts point into the body or into `arena`, and are valid until the next body is read.
struct Request {
    std::string_view name;  // "prepareAndExecute"; empty: not known
    std::string_view connection;
    std::int64_t statement = -1;
    std::string_view sql;
    bool sql_cut = false;
    std::vector<std::string_view> commands;  // of a batch of statements
    std::vector<Value> parameters;
    std::string arena;
    void clear(std::size_t body);
};

struct Answer {
    bool known = false;  // an Avatica answer at all
    bool error = false;  // ErrorResponse
    bool missing_statement = false;
    std::int64_t statement = -1;  // the id that the server gave to it
    std::vector<Value> results;   // integers and texts of the first rows
    std::string arena;
    void clear(std::size_t body);
};

// Are these the first bytes of a request's body?
Probe starts_request(Bytes body) noexcept;

// `body` starts a request by starts_request. False when nothing but the kind of body is known.
bool read_request(Bytes body, Request& request);
bool read_answer(Bytes body, Answer& answer);

// One function per coding, for the two above.
bool read_json_request(std::string_view body, Request& request);
bool read_json_answer(std::string_view body, Answer& answer);
bool read_proto_request(Bytes body, Request& request);
bool read_proto_answer(Bytes body, Answer& answer);

}  // namespace tapscope::avatica
