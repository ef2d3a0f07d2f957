#include "dissect/nested.hpp"

#include <algorithm>

namespace tapscope {
namespace {

// The Recorder attends to one Exchange at a time: this lends it to the inner conversation and gives it back.
class Lent {
public:
    explicit Lent(Recorder& recorder)
        : recorder_(recorder), outer_(recorder.attached()), window_(recorder.window()) {}
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    ~Lent() {
        recorder_.attach(outer_);
        recorder_.window() = window_;
    }
    const Window& window() const noexcept { return window_; }
    Exchange& outer() noexcept { return outer_; }

private:
    Recorder& recorder_;
    Exchange& outer_;
    Window window_;
};

}  // namespace

Nested::Nested(Recorder& recorder) : inner_(recorder, recorder.attached().conn, Protocol::unknown) {
    inner_.exchange().endpoint_hash = recorder.attached().endpoint_hash;
    inner_.exchange().endpoint_known = recorder.attached().endpoint_known;
}

std::uint64_t Nested::translate(Direction direction, std::uint64_t outer) const noexcept {
    const auto& reached = reached_[static_cast<unsigned>(direction)];
    const auto behind =
        std::upper_bound(reached.begin(), reached.end(), outer,
                         [](std::uint64_t value, const Reached& point) { return value < point.outer; });
    if (behind == reached.begin()) return reached.size() < kMaxMarks ? 0 : reached.front().inner;
    return (behind - 1)->inner;
}

void Nested::bytes(Recorder& recorder, Direction direction, std::uint64_t at, Bytes plain) {
    Lent lent(recorder);
    const Window& window = lent.window();
    std::uint64_t from = window.base + at;
    MessageSide& side = inner_.exchange().at(direction);
    side.base_seq = lent.outer().at(direction).base_seq + static_cast<std::uint32_t>(from - side.delivered);
    auto mark = std::upper_bound(window.marks.begin(), window.marks.end(), from,
                                 [](std::uint64_t value, const Mark& point) { return value < point.end; });
    while (!plain.empty()) {
        const bool older = mark != window.marks.end();
        const std::uint64_t n =
            older ? std::min<std::uint64_t>(plain.size(), mark->end - from) : plain.size();
        inner_.bytes(direction, plain.first(n), older ? mark->time_ns : window.time_ns,
                     translate(opposite(direction), older ? mark->ack : window.ack));
        plain = plain.subspan(n);
        from += n;
        if (older) ++mark;
    }
    // The connection is known by what it carries.
    if (inner_.exchange().protocol != Protocol::unknown) lent.outer().protocol = inner_.exchange().protocol;
}

void Nested::record_ended(Recorder& recorder, Direction direction, std::uint64_t at,
                          std::uint64_t plain_bytes) {
    recorder.carried(direction, at, plain_bytes);
    if (plain_bytes > 0) reach(direction, recorder.window().base + at);
}

void Nested::reach(Direction direction, std::uint64_t outer) {
    auto& reached = reached_[static_cast<unsigned>(direction)];
    if (reached.size() == kMaxMarks) reached.pop_front();
    reached.push_back({outer, inner_.exchange().at(direction).delivered});
}

void Nested::gap(Recorder& recorder, Direction direction, std::uint64_t missing) {
    const Lent lent(recorder);
    inner_.gap(direction, missing);
    // Who acknowledges the bytes behind the gap has what they carried.
    reach(direction, lent.window().base + missing);
}

void Nested::end(Recorder& recorder, Direction direction) {
    Lent lent(recorder);
    inner_.end(direction, lent.window().time_ns, lent.window().aborted);
    // What was read and is in no message counts for the connection.
    MessageSide& inner = inner_.exchange().at(direction);
    lent.outer().at(direction).outside += inner.outside - inner.missing_outside;
    inner.outside = inner.missing_outside = 0;
}

}  // namespace tapscope
