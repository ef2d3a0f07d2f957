#include "dissect/dissection.hpp"

#include <algorithm>

#include "prefetch.hpp"

namespace tapscope {
namespace {

// Deliveries ahead whose conversation, then what it points to, is brought into the cache.
constexpr std::size_t kAhead = 8, kDissectorAhead = 4;

void fetch(std::span<const Delivery> list, std::size_t i) noexcept {
    if (i + kAhead < list.size()) list[i + kAhead].to->prefetch(list[i + kAhead].direction);
    if (i + kDissectorAhead < list.size()) list[i + kDissectorAhead].to->prefetch_dissector();
}

void give(const Delivery& d) {
    Conversation& to = *d.to;
    to.exchange().at(d.direction).base_seq = d.base_seq;
    if (d.kind == Delivery::Kind::bytes) [[likely]]
        return to.bytes(d.direction, {d.data, d.size}, d.time_ns, d.offset);
    switch (d.kind) {
        case Delivery::Kind::bytes:
            break;
        case Delivery::Kind::gap:
            return to.gap(d.direction, d.offset);
        case Delivery::Kind::end:
            return to.end(d.direction, d.time_ns, d.flag);
        case Delivery::Kind::again:
            return to.retransmitted(d.direction, d.offset, d.offset + d.size, d.time_ns);
        case Delivery::Kind::stamped_earlier:
            return to.stamped_earlier(d.direction, d.offset, d.offset + d.size, d.first_us, d.time_ns);
        case Delivery::Kind::contents:
            return to.tell_contents(d.offset, d.flag);
        case Delivery::Kind::keys:
            return to.look_for_keys(d.flag);
    }
}

}  // namespace

void Dissection::take(Deliveries& deliveries) {
    const std::span<const Delivery> list = deliveries.list();
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (deliveries.far) fetch(list, i);
        give(list[i]);
    }
    deliveries.clear();
}

}  // namespace tapscope
