#include "decode/fragments.hpp"

#include <algorithm>
#include <cstring>

namespace tapscope {
namespace {

constexpr std::size_t kLongest = 65535;  // of an IP payload

// Either way, as the clock may have been set back; without sign, as times of broken captures may be anywhere.
std::uint64_t apart(std::int64_t a, std::int64_t b) noexcept {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    return a > b ? x - y : y - x;
}

}  // namespace

void Fragments::give_up(Table::iterator at) {
    const Datagram& datagram = at->second;
    bytes_ -= datagram.bytes.size();
    if (!datagram.done) counters_.add("decode.fragment_incomplete", datagram.came.size(), Unit::packets);
    table_.erase(at);
}

void Fragments::make_room(std::int64_t now_ns) {
    while (!turns_.empty()) {
        const Turn& oldest = turns_.front();
        const auto at = table_.find(oldest.key);
        const bool there = at != table_.end() && at->second.number == oldest.number;
        if (there) {
            const bool late = now_ns - at->second.first_ns > kWait_ns;
            const bool full = table_.size() > kDatagrams || bytes_ > kBytes;
            if (!late && !full) return;
            if (!late && !at->second.done) counters_.add("decode.fragment_bound");
            give_up(at);
        }
        turns_.pop_front();
    }
}

std::optional<Fragments::Whole> Fragments::add(const FragmentKey& key, const Fragment& fragment,
                                               std::int64_t time_ns) {
    const std::size_t end = fragment.offset + fragment.length;
    if (end > kLongest || fragment.length == 0 || (fragment.more && fragment.length % 8 != 0))
        return refuse("decode.bad_fragment");
    make_room(time_ns);
    auto [at, fresh] = table_.try_emplace(key);
    if (!fresh && at->second.done) {
        if (apart(time_ns, at->second.first_ns) <= std::uint64_t{kRemember_ns})
            return refuse("decode.fragment_copy");
        give_up(at);
        std::tie(at, fresh) = table_.try_emplace(key);
    }
    Datagram& datagram = at->second;
    if (fresh) {
        datagram.number = ++number_;
        datagram.first_ns = time_ns;
        turns_.push_back({key, datagram.number});
    }
    const Range range{static_cast<std::uint32_t>(fragment.offset), static_cast<std::uint32_t>(end)};
    for (const Range& old : datagram.came)
        if (old.begin == range.begin && old.end == range.end) return refuse("decode.fragment_copy");
    if (datagram.came.size() == kFragments) return refuse("decode.fragment_bound");
    const std::uint32_t highest = datagram.covered.empty() ? 0 : datagram.covered.back().end;
    if (fragment.more ? datagram.total != 0 && range.end > datagram.total
                      : (datagram.total != 0 && range.end != datagram.total) || range.end < highest)
        return refuse("decode.fragment_overlap");  // beyond the end, or a second end
    datagram.came.push_back(range);
    if (!fragment.more) datagram.total = range.end;
    if (fragment.offset == 0) datagram.protocol = fragment.protocol;
    if (fragment.captured < fragment.length)
        datagram.whole_to =
            std::min(datagram.whole_to, static_cast<std::uint32_t>(fragment.offset + fragment.captured));
    if (datagram.bytes.size() < end) {
        bytes_ += end - datagram.bytes.size();
        datagram.bytes.resize(end);
    }
    // Fills the holes that the fragment covers, and only them.
    std::uint32_t from = range.begin;
    std::uint32_t filled = 0;
    const auto fill = [&](std::uint32_t to) {
        if (to <= from) return;
        filled += to - from;
        const std::size_t skip = from - range.begin;
        if (skip < fragment.captured) {
            const std::size_t size = std::min<std::size_t>(fragment.captured - skip, to - from);
            std::memcpy(datagram.bytes.data() + from, fragment.bytes + skip, size);
            datagram.kept += size;
        }
    };
    for (const Range& there : datagram.covered) {
        if (there.end <= from) continue;
        if (there.begin >= range.end) break;
        fill(there.begin);
        from = there.end;
    }
    fill(range.end);
    if (filled < range.end - range.begin) counters_.add("decode.fragment_overlap");
    auto& covered = datagram.covered;
    covered.insert(std::upper_bound(covered.begin(), covered.end(), range,
                                    [](const Range& x, const Range& y) { return x.begin < y.begin; }),
                   range);
    std::size_t last = 0;
    for (std::size_t i = 1; i < covered.size(); ++i) {
        if (covered[i].begin <= covered[last].end)
            covered[last].end = std::max(covered[last].end, covered[i].end);
        else
            covered[++last] = covered[i];
    }
    covered.resize(last + 1);
    if (datagram.total == 0 || covered.size() != 1 || covered[0].begin != 0) return std::nullopt;
    Whole whole{std::move(datagram.bytes), datagram.total, datagram.protocol};
    bytes_ -= whole.bytes.size();
    const std::uint32_t used = std::min(datagram.whole_to, datagram.total);
    whole.bytes.resize(used);
    if (datagram.kept > used) counters_.add("decode.fragment_behind_cut", datagram.kept - used, Unit::bytes);
    counters_.add("decode.fragments_joined", datagram.came.size());
    counters_.add("decode.datagram_joined");
    datagram.bytes = {};
    datagram.covered = {};
    datagram.came = {};
    datagram.done = true;
    datagram.first_ns = time_ns;
    return whole;
}

void Fragments::finish() {
    while (!table_.empty()) give_up(table_.begin());
    turns_.clear();
}

}  // namespace tapscope
