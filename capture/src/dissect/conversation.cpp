#include "dissect/conversation.hpp"

#include <algorithm>

#include "dissect/nested.hpp"
#include "dissect/proxy_header.hpp"

namespace tapscope {

Conversation::Conversation(Recorder& recorder, std::int32_t conn, Protocol fixed) : recorder_(recorder) {
    exchange_.conn = conn;
    for (auto& side : exchange_.side) side.remainder = "unknown_protocol";
    if (fixed == Protocol::unknown || !emplace_dissector(dissector_, fixed)) return;
    exchange_.protocol = fixed_ = fixed;
    dissector_.emplace<0>();  // a PROXY header may come first
}

void Conversation::feed(Direction direction, Half& half, MessageSide& side, Bytes bytes, std::uint64_t end,
                        std::int64_t time_ns, std::uint64_t ack) {
    if (dissector_.index() == 0) [[unlikely]]
        if (!identify(direction, half, bytes, end, time_ns, ack)) return;
    Window& window = recorder_.window();
    if (!half.keeps()) [[likely]] {
        const std::uint64_t base = end - bytes.size();
        window = {direction, base,    base, end,
                  {},        time_ns, ack,  base == side.delivered ? side.last_ns : time_ns};
        Parsed last;
        bytes = parse_some(direction, half, bytes, last);
        if (!bytes.empty() || last.step != Step::ok) leave(direction, half, bytes, last);
        return;
    }
    half.keep_more(bytes, {end, time_ns, ack});
    parse_kept(direction, half);
}

void Conversation::parse_kept(Direction direction, Half& half) {
    const auto& [kept, marks, before_ns] = *half.pending;
    const Mark last = marks.back();
    const std::uint64_t base = last.end - kept.size();
    recorder_.window() = {direction, base, base, last.end, marks, last.time_ns, last.ack, before_ns};
    parse_all(direction, half, kept);
}

void Conversation::parse_all(Direction direction, Half& half, Bytes bytes) {
    Parsed last;
    bytes = parse_some(direction, half, bytes, last);
    leave(direction, half, bytes, last);
}

// What is to be done when bytes were parsed: `bytes` must come again, and `last` may tell of another protocol.
void Conversation::leave(Direction direction, Half& half, Bytes bytes, Parsed& last) {
    while (last.step == Step::switch_to) [[unlikely]] {
        if (!switch_to(last.next)) break;
        last = {};
        bytes = parse_some(direction, half, bytes, last);
    }
    keep(direction, half, bytes);
    if (dissector_.index() == 0 && half.keeps()) [[unlikely]] {
        // The new protocol is to be found from content, and this may be its start.
        const Probed probed = probe_all(half.pending->kept, direction);
        if (probed.answer == Probe::yes && switch_to(probed.protocol)) parse_kept(direction, half);
    }
}

// Parses until nothing more can be consumed; returns the bytes that must come again.
Bytes Conversation::parse_some(Direction direction, Half& half, Bytes bytes, Parsed& last) {
    Window& window = recorder_.window();
    std::visit(
        [&](auto& dissector) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(dissector)>, std::monostate>) {
                const char* malformed = nullptr;
                while (!bytes.empty()) {
                    const Parsed parsed = dissector.parse(direction, bytes, recorder_);
                    if (parsed.consumed > bytes.size()) {
                        half.skip = parsed.consumed - bytes.size();
                        bytes = {};
                    } else {
                        bytes = bytes.subspan(parsed.consumed);
                    }
                    window.base = window.end - bytes.size();
                    if (parsed.step != Step::ok) [[unlikely]] {
                        last = parsed;
                        if (parsed.step == Step::malformed)
                            malformed = parsed.label != nullptr ? parsed.label : "malformed";
                        break;
                    }
                    if (parsed.consumed == 0) break;
                }
                if (malformed == nullptr && bytes.size() > kMaxPending) malformed = "pending_bytes_overflow";
                if (malformed != nullptr) [[unlikely]] {
                    recorder_.count(malformed);
                    half.skip = 0;
                    bytes = {};
                    window.base = window.first = window.end;
                    window.before_ns = window.time_ns;
                    dissector.on_gap(direction, 0, recorder_);
                    exchange_.at(direction).after_gap = true;
                    recorder_.remainder(direction, malformed);
                }
            }
        },
        dissector_);
    return bytes;
}

