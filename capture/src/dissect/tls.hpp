// TLS 1.2 and 1.3 over TCP (RFC 5246, RFC 8446). With the connection's secrets the records are opened and what they
// carry is dissected as a connection of its own; without, records of application data are timed as opaque messages:
// what one side sends until the other one speaks.
#pragma once

#include <memory>

#include "dissect/dissector.hpp"

namespace tapscope {

class Recorder;
class Nested;
struct TlsState;

class TlsDissector {
public:
    static constexpr Protocol protocol = Protocol::tls;
    static Probe probe(Bytes bytes, Direction direction) noexcept;

    TlsDissector();
    TlsDissector(TlsDissector&&) noexcept;
    TlsDissector& operator=(TlsDissector&&) noexcept;
    ~TlsDissector();

    Parsed parse(Direction direction, Bytes bytes, Recorder& recorder);
    void on_gap(Direction direction, std::uint64_t missing, Recorder& recorder);
    void on_end(Direction direction, Recorder& recorder);

    // A protocol that turned to TLS on the way (STARTTLS) goes on inside.
    void carry(std::unique_ptr<Nested> inside);

private:
    std::unique_ptr<TlsState> state_;
};

}  // namespace tapscope
