// For protocols whose answers come in the order of the requests and do not tell which one they answer (Redis, memcached's
// text): after a loss the two are out of step, until the client, having had answers, asks while no request is open.
#pragma once

#include <utility>

#include "record.hpp"

namespace tapscope {

struct InStep {
    bool yes = true;           // answers can be paired
    bool heard_since = false;  // if not: the server said something since the loss
    bool unasked = false;  // if not: no request is open, so that answers are to lost ones, and can be read

    // Bytes of the client were lost, the first ones since answers were in step. `readable`: it is known where answers
    // begin, and none is open.
    void requests_lost(bool readable, const Recorder& recorder) noexcept {
        unasked = yes && readable && recorder.open_requests() == 0;
        heard_since = false;
    }

    // A request that will be answered was begun. `answer`: the open one, which ends here where what comes is not told
    // apart from it. True where answers are in step again.
    bool asked(MessageRef& answer, Recorder& recorder) {
        if (yes) return false;
        const bool readable = std::exchange(unasked, false);
        // Who has not waited for the whole of an answer may not have waited for others, either.
        const bool waited = !readable || answer == kNoMessage;
        // Not where its answer may be among what was lost.
        yes = heard_since && waited && recorder.open_requests() == 1 && recorder.front_asked_behind_loss();
        if (yes) recorder.answers_in_step();
        if (answer == kNoMessage || (!yes && !readable)) return yes;
        if (readable) recorder.add_flags(answer, message_flag::truncated);
        recorder.end(answer, 0);  // what was lost took its end
        answer = kNoMessage;
        return yes;
    }
};

}  // namespace tapscope