// Both directions speak `next` from here on. False when it cannot be read or is to be found from content.
bool Conversation::switch_to(Protocol next) {
    const Protocol before = exchange_.protocol;
    exchange_.protocol = next;
    if (next == Protocol::tls && dissector_.index() != 0) {
        // STARTTLS: what was spoken so far goes on inside.
        auto inside = std::make_unique<Nested>(recorder_);
        inside->conversation().exchange_.protocol = before;
        inside->conversation().dissector_ = std::move(dissector_);
        dissector_.emplace<TlsDissector>().carry(std::move(inside));
        return true;
    }
    if (next != Protocol::unknown && emplace_dissector(dissector_, next)) return true;
    dissector_.emplace<0>();
    for (std::uint16_t& probes : probes_) probes = next == Protocol::unknown ? 0 : kMaxProbes + 1;
    return false;
}

// `rest` is the end of the bytes that the window spans; it lies in half.pending when that is not empty.
void Conversation::keep(Direction, Half& half, Bytes rest) {
    const Window& window = recorder_.window();
    if (rest.empty()) {
        if (half.keeps()) drop_kept(half);
        return;
    }
    if (!half.keeps()) {
        const bool all = window.end - rest.size() == window.first;
        half.start_keeping(rest, all ? window.before_ns : window.time_ns,
                           {window.end, window.time_ns, window.ack});
        return;
    }
    auto& [kept, marks, before_ns] = *half.pending;
    const std::size_t used = kept.size() - rest.size();
    if (used == 0) return;
    const std::uint64_t begin = window.end - rest.size();
    auto first = std::upper_bound(marks.begin(), marks.end(), begin,
                                  [](std::uint64_t value, const Mark& mark) { return value < mark.end; });
    const auto before =
        std::upper_bound(marks.begin(), marks.end(), begin - 1,
                         [](std::uint64_t value, const Mark& mark) { return value < mark.end; });
    before_ns = before->time_ns;
    marks.erase(marks.begin(), first);
    kept.erase(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(used));
}

void Conversation::drop_kept(Half& half) noexcept {
    if (half.pending == nullptr) return;
    if (half.pending->kept.capacity() > kMaxIdleRoom) return half.pending.reset();
    half.pending->kept.clear();
    half.pending->marks.clear();
}

// Finds the protocol from the start of a stream or, joined midstream, of a segment. Returns true when `bytes` can be
// parsed now; otherwise they are kept or counted as unknown.
bool Conversation::identify(Direction direction, Half& half, Bytes& bytes, std::uint64_t end,
                            std::int64_t time_ns, std::uint64_t ack) {
    std::uint16_t& probes = probes_[static_cast<unsigned>(direction)];
    if (probes > kMaxProbes) return false;
    const bool at_start = end == half.kept_size() + bytes.size();
    bool joined = half.keeps();
    if (joined) {
        half.keep_more(bytes, {end, time_ns, ack});
    }
    if (at_start && direction == Direction::to_server) {
        if (!take_proxy_header(half, bytes, joined, end, time_ns, ack)) return false;
        joined = half.keeps();
    }
    if (fixed_ != Protocol::unknown) return settle(fixed_, direction, half, !joined);
    ++probes;
    Probed probed = probe_all(joined ? Bytes(half.pending->kept) : bytes, direction);
    bool alone = !joined;
    if (joined && probed.answer == Probe::no) {
        // What was kept was no start (a keep-alive byte, the end of something): this segment may be one.
        drop_kept(half);
        alone = true;
        probed = probe_all(bytes, direction);
    }
    if (probed.answer == Probe::need_more && half.kept_size() + bytes.size() < kMaxUndecided) {
        if (alone) {
            half.start_keeping(bytes, exchange_.at(direction).last_ns, {end, time_ns, ack});
        }
        return false;
    }
    if (probed.answer != Probe::yes) {
        drop_kept(half);
        // The tail of a message whose start was lost, and the next one behind it.
        const std::size_t at = at_start && !exchange_.at(direction).after_gap
                                   ? bytes.size()
                                   : start_inside(bytes, direction, true);
        if (at == bytes.size()) return false;
        bytes = bytes.subspan(at);
        return settle(HttpDissector::protocol, direction, half, true);
    }
    return settle(probed.protocol, direction, half, alone);
}

// The protocol is known. `alone`: the bytes at hand are not in half.pending; true is returned when they can be parsed now.
bool Conversation::settle(Protocol protocol, Direction direction, Half& half, bool alone) {
    emplace_dissector(dissector_, protocol);
    exchange_.protocol = protocol;
    fixed_ = Protocol::unknown;
    Half& other = halves_[static_cast<unsigned>(opposite(direction))];
    if (other.keeps()) parse_kept(opposite(direction), other);
    if (alone) return true;
    parse_kept(direction, half);
    return false;
}

