#include "column_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tapscope {
namespace {

constexpr std::size_t kPage = 64 * 1024;  // a multiple of every page size in use

std::size_t rounded_up(std::size_t bytes, std::size_t unit) noexcept {
    return (bytes + unit - 1) & ~(unit - 1);
}

// Of a mapped block.
std::size_t mapped_size(std::size_t bytes) noexcept {
    return rounded_up(bytes, bytes < kLargeColumn ? kPage : kHugePage);
}

void* map(std::size_t bytes) {
    void* const block =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) throw std::bad_alloc{};
    return block;
}

// Address space at a border of huge pages. Untouched pages cost nothing.
void* map_huge(std::size_t bytes) {
    auto* const first = static_cast<std::uint8_t*>(map(bytes + kHugePage));
    const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(first) % kHugePage) % kHugePage;
    if (before > 0) ::munmap(first, before);
    if (before < kHugePage) ::munmap(first + before + bytes, kHugePage - before);
    return first + before;
}

void* grow_small(void* old, std::size_t old_bytes, std::size_t new_bytes) {
    auto* const block = static_cast<std::uint8_t*>(std::realloc(old, new_bytes));
    if (block == nullptr) throw std::bad_alloc{};
    std::memset(block + old_bytes, 0, new_bytes - old_bytes);
    return block;
}

}  // namespace

void* grow_column(void* old, std::size_t old_bytes, std::size_t new_bytes) {
    if (new_bytes < kMappedColumn) return grow_small(old, old_bytes, new_bytes);
    const std::size_t size = mapped_size(new_bytes);
    const bool huge = new_bytes >= kLargeColumn;
    if (old_bytes < kMappedColumn) {
        void* const block = huge ? map_huge(size) : map(size);
        if (huge) ::madvise(block, size, MADV_HUGEPAGE);
        if (old_bytes > 0) std::memcpy(block, old, old_bytes);
        std::free(old);
        return block;
    }
    if (!huge) {
        void* const block = ::mremap(old, mapped_size(old_bytes), size, MREMAP_MAYMOVE);
        if (block == MAP_FAILED) throw std::bad_alloc{};
        return block;
    }
    void* const block = map_huge(size);
    if (::mremap(old, mapped_size(old_bytes), size, MREMAP_MAYMOVE | MREMAP_FIXED, block) == MAP_FAILED) {
        ::munmap(block, size);
        throw std::bad_alloc{};
    }
    ::madvise(block, size, MADV_HUGEPAGE);  // advice: where it is not followed, small pages serve
    return block;
}

void prepare_column(void* block, std::size_t bytes, std::size_t from, std::size_t to) noexcept {
#if defined(MADV_POPULATE_WRITE)
    if (bytes < kMappedColumn || bytes >= kLargeColumn) return;
    const std::size_t begin = from & ~(kPage - 1), end = rounded_up(to, kPage);
    ::madvise(static_cast<std::uint8_t*>(block) + begin, end - begin, MADV_POPULATE_WRITE);
#else
    static_cast<void>(block), static_cast<void>(bytes), static_cast<void>(from), static_cast<void>(to);
#endif
}

void PagesAhead::announce(void* block, std::size_t bytes, std::size_t from, std::size_t to) noexcept {
    if (bytes < kMappedColumn) return;
    // A huge page comes with its first byte.
    const bool huge = bytes >= kLargeColumn;
    const std::size_t begin = huge ? rounded_up(from, kHugePage) : from & ~(kPage - 1);
    const std::size_t end = std::min(rounded_up(to, huge ? kHugePage : kPage), mapped_size(bytes));
    if (begin >= end) return;
    const std::lock_guard lock(mutex_);
    if (count_ == kMost) return;
    ranges_[(first_ + count_++) % kMost] = {static_cast<std::uint8_t*>(block) + begin, end - begin};
}

PagesAhead::Range PagesAhead::take() noexcept {
    const std::lock_guard lock(mutex_);
    if (count_ == 0) return {};
    const Range range = ranges_[first_];
    first_ = (first_ + 1) % kMost;
    --count_;
    return range;
}

void PagesAhead::get(Range range) noexcept {
#if defined(MADV_POPULATE_WRITE)
    ::madvise(range.begin, range.bytes, MADV_POPULATE_WRITE);
#else
    static_cast<void>(range);
#endif
}

void free_column(void* block, std::size_t bytes) noexcept {
    if (block != nullptr && bytes >= kMappedColumn)
        ::munmap(block, mapped_size(bytes));
    else
        std::free(block);
}

}  // namespace tapscope
