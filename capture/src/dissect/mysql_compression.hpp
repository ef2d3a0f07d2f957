// The compressed protocol: zlib or zstd data in outer packets (mysql_wire.hpp), whose contents put together are the
// normal packet stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <zlib.h>
#include <zstd.h>

#include "mysql.hpp"

namespace tapscope {

namespace mysql {

// One outer packet's decompression at a time, in pieces. Buffers are kept from packet to packet.
class Decompressor {
public:
    Decompressor() = default;
    Decompressor(const Decompressor&) = delete;
    Decompressor& operator=(const Decompressor&) = delete;
    ~Decompressor();

    // Starts a packet; zlib or zstd is told apart by its first bytes.
    bool start(Bytes first_bytes);
    // Decompresses some of `in` to `out` (bounded); both counts say how far it came. False: the data are bad.
    bool step(Bytes in, std::size_t& consumed, std::uint8_t* out, std::size_t room, std::size_t& produced);

private:
    z_stream zlib_{};
    bool zlib_ready_ = false;
    ZSTD_DStream* zstd_ = nullptr;
    bool is_zstd_ = false;
};

}  // namespace mysql

struct MysqlDissector::Compression {
    struct Side {
        mysql::Decompressor decompressor;
        std::uint32_t payload_left = 0;  // bytes of the current outer packet not read yet
        std::uint64_t partial = 0;  // the same behind the last parse call, with a header that was given back
        std::uint32_t inner_left = 0;  // bytes that they may decompress to
        bool stored = false;
        bool broken = false;     // the rest of this outer packet is skipped
        bool lost = false;       // outer borders unknown
        bool command = false;    // the header that was given back is that of a command with an answer
        std::uint64_t skip = 0;  // rest of an outer packet that a gap went through
        std::vector<std::uint8_t> inner;  // inner bytes not parsed yet, then the fresh ones
    };
    Side sides[2];
    std::vector<std::uint8_t> piece;
};

}  // namespace tapscope
