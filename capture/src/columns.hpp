// The tables that leave the engine, struct of arrays; store/tables.py has the same columns with unit and meaning.
//
// A table's columns grow together and are written once per row; each lies in one block (column_memory.hpp), so that
// numpy can view it without a copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "codes.hpp"
#include "column_memory.hpp"

namespace tapscope {

template <class T>
class Column {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    using value_type = T;
    Column() = default;
    Column(Column&& other) noexcept { *this = std::move(other); }
    Column& operator=(Column&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(rows_, other.rows_);
        return *this;
    }
    ~Column() { free_column(data_, rows_ * sizeof(T)); }

    T& operator[](std::size_t i) noexcept { return data_[i]; }
    const T& operator[](std::size_t i) const noexcept { return data_[i]; }
    T* data() noexcept { return data_; }
    const T* data() const noexcept { return data_; }
    std::size_t rows() const noexcept { return rows_; }
    void swap(Column& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(rows_, other.rows_);
    }
    void resize_storage(std::size_t rows) {
        data_ = static_cast<T*>(grow_column(data_, rows_ * sizeof(T), rows * sizeof(T)));
        rows_ = rows;
    }
    // Rows from `from` up to `to` are going to be written.
    void prepare(std::size_t from, std::size_t to) noexcept {
        prepare_column(data_, rows_ * sizeof(T), from * sizeof(T), to * sizeof(T));
    }
    // Rows from `from` up to `to` are the next ones.
    void announce(std::size_t from, std::size_t to, PagesAhead& ahead) const noexcept {
        ahead.announce(data_, rows_ * sizeof(T), from * sizeof(T), std::min(to, rows_) * sizeof(T));
    }

private:
    T* data_ = nullptr;
    std::size_t rows_ = 0;  // that the block has room for
};

// Every table: X(type, name) once, from which members, growth and the numpy export are made.
// clang-format off
#define TAPSCOPE_CONNECTION_COLUMNS(X)      \
    X(std::int32_t, client_addr)            \
    X(std::int32_t, server_addr)            \
    X(std::uint16_t, client_port)           \
    X(std::uint16_t, server_port)           \
    X(std::uint32_t, tap_point)             \
    X(std::int64_t, first_ns)               \
    X(std::int64_t, last_ns)                \
    X(std::int64_t, syn_ns)                 \
    X(std::int64_t, established_ns)         \
    X(std::int64_t, closed_ns)              \
    X(std::uint8_t, close_how)              \
    X(bool, midstream)                      \
    X(std::uint32_t, syn_retransmits)       \
    X(std::uint32_t, retransmits_to_server) \
    X(std::uint32_t, retransmits_to_client) \
    X(std::uint32_t, zero_windows_to_server) \
    X(std::uint32_t, zero_windows_to_client) \
    X(std::uint32_t, duplicates)            \
    X(std::uint64_t, bytes_to_server)       \
    X(std::uint64_t, bytes_to_client)       \
    X(std::uint64_t, missing_to_server)     \
    X(std::uint64_t, missing_to_client)

// What dissection found on a connection, in the row of that connection: to Python, columns of one table.
#define TAPSCOPE_CONTENT_COLUMNS(X)         \
    X(std::uint8_t, protocol)               \
    X(std::uint64_t, unparsed_to_server)    \
    X(std::uint64_t, unparsed_to_client)

#define TAPSCOPE_MESSAGE_COLUMNS(X) \
    X(std::int32_t, conn)           \
    X(std::uint8_t, direction)      \
    X(std::uint8_t, protocol)       \
    X(std::uint8_t, kind)           \
    X(std::int64_t, begin_ns)       \
    X(std::int64_t, end_ns)         \
    X(std::uint64_t, wire_bytes)    \
    X(std::uint64_t, missing_bytes) \
    X(std::int32_t, class_id)       \
    X(std::int32_t, status)         \
    X(std::uint32_t, tcp_seq)       \
    X(std::uint32_t, flags)         \
    X(std::int64_t, request)

#define TAPSCOPE_EVIDENCE_COLUMNS(X) \
    X(std::int64_t, message)         \
    X(std::uint32_t, slot)           \
    X(std::uint8_t, kind)            \
    X(std::uint64_t, hash)

// What TCP did that may have kept somebody waiting; in order of end_ns once they are handed over.
#define TAPSCOPE_TCP_EVENT_COLUMNS(X) \
    X(std::int32_t, conn)             \
    X(std::uint8_t, kind)             \
    X(std::uint8_t, direction)        \
    X(std::int64_t, begin_ns)         \
    X(std::int64_t, end_ns)           \
    X(std::uint32_t, packets)         \
    X(std::uint32_t, bytes)

// What became of a message after its row was handed over: `change` is applied to one column of it.
#define TAPSCOPE_AMENDMENT_COLUMNS(X) \
    X(std::int64_t, message)          \
    X(std::uint8_t, column)           \
    X(std::uint8_t, change)           \
    X(std::int64_t, value)

// clang-format on

// Columns of the message table by number, as amendments name them.
#define TAPSCOPE_NAME(type, name) name,
enum class MessageColumn : std::uint8_t { TAPSCOPE_MESSAGE_COLUMNS(TAPSCOPE_NAME) };
#undef TAPSCOPE_NAME
enum class Change : std::uint8_t {
    set = 0,
    add = 1,
    set_bits = 2,
    lower = 3
};  // lower: to the smaller value

#define TAPSCOPE_MEMBER(type, name) Column<type> name;
// Columns in which nearly every row is zero, as they are made: memory of their own they get where they are not.
constexpr bool mostly_zero(std::string_view column) noexcept {
    return column == "missing_bytes" || column == "flags";
}

#define TAPSCOPE_TAKE(type, name) name = std::move(other.name);
#define TAPSCOPE_GROW(type, name) name.resize_storage(capacity);
#define TAPSCOPE_PREPARE(type, name) \
    if constexpr (!mostly_zero(#name)) name.prepare(size, ready);
#define TAPSCOPE_ANNOUNCE(type, name) \
    if constexpr (!mostly_zero(#name)) name.announce(ready, ready + kPrepared, *ahead);
#define TAPSCOPE_TABLE(table, columns, first_capacity)                         \
    struct table {                                                             \
        static constexpr std::size_t kPrepared = 32 * 1024; /* rows */         \
        columns(TAPSCOPE_MEMBER) std::size_t size = 0;                         \
        std::size_t capacity = 0, ready = 0; /* size <= ready <= capacity */   \
        PagesAhead* ahead = nullptr;         /* is told what comes next */     \
        table() = default;                                                     \
        table(table&& other) noexcept { *this = std::move(other); }            \
        table& operator=(table&& other) noexcept {                             \
            columns(TAPSCOPE_TAKE) std::swap(size, other.size);                \
            std::swap(capacity, other.capacity);                               \
            std::swap(ready, other.ready);                                     \
            return *this;                                                      \
        }                                                                      \
        ~table() = default;                                                    \
        std::size_t append() {                                                 \
            if (size == ready) [[unlikely]]                                    \
                make_room();                                                   \
            return size++;                                                     \
        }                                                                      \
        void grow_to(std::size_t rows) {                                       \
            while (size < rows) append();                                      \
        }                                                                      \
        void announce() { columns(TAPSCOPE_ANNOUNCE) }                         \
        void make_room() {                                                     \
            if (size == capacity) {                                            \
                capacity = capacity == 0 ? (first_capacity) : capacity * 2;    \
                columns(TAPSCOPE_GROW)                                         \
            }                                                                  \
            ready = capacity - size < kPrepared ? capacity : size + kPrepared; \
            if (ahead != nullptr) announce();                                  \
            columns(TAPSCOPE_PREPARE)                                          \
        }                                                                      \
    };

TAPSCOPE_TABLE(ConnectionColumns, TAPSCOPE_CONNECTION_COLUMNS, 256)
TAPSCOPE_TABLE(ContentColumns, TAPSCOPE_CONTENT_COLUMNS, 256)
TAPSCOPE_TABLE(MessageColumns, TAPSCOPE_MESSAGE_COLUMNS, 4096)
TAPSCOPE_TABLE(EvidenceColumns, TAPSCOPE_EVIDENCE_COLUMNS, 16384)
TAPSCOPE_TABLE(TcpEventColumns, TAPSCOPE_TCP_EVENT_COLUMNS, 256)
TAPSCOPE_TABLE(AmendmentColumns, TAPSCOPE_AMENDMENT_COLUMNS, 256)

#undef TAPSCOPE_TABLE
#undef TAPSCOPE_ANNOUNCE
#undef TAPSCOPE_PREPARE
#undef TAPSCOPE_GROW
#undef TAPSCOPE_TAKE
#undef TAPSCOPE_MEMBER

// In order of end_ns, and of all other columns: the same order whoever filled the table.
void sort_by_time(TcpEventColumns& table);

// The rows since the last time they were handed over (Engine::drain), all of them when they never were. A message's id
// is its number since the start, a connection's likewise; `first_*` are the ids of row 0. Reassembly fills one part,
// dissection the other.
struct FlowTables {
    std::int64_t first_connection = 0;
    ConnectionColumns connections;
    TcpEventColumns tcp_events;
    // Rows of connections with smaller ids than `first_connection`, as they are now; the last one of an id counts.
    ConnectionColumns connections_again;
    std::vector<std::int64_t> again;  // their ids
};
struct MessageTables {
    std::uint64_t first_message = 0;
    MessageColumns messages;
    EvidenceColumns evidence;     // `message` holds ids
    AmendmentColumns amendments;  // of messages with smaller ids than `first_message`
    ContentColumns contents;      // of `connections`, as far as it goes
    ContentColumns contents_again;
};
struct Tables : FlowTables, MessageTables {};

}  // namespace tapscope
