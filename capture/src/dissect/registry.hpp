// The protocols that are known. A new one: two files here, one line in AnyDissector, one in meson.build, and its
// name in DISSECTED of store/codes.py.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "dissect/ajp.hpp"
#include "dissect/cjdbc.hpp"
#include "dissect/dissector.hpp"
#include "dissect/fastcgi.hpp"
#include "dissect/http.hpp"
#include "dissect/http2.hpp"
#include "dissect/memcached.hpp"
#include "dissect/mysql.hpp"
#include "dissect/postgres.hpp"
#include "dissect/redis.hpp"
#include "dissect/tls.hpp"
#include "prefetch.hpp"
#include "record.hpp"

namespace tapscope {

namespace detail {
// A dissector with much state, on the heap, so that connections of other protocols do not pay for it.
template <class D>
class Boxed {
public:
    static constexpr Protocol protocol = D::protocol;
    static Probe probe(Bytes bytes, Direction direction) noexcept { return D::probe(bytes, direction); }
    Parsed parse(Direction direction, Bytes bytes, Recorder& recorder) {
        return box_->parse(direction, bytes, recorder);
    }
    void on_gap(Direction direction, std::uint64_t missing, Recorder& recorder) {
        box_->on_gap(direction, missing, recorder);
    }
    void on_end(Direction direction, Recorder& recorder) { box_->on_end(direction, recorder); }
    void prefetch() const noexcept { prefetch_lines(box_.get(), std::min(sizeof(D), kFetched)); }

private:
    static constexpr std::size_t kFetched = 4 * kCacheLine;  // what is used most stands first
    std::unique_ptr<D> box_ = std::make_unique<D>();
};
inline constexpr std::size_t kInPlace = 80;  // bytes of a dissector that every connection has room for
template <class D>
using Stored = std::conditional_t<sizeof(D) <= kInPlace, D, Boxed<D>>;
template <class... D>
using Dissectors = std::variant<std::monostate, Stored<D>...>;
}  // namespace detail

// Order matters only where two probes say yes: the more specific protocol first.
// clang-format off
using AnyDissector = detail::Dissectors<
    TlsDissector,
    Http2Dissector,
    HttpDissector,
    AjpDissector,
    CjdbcDissector,
    FastcgiDissector,
    PostgresDissector,
    RedisDissector,
    MemcachedDissector,
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
