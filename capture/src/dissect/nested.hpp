// A conversation inside another one: what a tunnel carries (TLS), dissected with its own Exchange. Every piece of it
// keeps the packet times of the bytes that carried it, and acknowledgements are translated, so that pairing works
// inside as it does outside.
#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "dissect/conversation.hpp"

namespace tapscope {

class Nested {
public:
    // To be made while the outer dissector is being called: takes the connection's row and client from it.
    explicit Nested(Recorder& recorder);

    // `plain` is what the outer stream bytes from offset `at` of the running parse call on carried, byte for byte.
    void bytes(Recorder& recorder, Direction direction, std::uint64_t at, Bytes plain);
    // The outer record that ends at `at` is through: all bytes before it that carried nothing are overhead.
    void record_ended(Recorder& recorder, Direction direction, std::uint64_t at, std::uint64_t plain_bytes);
    // Up to `missing` bytes were lost with outer bytes.
    void gap(Recorder& recorder, Direction direction, std::uint64_t missing);
    void end(Recorder& recorder, Direction direction);

    Conversation& conversation() noexcept { return inner_; }

private:
    static constexpr std::size_t kMaxMarks = 256;
    struct Reached {
        std::uint64_t outer, inner;  // when `outer` bytes were through, `inner` bytes were
    };
    void reach(Direction direction, std::uint64_t outer);
    std::uint64_t translate(Direction direction, std::uint64_t outer) const noexcept;

    Conversation inner_;
    std::array<std::deque<Reached>, 2> reached_;
};

}  // namespace tapscope
