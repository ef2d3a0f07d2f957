// Ctrl-C in the middle of a search: whatever runs next asks, and all of it is given up.
#pragma once

#include <atomic>

namespace tapscope::match {

struct Stopped {};  // thrown

class Stop {
public:
    // From any thread.
    void ask() noexcept { asked_ = true; }
    // Throws Stopped from then on. Asked for so often that a second never goes by between two times.
    void poll() const {
        if (asked_.load(std::memory_order_relaxed)) throw Stopped{};
    }

private:
    std::atomic<bool> asked_{false};
};

}  // namespace tapscope::match
