#include "dissect/hpack.hpp"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <new>
#include <vector>

#include "evidence.hpp"

namespace tapscope {
namespace {

// A literal field with incremental indexing and a new name (RFC 7541 section 6.2.1): name "?", empty value. It takes
// 33 bytes of a table, the least that a field can.
constexpr std::uint8_t kPlaceholder[] = {0x40, 0x01, '?', 0x00};
constexpr std::size_t kSmallestEntry = 33;

// Dynamic table size update (section 6.3): 001 and the size as an integer with a prefix of 5 bits.
void append_size_update(std::vector<std::uint8_t>& block, std::size_t size) {
    block.push_back(0x3F);
    for (size -= 31; size >= 128; size >>= 7)
        block.push_back(static_cast<std::uint8_t>(0x80 | (size & 0x7F)));
    block.push_back(static_cast<std::uint8_t>(size));
}

}  // namespace

void HeaderTable::Delete::operator()(nghttp2_hd_inflater* inflater) const noexcept {
    nghttp2_hd_inflate_del(inflater);
}

void HeaderTable::start_empty() { make(false); }

void HeaderTable::forget() noexcept { inflater_.reset(); }

void HeaderTable::open() {
    if (inflater_ == nullptr) make(true);
}

void HeaderTable::make(bool unknown) {
    nghttp2_hd_inflater* made = nullptr;
    if (nghttp2_hd_inflate_new(&made) != 0) throw std::bad_alloc{};
    inflater_.reset(made);
    // The encoder says in its blocks which size it really uses, up to what the other side allows.
    nghttp2_hd_inflate_change_table_size(made, kMaxSize);
    if (!unknown) return;
    std::vector<std::uint8_t> block;
    append_size_update(block, size_);
    for (std::size_t n = size_ / kSmallestEntry; n > 0; --n)
        block.insert(block.end(), std::begin(kPlaceholder), std::end(kPlaceholder));
    Bytes rest = block;
    Field field;
    while (next(rest, true, field) == Result::field) {}
}

HeaderTable::Result HeaderTable::next(Bytes& bytes, bool last, Field& field) {
    nghttp2_nv pair;
    int flags = 0;
    const ssize_t used =
        nghttp2_hd_inflate_hd2(inflater_.get(), &pair, &flags, bytes.data(), bytes.size(), last ? 1 : 0);
    if (used < 0) {
        // Perhaps the table is larger than was thought.
        size_ = std::min<std::uint32_t>(size_ * 4, kMaxSize);
        forget();
        return Result::bad;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(used));
    if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
        field.name = as_text({pair.name, pair.namelen});
        field.value = as_text({pair.value, pair.valuelen});
        if (field.name == "?") field.name = {};
        return Result::field;
    }
    if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) {
        nghttp2_hd_inflate_end_headers(inflater_.get());
        return Result::done;
    }
    if (bytes.empty()) return Result::done;
    return Result::bad;
}

}  // namespace tapscope
