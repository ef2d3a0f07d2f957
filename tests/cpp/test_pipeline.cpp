// Two threads against one: the same tables, row by row.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "expect.hpp"
#include "pipeline.hpp"

using namespace tapscope;
using tapscope::test::expect;
using tapscope::test::failures;

namespace {

// A pcap file of HTTP exchanges on many connections at once; some packets come twice, late or never, and some are no
// TCP segments.
class Made {
public:
    explicit Made(unsigned seed) : random_(seed) {
        int descriptor = ::mkstemp(path_.data());
        file_ = ::fdopen(descriptor, "wb");
        words({0xa1b23c4d, 0x00040002, 0, 0, 65535, 1});
        std::vector<Client> clients(60);
        for (std::size_t i = 0; i < clients.size(); ++i) clients[i].port = static_cast<unsigned>(40000 + i);
        for (int round = 0; round < 3000; ++round) exchange(clients[random_() % clients.size()]);
        while (!late_.empty()) release();
        std::fclose(file_);
    }
    ~Made() { ::unlink(path_.c_str()); }
    Made(const Made&) = delete;
    Made& operator=(const Made&) = delete;
    const std::string& path() const { return path_; }

private:
    struct Client {
        unsigned port = 0;
        std::uint32_t seq[2] = {1000, 5000};
        bool open = false;
    };

