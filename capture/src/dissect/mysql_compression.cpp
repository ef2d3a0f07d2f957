#include "mysql_compression.hpp"

#include <algorithm>
#include <utility>

namespace tapscope {

using namespace mysql;

namespace {

// An outer packet is read in steps of this many bytes, so that long ones need no more than the driver keeps waiting.
// Larger than a zstd block (128 KiB), before the end of which zstd gives nothing.
constexpr std::size_t kStep = 160 * 1024;
constexpr std::size_t kPiece = 64 * 1024;  // inner bytes handed on at once
constexpr int kMaxWindowLog = 24;          // zstd memory: MySQL's packets have 16 MB at most

bool plausible_outer(Bytes bytes) noexcept {
    if (bytes.size() < kCompressedHeader + 2) return false;
    const std::uint32_t compressed = load_le24(bytes.data());
    const std::uint32_t uncompressed = load_le24(bytes.data() + 4);
    const std::uint8_t* data = bytes.data() + kCompressedHeader;
    if (uncompressed == 0) return compressed >= kHeader && compressed + kCompressedHeader == bytes.size();
    if (uncompressed < compressed) return false;
    if (compressed >= 4 && bytes.size() >= kCompressedHeader + 4 && load_le32(data) == kZstdMagic)
        return true;
    return (data[0] & 0x0F) == 8 && (data[0] * 256 + data[1]) % 31 == 0;
}

}  // namespace

Decompressor::~Decompressor() {
    if (zlib_ready_) inflateEnd(&zlib_);
    if (zstd_ != nullptr) ZSTD_freeDStream(zstd_);
}

bool Decompressor::start(Bytes first_bytes) {
    is_zstd_ = first_bytes.size() >= 4 && load_le32(first_bytes.data()) == kZstdMagic;
    if (is_zstd_) {
        if (zstd_ == nullptr) zstd_ = ZSTD_createDStream();
        if (zstd_ == nullptr) return false;
        ZSTD_DCtx_reset(zstd_, ZSTD_reset_session_only);
        return ZSTD_isError(ZSTD_DCtx_setParameter(zstd_, ZSTD_d_windowLogMax, kMaxWindowLog)) == 0;
    }
    if (zlib_ready_) return inflateReset(&zlib_) == Z_OK;
    zlib_ready_ = inflateInit(&zlib_) == Z_OK;
    return zlib_ready_;
}

bool Decompressor::step(Bytes in, std::size_t& consumed, std::uint8_t* out, std::size_t room,
                        std::size_t& produced) {
    if (is_zstd_) {
        ZSTD_inBuffer input{in.data(), in.size(), 0};
        ZSTD_outBuffer output{out, room, 0};
        const std::size_t result = ZSTD_decompressStream(zstd_, &output, &input);
        consumed = input.pos;
        produced = output.pos;
        return ZSTD_isError(result) == 0;
    }
    zlib_.next_in = const_cast<Bytef*>(in.data());  // zlib reads only
    zlib_.avail_in = static_cast<uInt>(in.size());
    zlib_.next_out = out;
    zlib_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&zlib_, Z_NO_FLUSH);
    consumed = in.size() - zlib_.avail_in;
    produced = room - zlib_.avail_out;
    return result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR;
}

void MysqlDissector::start_compression() {
    compressed_ = true;
    if (compression_ == nullptr) compression_ = std::make_unique<Compression>();
}

// The side `seen` sends compressed packets, and the start of that was not seen: the other one's borders are unknown.
void MysqlDissector::compression_under_way(Direction seen) {
    phase_ = Phase::command;
    start_compression();
    side(seen).lost = false;
    lose(opposite(seen));
    compression_->sides[static_cast<unsigned>(opposite(seen))].lost = true;
}

void MysqlDissector::infer_compression(Direction seen, Recorder& recorder) {
    recorder.count("mysql.compression_inferred");
    compression_under_way(seen);
}