// Takes a PROXY header off the start of the stream to the server. False when nothing is left to look at for now.
bool Conversation::take_proxy_header(Half& half, Bytes& bytes, bool joined, std::uint64_t end,
                                     std::int64_t time_ns, std::uint64_t ack) {
    const ProxyHeader header = read_proxy_header(joined ? Bytes(half.pending->kept) : bytes);
    if (header.answer == Probe::no) return true;
    if (header.answer == Probe::need_more) {
        if (!joined) {
            half.start_keeping(bytes, -1, {end, time_ns, ack});
        }
        return false;
    }
    recorder_.counters.add(header.version == 1 ? "proxy_header.version_1" : "proxy_header.version_2", 1,
                           Unit::connections);
    recorder_.outside(Direction::to_server, header.size, "proxy_header");
    if (!header.endpoint.empty()) {
        exchange_.endpoint_hash = siphash13(
            recorder_.key(),
            {reinterpret_cast<const std::uint8_t*>(header.endpoint.data()), header.endpoint.size()});
        exchange_.endpoint_known = true;
    }
    if (!joined) {
        bytes = bytes.subspan(header.size);
        return !bytes.empty();
    }
    auto& [kept, marks, before_ns] = *half.pending;
    kept.erase(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(header.size));
    std::erase_if(marks, [&](const Mark& mark) { return mark.end <= header.size; });
    before_ns = time_ns;
    return !kept.empty();
}

void Conversation::look_for_keys(bool may_still_come) {
    exchange_.keys_awaited = false;
    exchange_.keys_may_come = may_still_come;
    recorder_.attach(exchange_);
    for (const Direction direction : {Direction::to_server, Direction::to_client}) {
        Half& half = halves_[static_cast<unsigned>(direction)];
        if (half.keeps()) parse_kept(direction, half);
    }
}

void Conversation::gap(Direction direction, std::uint64_t missing) {
    MessageSide& side = exchange_.at(direction);
    Half& half = halves_[static_cast<unsigned>(direction)];
    recorder_.attach(exchange_);
    if (fixed_ != Protocol::unknown) settle(fixed_, direction, half, true);
    if (half.skip > 0) {
        const std::uint64_t n = std::min(half.skip, missing);
        half.skip -= n;
        missing -= n;
        recorder_.gap(direction, side.delivered, side.delivered + n, false);
        if (missing == 0) return;
    }
    const std::uint64_t begin = side.delivered;
    Window& window = recorder_.window();
    window = {direction, begin, begin, begin, {}, side.last_ns, 0, side.last_ns};
    if (half.keeps()) window.ack = half.pending->marks.back().ack;
    std::visit(
        [&](auto& dissector) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(dissector)>, std::monostate>)
                dissector.on_gap(direction, missing, recorder_);
        },
        dissector_);
    if (half.keeps()) drop_kept(half);
    recorder_.gap(direction, begin, begin + missing, !window.borders_kept);
}

void Conversation::stamped_earlier(Direction direction, std::uint64_t begin, std::uint64_t end,
                                   std::uint32_t first_us, std::int64_t time_ns) {
    Half& half = halves_[static_cast<unsigned>(direction)];
    if (half.keeps()) {
        auto& [kept, marks, before_ns] = *half.pending;
        for (Mark& mark : marks)
            if (mark.end == end) mark.time_ns = std::min(mark.time_ns, time_ns);
        const std::uint64_t kept_from = marks.back().end - kept.size();
        if (begin < kept_from && end >= kept_from) before_ns = std::min(before_ns, time_ns);
    }
    recorder_.attach(exchange_);
    recorder_.stamped_earlier(direction, begin, end, first_us, time_ns);
}

void Conversation::end(Direction direction, std::int64_t time_ns, bool aborted) {
    MessageSide& side = exchange_.at(direction);
    Half& half = halves_[static_cast<unsigned>(direction)];
    recorder_.attach(exchange_);
    Window& window = recorder_.window();
    window = {direction, side.delivered, side.delivered, side.delivered, {}, time_ns, 0, side.last_ns};
    window.aborted = aborted;
    std::visit(
        [&](auto& dissector) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(dissector)>, std::monostate>)
                dissector.on_end(direction, recorder_);
        },
        dissector_);
    if (half.keeps()) {
        if (side.remainder == nullptr) recorder_.remainder(direction, "cut_by_end_of_stream");
        drop_kept(half);
    }
    recorder_.stream_ended(direction, side.delivered);
}

}  // namespace tapscope
