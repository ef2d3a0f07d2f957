// Conversations of MySQL for tests: what comes before what is tested.
#pragma once

#include "conversation_tap.hpp"
#include "mysql_packets.hpp"

namespace tapscope::test {

inline const std::string ok_answer = packets(1, {ok()});

inline std::vector<Delivery> connected(std::uint32_t caps = kBaseCaps, std::uint32_t mariadb_caps = 0) {
    if (mariadb_caps != 0) caps &= ~1u;
    return {down(greeting(caps, mariadb_caps)), up(login(caps, mariadb_caps)), down(packets(2, {ok()}))};
}

inline std::vector<Delivery> after(std::vector<Delivery> script, std::vector<Delivery> more) {
    for (auto& step : more) script.push_back(std::move(step));
    return script;
}

// The messages behind greeting, login and its answer, rows renumbered from 0.
inline std::string lines_from(const std::string& messages, std::size_t skip) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < skip && at != std::string::npos; ++i) at = messages.find('\n', at) + 1;
    return messages.substr(at);
}

inline std::string result_set(std::uint32_t caps, const std::vector<std::string>& rows,
                              std::uint16_t status = 2) {
    std::vector<std::string> p{"\x02", definition("id", 3), definition("name")};
    const bool deprecate = (caps & kDeprecateEof) != 0;
    if (!deprecate) p.push_back(eof());
    for (const auto& row : rows) p.push_back(row);
    p.push_back(deprecate ? ok(status, '\xFE') : eof(status));
    return packets(1, p);
}

inline const std::vector<std::string> two_rows{text_row({"17", "anna"}), text_row({"18", "NULL"})};

inline std::string prepare_ok(std::uint32_t id, std::uint16_t params, std::uint16_t columns, bool deprecate) {
    std::vector<std::string> p{std::string(1, '\0') + le(id, 4) + le(columns, 2) + le(params, 2) +
                               std::string(3, '\0')};
    for (int i = 0; i < params; ++i) p.push_back(definition("?"));
    if (params > 0 && !deprecate) p.push_back(eof());
    for (int i = 0; i < columns; ++i) p.push_back(definition("c", 8, 0x20));
    if (columns > 0 && !deprecate) p.push_back(eof());
    return packets(1, p);
}

}  // namespace tapscope::test