// Reads outer packets from `base` on; returns how much of `bytes` (counted from 0) is done with.
std::uint64_t MysqlDissector::outer_packets(Direction direction, Bytes bytes, std::uint64_t base,
                                            Recorder& recorder) {
    Compression::Side& outer = compression_->sides[static_cast<unsigned>(direction)];
    std::vector<std::uint8_t>& piece = compression_->piece;
    const std::size_t size = bytes.size();
    auto pos = static_cast<std::size_t>(base);
    outer.partial = outer.payload_left;
    outer.command = false;
    if (outer.skip > 0) {
        const std::size_t skipped = std::min<std::size_t>(outer.skip, size - pos);
        pos += skipped;
        outer.skip -= skipped;
        if (outer.skip > 0) return size;
        // The rest of a packet with a hole: as far as can be told, the answer ends here.
        if (direction == Direction::to_client && answer_row_ != kNoMessage) recorder.end(answer_row_, pos);
    }
    if (outer.lost) {
        if (size - pos < kCompressedHeader + 2) return pos;
        if (!plausible_outer(bytes.subspan(pos))) return size;
        outer.lost = false;
        outer.inner.clear();
    }
    while (pos < size) {
        std::size_t header = 0;
        std::uint32_t payload_left = outer.payload_left;
        if (payload_left == 0) {
            if (size - pos < kCompressedHeader) break;
            header = kCompressedHeader;
            payload_left = load_le24(&bytes[pos]);
        }
        const std::size_t step = std::min<std::size_t>(payload_left, kStep);
        if (size - pos - header < step) {
            outer.partial = header + payload_left;
            // Reported now, so that a loss inside the packet does not lose the message.
            const bool starts =
                header > 0 && outer.inner.empty() && !side(direction).lost && side(direction).skip == 0;
            if (starts && direction == Direction::to_client && answer_row_ == kNoMessage &&
                recorder.has_request()) {
                begin_answer({}, 1, pos, recorder);
            }
            // Of the commands without an answer only long data is of another size than these.
            constexpr std::uint32_t kQuit = 5, kClose = 9;
            outer.command = starts && direction == Direction::to_server && bytes[pos + 3] == 0 &&
                            size - pos == header && payload_left != kQuit && payload_left != kClose;
            break;
        }
        Bytes in = bytes.subspan(pos + header, step);
        if (header > 0) {
            const std::uint32_t uncompressed = load_le24(&bytes[pos + 4]);
            outer.stored = uncompressed == 0;
            outer.inner_left = outer.stored ? payload_left : uncompressed;
            outer.broken = !outer.stored && !outer.decompressor.start(in);
        }
        outer.payload_left = payload_left - static_cast<std::uint32_t>(step);
        if (outer.stored) {
            inner_bytes(direction, in, {pos, 0, in.size(), header + step}, recorder);
            in = {};
        }
        // Each piece of inner bytes maps to the outer bytes that were read for it.
        std::size_t from = pos;
        while (!outer.broken && (!in.empty() || outer.inner_left > 0) && !outer.stored) {
            if (piece.size() < kPiece) piece.resize(kPiece);
            std::size_t consumed = 0, produced = 0;
            const std::size_t room = std::min<std::size_t>(kPiece, outer.inner_left);
            const bool ok = room > 0 && outer.decompressor.step(in, consumed, piece.data(), room, produced);
            if (!ok && produced == 0) {
                if (room == 0 && outer.payload_left == 0) break;  // a checksum may follow the last byte
                outer.broken = true;
                break;
            }
            in = in.subspan(consumed);
            outer.inner_left -= static_cast<std::uint32_t>(produced);
            const std::size_t to =
                in.empty() ? pos + header + step : static_cast<std::size_t>(in.data() - bytes.data());
            if (produced > 0) {
                inner_bytes(direction, {piece.data(), produced}, {from, 0, produced, to - from}, recorder);
                from = to;
            } else if (consumed == 0) {
                break;
            }
        }
        if (outer.payload_left == 0 && !outer.stored && (outer.broken || outer.inner_left > 0)) {
            recorder.count("mysql.bad_compressed_packet");
            outer.broken = false;
            outer.inner.clear();
            lose(direction);
        }
        pos += header + step;
        outer.partial = outer.payload_left;
    }
    return pos;
}

// Gives fresh inner bytes, with those left over from before, to the packet layer.
void MysqlDissector::inner_bytes(Direction direction, Bytes fresh, OffsetMap map, Recorder& recorder) {
    std::vector<std::uint8_t>& inner = compression_->sides[static_cast<unsigned>(direction)].inner;
    map.carried = inner.size();
    Bytes bytes = fresh;
    if (!inner.empty()) {
        inner.insert(inner.end(), fresh.begin(), fresh.end());
        bytes = inner;
    }
    const std::uint64_t consumed =
        std::min<std::uint64_t>(packets(direction, bytes, map, recorder), bytes.size());
    const Bytes rest = bytes.subspan(static_cast<std::size_t>(consumed));
    if (bytes.data() == fresh.data()) {
        inner.assign(rest.begin(), rest.end());
    } else {
        inner.erase(inner.begin(), inner.begin() + static_cast<std::ptrdiff_t>(consumed));
    }
}

// Connectors write the header of an outer packet by itself: when what follows is lost it still tells of a command.
void MysqlDissector::command_lost(Recorder& recorder) {
    Compression::Side& outer = compression_->sides[static_cast<unsigned>(Direction::to_server)];
    if (!std::exchange(outer.command, false) || phase_ != Phase::command) return;
    serial_ = (serial_ + 1) & 0xFFFFFF;
    request_ = recorder.begin(Direction::to_server, MessageKind::request, 0 - side(Direction::to_server).left,
                              serial_ << 8 | static_cast<std::uint32_t>(Command::unknown));
    recorder.set_class(request_, protocol, "(command unseen)");
    recorder.count("mysql.request_text_lost");
}

// A gap in the outer stream. Inner borders are always lost; outer ones unless it lies inside of a packet.
void MysqlDissector::outer_gap(Direction direction, std::uint64_t missing) {
    Compression::Side& outer = compression_->sides[static_cast<unsigned>(direction)];
    outer.inner.clear();
    if (outer.lost) return;
    const std::uint64_t left = side(direction).left;
    if (outer.skip > 0) {
        if (missing > outer.skip) {
            outer.lost = true;
            outer.skip = 0;
        } else {
            outer.skip -= missing;
        }
        return;
    }
    const std::uint64_t partial = outer.partial;
    outer.payload_left = 0;
    outer.partial = 0;
    if (left + missing <= partial) {
        outer.skip = partial - left - missing;
        return;
    }
    outer.lost = true;
}

}  // namespace tapscope
