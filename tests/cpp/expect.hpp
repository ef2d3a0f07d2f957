// What a test says when something is not as it should be, and how often it had to.
#pragma once

#include <cstdio>
#include <string>

namespace tapscope::test {

inline int failures = 0;

inline void expect(bool condition, const std::string& what) {
    if (condition) return;
    std::fprintf(stderr, "FAILED %s\n", what.c_str());
    ++failures;
}

}  // namespace tapscope::test
