// Ctrl-C in the middle of a search: all of it is given up where it is.
#pragma once

#include <atomic>

namespace tapscope::match {

struct Stopped {};  // thrown

class Stop {
public:
    // From any thread.
    void ask() noexcept { asked_ = true; }
    // Throws Stopped from then on. A search asks at each pair, and at each call that it places or looks at anew.
    void poll() const {
        if (asked_.load(std::memory_order_relaxed)) throw Stopped{};
    }

private:
    std::atomic<bool> asked_{false};
};

}  // namespace tapscope::match
