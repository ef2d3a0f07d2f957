// Time in ns of one clock, whatever its origin.
#pragma once

#include <cstdint>

namespace tapscope::match {

using Time = std::int64_t;

}  // namespace tapscope::match
