#include "column_memory.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tapscope {
namespace {

std::size_t whole_pages(std::size_t bytes) noexcept { return (bytes + kHugePage - 1) & ~(kHugePage - 1); }

// Address space at a border of huge pages. Untouched pages cost nothing.
void* reserve(std::size_t bytes) {
    void* const raw = ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) throw std::bad_alloc{};
    auto* const first = static_cast<std::uint8_t*>(raw);
    const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(raw) % kHugePage) % kHugePage;
    if (before > 0) ::munmap(first, before);
    if (before < kHugePage) ::munmap(first + before + bytes, kHugePage - before);
    return first + before;
}

}  // namespace

void* grow_column(void* old, std::size_t old_bytes, std::size_t new_bytes) {
    if (new_bytes < kLargeColumn) {
        void* const moved = std::realloc(old, new_bytes);
        if (moved == nullptr) throw std::bad_alloc{};
        return moved;
    }
    const std::size_t size = whole_pages(new_bytes);
    void* block = reserve(size);
    if (old_bytes >= kLargeColumn) {
        if (::mremap(old, whole_pages(old_bytes), size, MREMAP_MAYMOVE | MREMAP_FIXED, block) == MAP_FAILED) {
            ::munmap(block, size);
            throw std::bad_alloc{};
        }
    }
    ::madvise(block, size, MADV_HUGEPAGE);  // advice: where it is not followed, small pages serve
    if (old != nullptr && old_bytes < kLargeColumn) {
        std::memcpy(block, old, old_bytes);
        std::free(old);
    }
    return block;
}

void free_column(void* block, std::size_t bytes) noexcept {
    if (block != nullptr && bytes >= kLargeColumn)
        ::munmap(block, whole_pages(bytes));
    else
        std::free(block);
}

}  // namespace tapscope
