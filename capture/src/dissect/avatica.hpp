// Apache Avatica (JDBC over HTTP): what an HTTP connection keeps when its POST bodies may be Avatica calls.
// https://calcite.apache.org/avatica/docs/
//
// HTTP does the framing; it hands over the first bytes of a body, and is told when it has seen enough. The call then
// belongs to Avatica: class "prepareAndExecute SELECT ..", tokens of statement, values and ids, and of the answer's
// first rows. An execution names a statement by its id: AvaticaStatements, in the Recorder, knows its class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dissect/dissector.hpp"
#include "record.hpp"

namespace tapscope {

class AvaticaBodies {
public:
    static constexpr std::size_t kMaxRequest = 64 * 1024, kMaxAnswer = 32 * 1024;

    // The body of `message` comes next: a request that may be a call, or the answer to one.
    void watch(Direction direction, MessageRef message, bool compressed);
    bool watching(Direction direction) const noexcept { return at(direction).message != kNoMessage; }

    // Bytes of a body that is watched. False when the rest of it need not be shown.
    bool body(Direction direction, Bytes bytes);

    // The body is over, or as much of it as will be shown: reports what it says. `complete`: all of it was shown.
    // Returns true for a request that is a call.
    bool finish(Direction direction, bool complete, Recorder& recorder);

    // Requests may have been among lost bytes: statements that were known may stand for others now.
    void requests_lost(Recorder& recorder);

private:
    struct Side {
        MessageRef message = kNoMessage;
        std::vector<std::uint8_t> bytes;
        bool compressed = false;
        bool decided = false;  // the first bytes look right
        bool full = false;
    };
    // A prepared statement whose id the answer will tell.
    struct Prepared {
        MessageRef request = kNoMessage;
        std::uint64_t connection = 0;
        std::int32_t execute_class = -1, batch_class = -1, fetch_class = -1;
    };

    Side& at(Direction d) noexcept { return sides_[static_cast<unsigned>(d)]; }
    const Side& at(Direction d) const noexcept { return sides_[static_cast<unsigned>(d)]; }
    bool request(MessageRef ref, Bytes body, bool complete, Recorder& recorder);
    void answer(MessageRef ref, Bytes body, bool compressed, Recorder& recorder);

    Side sides_[2];
    Prepared prepared_;
    std::uint64_t connection_ = 0;  // hash of the id that the last call named
};

}  // namespace tapscope
