// A bare message framer, the least that finding messages can cost: bytes are taken in the order of the file, without
// reordering, pairing, classes or evidence; one record of 64 bytes per message.
//
// HTTP/1.1 by Content-Length and chunks, AJP13 and MySQL by their packet headers; the port tells the protocol.
#include <strings.h>

#include <memory>
#include <string>

#include "packets.hpp"

namespace {

using compare::Parsed;

struct Record {
    std::int64_t begin_ns, end_ns;
    std::uint64_t low, high;
    std::uint64_t bytes;
    std::uint32_t seq, text_size;
    std::uint8_t direction, protocol;
    char text[14];
};
static_assert(sizeof(Record) == 64);

std::vector<Record> records;

struct Side {
    std::uint64_t skip = 0;  // bytes of a body or packet that are only counted
    std::uint32_t record = 0;
    bool chunked = false, trailer = false, spoke = false;
    std::unique_ptr<std::string> carry;  // a head or line that the segment cut
};
struct Flow {
    Side side[2];
};

struct Framer {
    const Parsed& packet;
    std::int64_t time_ns;
    Flow& flow;
    unsigned direction;  // 1: from the server
    std::uint8_t protocol;

    void begin(Side& side, const std::uint8_t* p, std::size_t n) const {
        Record record{time_ns,
                      time_ns,
                      packet.low,
                      packet.high,
                      0,
                      packet.seq,
                      static_cast<std::uint32_t>(n),
                      static_cast<std::uint8_t>(direction),
                      protocol,
                      {}};
        std::memcpy(record.text, p, n < sizeof record.text ? n : sizeof record.text);
        side.record = static_cast<std::uint32_t>(records.size());
        records.push_back(record);
    }
    void add(Side& side, std::uint64_t bytes) const {
        if (records.empty()) return;
        records[side.record].bytes += bytes;
        records[side.record].end_ns = time_ns;
    }
    // What the segment holds of a length that is skipped.
    void skip(Side& side, const std::uint8_t*& p, std::size_t& n) const {
        const std::size_t taken = side.skip < n ? static_cast<std::size_t>(side.skip) : n;
        side.skip -= taken;
        add(side, taken);
        p += taken;
        n -= taken;
    }

    // Line by line through a head; how its body is framed. Returns the size of the head, 0 when it is cut.
    std::size_t head(Side& side, const char* text, std::size_t size) const {
        const char *line = text, *end = text + size;
        std::uint64_t length = 0;
        bool chunked = false;
        while (line < end) {
            const auto* stop =
                static_cast<const char*>(std::memchr(line, '\n', static_cast<std::size_t>(end - line)));
            if (stop == nullptr) return 0;
            const auto n = static_cast<std::size_t>(stop - line);
            if (n <= 1) {
                const auto whole = static_cast<std::size_t>(stop + 1 - text);
                begin(side, reinterpret_cast<const std::uint8_t*>(text), whole);
                side.chunked = chunked;
                side.skip = length;
                return whole;
            }
            if (n > 16 && (line[0] | 32) == 'c' && strncasecmp(line, "content-length:", 15) == 0) {
                for (const char* c = line + 15; c < stop; ++c)
                    if (*c >= '0' && *c <= '9') length = length * 10 + static_cast<std::uint64_t>(*c - '0');
            } else if (n > 25 && (line[0] | 32) == 't' &&
                       strncasecmp(line, "transfer-encoding: chunked", 26) == 0) {
                chunked = true;
            }
            line = stop + 1;
        }
        return 0;
    }
    std::size_t one(Side& side, const char* text, std::size_t size) const {
        return side.chunked ? chunk_line(side, text, size) : head(side, text, size);
    }

