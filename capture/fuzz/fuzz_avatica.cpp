// Bodies of Avatica calls, in JSON and protocol buffers: the first byte says whether the rest is a request or an answer.
#include <vector>

#include "dissect/avatica_wire.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace tapscope::avatica;
    static Request request;
    static Answer answer;
    if (size == 0) return 0;
    const std::vector<std::uint8_t> body(data + 1, data + size);  // exact size: over-reads are seen
    std::size_t sum = 0;
    if ((data[0] & 1) == 0) {
        if (starts_request(body) == tapscope::Probe::yes && read_request(body, request)) {
            for (const Value& value : request.parameters)
                for (const char c : value.text) sum += static_cast<unsigned char>(c);
            for (const std::string_view command : request.commands)
                for (const char c : command) sum += static_cast<unsigned char>(c);
            for (const char c : request.sql) sum += static_cast<unsigned char>(c);
        }
    } else if (read_answer(body, answer)) {
        for (const Value& value : answer.results)
            for (const char c : value.text) sum += static_cast<unsigned char>(c);
    }
    volatile std::size_t sink = sum;  // every text was read
    (void)sink;
    return 0;
}
