// The protocols that are known. A new one: two files here, one line in AnyDissector, one in meson.build, and its
// name in DISSECTED of store/codes.py.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "dissect/ajp.hpp"
#include "dissect/cjdbc.hpp"
#include "dissect/dissector.hpp"
#include "dissect/http.hpp"
#include "dissect/http2.hpp"
#include "dissect/mysql.hpp"
#include "dissect/postgres.hpp"
#include "dissect/tls.hpp"
#include "record.hpp"

namespace tapscope {

// Order matters only where two probes say yes: the more specific protocol first.
// clang-format off
using AnyDissector = std::variant<
    std::monostate,
    TlsDissector,
    Http2Dissector,
    HttpDissector,
    AjpDissector,
    CjdbcDissector,
    PostgresDissector,
    MysqlDissector>;
// clang-format on

struct Probed {
    Probe answer = Probe::no;
    Protocol protocol = Protocol::unknown;
};

namespace detail {
template <std::size_t I>
void probe_from(Bytes bytes, Direction direction, Probed& best) noexcept {
    if constexpr (I < std::variant_size_v<AnyDissector>) {
        using D = std::variant_alternative_t<I, AnyDissector>;
        static_assert(Dissector<D, Recorder>);
        const Probe answer = D::probe(bytes, direction);
        if (answer == Probe::yes) {
            best = {answer, D::protocol};
            return;
        }
        if (answer == Probe::need_more && best.answer == Probe::no) best = {answer, D::protocol};
        probe_from<I + 1>(bytes, direction, best);
    }
}

template <std::size_t I>
bool emplace_from(AnyDissector& any, Protocol protocol) {
    if constexpr (I < std::variant_size_v<AnyDissector>) {
        if (std::variant_alternative_t<I, AnyDissector>::protocol == protocol) {
            any.emplace<I>();
            return true;
        }
        return emplace_from<I + 1>(any, protocol);
    }
    return false;
}
}  // namespace detail

// The protocols of AnyDissector, in its order.
inline std::vector<Protocol> dissected_protocols() {
    return []<std::size_t... I>(std::index_sequence<I...>) {
        return std::vector<Protocol>{std::variant_alternative_t<I + 1, AnyDissector>::protocol...};
    }(std::make_index_sequence<std::variant_size_v<AnyDissector> - 1>{});
}

inline Probed probe_all(Bytes bytes, Direction direction) noexcept {
    Probed best;
    detail::probe_from<1>(bytes, direction, best);
    return best;
}

inline bool emplace_dissector(AnyDissector& any, Protocol protocol) {
    return detail::emplace_from<1>(any, protocol);
}

}  // namespace tapscope