    void http(Side& side) const {
        const std::uint8_t* p = packet.payload;
        std::size_t n = packet.size;
        while (n > 0) {
            if (side.skip > 0) {
                skip(side, p, n);
                continue;
            }
            std::size_t used = 0;
            if (!side.carry || side.carry->empty()) {
                used = one(side, reinterpret_cast<const char*>(p), n);
                if (used == 0) {
                    if (!side.carry) side.carry = std::make_unique<std::string>();
                    side.carry->assign(reinterpret_cast<const char*>(p), n);
                    return;
                }
                add(side, used);
            } else {
                std::string& carry = *side.carry;
                const std::size_t before = carry.size();
                carry.append(reinterpret_cast<const char*>(p), n);
                const std::size_t whole = one(side, carry.data(), carry.size());
                if (whole == 0) return;
                add(side, whole);
                carry.clear();
                used = whole - before;
            }
            p += used;
            n -= used;
        }
    }
    // A line of a chunked body; returns its size, 0 when it is cut.
    std::size_t chunk_line(Side& side, const char* text, std::size_t size) const {
        const auto* stop = static_cast<const char*>(std::memchr(text, '\n', size));
        if (stop == nullptr) return 0;
        const auto line = static_cast<std::size_t>(stop + 1 - text);
        if (side.trailer) {
            if (line <= 2) side.chunked = side.trailer = false;
            return line;
        }
        std::uint64_t length = 0;
        for (std::size_t i = 0; i < line; ++i) {
            const int c = text[i] | 32;
            if (c >= '0' && c <= '9')
                length = length * 16 + static_cast<unsigned>(c - '0');
            else if (c >= 'a' && c <= 'f')
                length = length * 16 + static_cast<unsigned>(c - 'a' + 10);
            else
                break;
        }
        if (length == 0)
            side.trailer = true;
        else
            side.skip = length + 2;
        return line;
    }

    // Packets of a known length behind a header of four bytes.
    template <class Starts>
    void framed(Side& side, bool little, Starts starts) const {
        const std::uint8_t* p = packet.payload;
        std::size_t n = packet.size;
        while (n > 0) {
            if (side.skip > 0) {
                skip(side, p, n);
                continue;
            }
            if (n < 5 || (side.carry && !side.carry->empty())) {
                if (!side.carry) side.carry = std::make_unique<std::string>();
                std::string& carry = *side.carry;
                const std::size_t before = carry.size(), taken = n < 5 - before ? n : 5 - before;
                carry.append(reinterpret_cast<const char*>(p), taken);
                p += taken;
                n -= taken;
                if (carry.size() < 5) return;
                side.skip =
                    header(side, reinterpret_cast<const std::uint8_t*>(carry.data()), little, starts) - 1;
                add(side, 5);
                carry.clear();
                continue;
            }
            const std::uint64_t size = header(side, p, little, starts) + 4;
            const std::size_t taken = size < n ? static_cast<std::size_t>(size) : n;
            side.skip = size - taken;
            add(side, taken);
            p += taken;
            n -= taken;
        }
    }
    template <class Starts>
    std::uint64_t header(Side& side, const std::uint8_t* p, bool little, Starts starts) const {
        if (starts(p)) begin(side, p, 5);
        return little ? compare::le32(p) & 0xffffff : compare::be16(p + 2);
    }

    void run() const {
        Side& side = flow.side[direction];
        Side& peer = flow.side[direction ^ 1];
        if (protocol == 1) return http(side);
        if (protocol == 2)
            return framed(side, false, [&](const std::uint8_t* p) {
                return direction == 0 ? p[4] == 2 || p[4] == 10 : p[4] == 4 || p[4] == 9;
            });
        framed(side, true, [&](const std::uint8_t* p) {
            if (direction == 0) {
                peer.spoke = false;
                return p[3] <= 1;
            }
            const bool first = !side.spoke;
            side.spoke = true;
            return first;
        });
    }
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    compare::Flows<Flow> flows;
    const std::uint64_t packets =
        compare::walk(argv[1], [&](const std::uint8_t* bytes, std::uint32_t captured, std::int64_t time_ns) {
            Parsed packet;
            if (!compare::parse(bytes, captured, packet)) return;
            Flow& flow = flows.find(packet);
            if (packet.size == 0) return;
            const bool to_client = packet.source_port < packet.target_port;
            const std::uint16_t port = to_client ? packet.source_port : packet.target_port;
            Framer{packet, time_ns, flow, to_client ? 1u : 0u,
                   static_cast<std::uint8_t>(port == 80     ? 1
                                             : port == 8009 ? 2
                                                            : 3)}
                .run();
        });
    std::printf("packets %llu flows %zu messages %zu\n", static_cast<unsigned long long>(packets),
                flows.size(), records.size());
    return packets == 0;
}
