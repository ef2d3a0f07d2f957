// Fuzz input -> a capture file of any kind through the whole engine.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "engine.hpp"
#include "source/merge.hpp"

using namespace tapscope;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const int file = memfd_create("fuzz", 0);
    if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) return 0;
    Engine engine(Settings{});
    try {
        std::vector<std::unique_ptr<Source>> sources;
        sources.push_back(open_file("/proc/self/fd/" + std::to_string(file), 0, engine.counters()));
        MergedSources merged(std::move(sources), engine.counters());
        std::vector<Packet> batch;
        while (merged.fill(batch), !batch.empty()) engine.packets(batch);
        check_link_types(merged.sources()[0]->report());
    } catch (const SourceError&) {}
    engine.finish();
    return 0;
}