    void exchange(Client& c) {
        if (!c.open) {
            packet(c, 0, 2, "");
            ++c.seq[0];
            packet(c, 1, 0x12, "");
            ++c.seq[1];
            packet(c, 0, 0x10, "");
            c.open = true;
        }
        const std::string number = std::to_string(random_() % 1000);
        packet(c, 0, 0x18, "GET /page/" + number + "?id=" + number + " HTTP/1.1\r\nHost: h\r\n\r\n");
        packet(c, 1, 0x18, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        if (random_() % 40 == 0) {
            packet(c, 0, 0x11, "");
            ++c.seq[0];
            packet(c, 1, 0x11, "");
            ++c.seq[1];
            packet(c, 0, 0x10, "");
            c.open = false;
            c.seq[0] += 100'000;
            c.seq[1] += 100'000;
        }
        if (random_() % 50 == 0) write({0, std::string(60, 'x')});  // LLC: no segment
    }
    void packet(Client& c, int side, unsigned flags, const std::string& payload) {
        std::string p("\x02\0\0\0\0\1\x02\0\0\0\0\2\x08\0", 14);
        const auto be = [&p](std::uint32_t v, int bytes) {
            for (int i = bytes - 1; i >= 0; --i) p += static_cast<char>(v >> 8 * i);
        };
        be(0x4500, 2);
        be(static_cast<std::uint32_t>(40 + payload.size()), 2);
        be(++ip_id_, 2);
        be(0x4000, 2);
        be(0x4006, 2);
        be(0, 2);
        be(side == 0 ? 0x0a000001 : 0x0a000002, 4);
        be(side == 0 ? 0x0a000002 : 0x0a000001, 4);
        be(side == 0 ? c.port : 80, 2);
        be(side == 0 ? 80 : c.port, 2);
        be(c.seq[side], 4);
        be((flags & 0x10) != 0 ? c.seq[side ^ 1] : 0, 4);
        be(0x5000 | flags, 2);
        be(8192, 2);
        be(0, 4);
        p += payload;
        c.seq[side] += static_cast<std::uint32_t>(payload.size());
        time_ += 1000 + random_() % 100'000;
        const Frame frame{time_, p};
        const auto fate = static_cast<unsigned>(random_() % 200);
        if (fate == 0) return;
        if (fate < 4) {
            late_.push_back(frame);
            return;
        }
        write(frame);
        if (fate < 8) write({time_ + 3000, p});
        if (!late_.empty() && random_() % 20 == 0) release();
    }
    struct Frame {
        std::uint64_t time;
        std::string bytes;
    };
    void release() {
        write(late_.front());
        late_.erase(late_.begin());
    }
    void write(const Frame& frame) {
        const std::uint64_t time = frame.time != 0 ? frame.time : time_;
        const auto size = static_cast<std::uint32_t>(frame.bytes.size());
        words({static_cast<std::uint32_t>(1'700'000'000 + time / 1'000'000'000),
               static_cast<std::uint32_t>(time % 1'000'000'000), size, size});
        std::fwrite(frame.bytes.data(), 1, frame.bytes.size(), file_);
    }
    void words(std::initializer_list<std::uint32_t> values) {
        for (const std::uint32_t value : values) std::fwrite(&value, 4, 1, file_);
    }

    std::string path_ = "/tmp/tapscope_pipeline_XXXXXX";
    std::FILE* file_ = nullptr;
    std::mt19937 random_;
    std::uint64_t time_ = 0;
    std::uint32_t ip_id_ = 0;
    std::vector<Frame> late_;
};

std::unique_ptr<MergedSources> open(const std::string& path, Counters& counters) {
    std::vector<std::unique_ptr<Source>> sources;
    sources.push_back(open_file(path, 0, counters));
    // So short a window that packets are late, which the source counts while the tracker counts, too.
    return std::make_unique<MergedSources>(std::move(sources), counters, 1000);
}

template <class T>
bool same(const Column<T>& a, const Column<T>& b, std::size_t rows) {
    for (std::size_t i = 0; i < rows; ++i)
        if (a[i] != b[i]) return false;
    return true;
}

void compare(Engine& one, Engine& two, const std::string& name) {
    const Tables a = one.drain(), b = two.drain();
#define TAPSCOPE_SAME(type, column) \
    expect(same(x.column, y.column, x.size), name + ": " + table + "." #column);
    const auto tables = [&](const auto& x, const auto& y, const std::string& table) {
        expect(x.size == y.size, name + ": rows of " + table);
        return x.size == y.size;
    };
    if (const auto &x = a.connections, &y = b.connections; tables(x, y, "connections")) {
        const std::string table = "connections";
        TAPSCOPE_CONNECTION_COLUMNS(TAPSCOPE_SAME)
    }
    if (const auto &x = a.contents, &y = b.contents; tables(x, y, "contents")) {
        const std::string table = "contents";
        TAPSCOPE_CONTENT_COLUMNS(TAPSCOPE_SAME)
    }
    if (const auto &x = a.messages, &y = b.messages; tables(x, y, "messages")) {
        const std::string table = "messages";
        TAPSCOPE_MESSAGE_COLUMNS(TAPSCOPE_SAME)
    }
    if (const auto &x = a.tcp_events, &y = b.tcp_events; tables(x, y, "tcp_events")) {
        const std::string table = "tcp_events";
        TAPSCOPE_TCP_EVENT_COLUMNS(TAPSCOPE_SAME)
    }
    if (const auto &x = a.evidence, &y = b.evidence; tables(x, y, "evidence")) {
        const std::string table = "evidence";
        TAPSCOPE_EVIDENCE_COLUMNS(TAPSCOPE_SAME)
    }
#undef TAPSCOPE_SAME
    expect(one.tracker().addresses().texts() == two.tracker().addresses().texts(), name + ": addresses");
    ClassDictionary &x = one.recorder().classes, &y = two.recorder().classes;
    expect(x.size() == y.size(), name + ": classes");
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
        expect(x.entries()[i].text == y.entries()[i].text, name + ": class");
    const auto text = [](const Counters& counters) {
        std::string out;
        for (const auto& row : counters.rows()) out += row.name + "=" + std::to_string(row.value) + " ";
        return out;
    };
    const auto equal = [&](const Counters& p, const Counters& q) {
        expect(text(p) == text(q), name + ": " + text(p) + "| " + text(q));
    };
    equal(one.counters(), two.counters());
    equal(one.recorder().counters, two.recorder().counters);
    equal(one.recorder().remainders, two.recorder().remainders);
}

void as_one(const std::string& path, const std::string& name) {
    const Settings settings;
    Engine one(settings);
    const auto source = open(path, one.counters());
    std::vector<Packet> batch;
    for (source->fill(batch); !batch.empty(); source->fill(batch)) one.packets(batch);
    one.finish();
    Pipeline two(settings);
    const auto again = open(path, two.source_counters());
    expect(two.read(*again, [](std::uint64_t, std::uint64_t) { return false; }), name + ": complete");
    compare(one, two.engine(), name);
}

void interrupted_keeps_what_was_read(const std::string& path) {
    Pipeline two(Settings{});
    const auto source = open(path, two.source_counters());
    int asked = 0;
    expect(!two.read(*source, [&](std::uint64_t, std::uint64_t) { return ++asked > 2; }), "interrupted");
    expect(two.engine().recorder().messages.size > 0, "rows before the interruption");
}

void an_exception_of_the_caller_comes_through(const std::string& path) {
    Pipeline two(Settings{});
    const auto source = open(path, two.source_counters());
    bool caught = false;
    try {
        two.read(*source, [](std::uint64_t, std::uint64_t) -> bool { throw std::string("stop"); });
    } catch (const std::string& what) {
        caught = what == "stop";
    }
    expect(caught, "exception");
}

}  // namespace

int main(int argc, char** argv) {
    for (const unsigned seed : {1u, 2u, 3u}) {
        const Made made(seed);
        as_one(made.path(), "made " + std::to_string(seed));
        interrupted_keeps_what_was_read(made.path());
        an_exception_of_the_caller_comes_through(made.path());
    }
    for (int i = 1; i < argc; ++i) as_one(argv[i], argv[i]);
    if (failures == 0) std::puts("pipeline: all tests passed");
    return failures == 0 ? 0 : 1;
}
