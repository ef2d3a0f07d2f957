// Buffers of dissectors for the length of one call: they keep their room, so that nothing is allocated.
#pragma once

#include <string>

namespace tapscope {

struct Scratch {
    std::string class_text;  // the class of the message at hand
    std::string folded;      // the same with places that hold too many words folded
    std::string target;
    std::string name;
    std::string value;
};

}  // namespace tapscope
