#include "columns.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

namespace tapscope {
namespace {

template <class T>
void reorder(Column<T>& column, const std::vector<std::size_t>& order) {
    std::vector<T> sorted;
    sorted.reserve(order.size());
    for (const std::size_t row : order) sorted.push_back(column[row]);
    std::copy(sorted.begin(), sorted.end(), column.data());
}

}  // namespace

void sort_by_time(TcpEventColumns& table) {
    const auto key = [&](std::size_t row) {
        return std::make_tuple(table.end_ns[row], table.conn[row], table.begin_ns[row], table.kind[row],
                               table.direction[row], table.packets[row], table.bytes[row]);
    };
    std::vector<std::size_t> order(table.size);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
#define TAPSCOPE_REORDER(type, name) reorder(table.name, order);
    TAPSCOPE_TCP_EVENT_COLUMNS(TAPSCOPE_REORDER)
#undef TAPSCOPE_REORDER
}

}  // namespace tapscope
