#include "reassemble/stream.hpp"

#include <algorithm>
#include <cstring>

namespace tapscope {

HeldSegments::Added HeldSegments::add(std::uint64_t offset, const Segment& segment, std::uint64_t order) {
    Added added;
    const std::uint64_t begin = offset, end = offset + segment.length();
    const auto first = items_.begin() + static_cast<std::ptrdiff_t>(head_);
    // Segments mostly come at the end: look there first.
    auto at = items_.end();
    if (at != first && (at - 1)->offset > begin)
        at = std::upper_bound(first, items_.end(), begin, [](std::uint64_t value, const HeldSegment& held) {
            return value < held.offset;
        });
    std::uint64_t from = begin;
    if (at != first && (at - 1)->end() > from) {
        const std::uint64_t covered = std::min((at - 1)->end(), end);
        added.overlap += covered - from;
        from = covered;
    }
    auto index = at - items_.begin();
    while (from < end) {
        const bool more = index < static_cast<std::ptrdiff_t>(items_.size());
        const std::uint64_t stop = more ? std::min(items_[static_cast<std::size_t>(index)].offset, end) : end;
        if (stop > from) {
            HeldSegment piece;
            piece.offset = from;
            const std::uint64_t skip = from - begin;
            const std::uint64_t captured =
                skip < segment.captured ? std::min<std::uint64_t>(segment.captured - skip, stop - from) : 0;
            piece.captured = static_cast<std::uint32_t>(captured);
            piece.missing = static_cast<std::uint32_t>(stop - from - captured);
            // TCP sends in order: what others lie behind was sent no later than they were.
            piece.time_ns = more ? std::min(segment.time_ns, items_[static_cast<std::size_t>(index)].time_ns)
                                 : segment.time_ns;
            piece.order = order;
            piece.ack = segment.ack;
            piece.has_ack = (segment.flags & tcp_flag::ack) != 0;
            if (captured > 0) {
                piece.data = std::make_unique_for_overwrite<std::uint8_t[]>(captured);
                std::memcpy(piece.data.get(), segment.payload + skip, captured);
            }
            added.bytes += stop - from;
            bytes_ += captured;
            items_.insert(items_.begin() + index, std::move(piece));
            ++index;
        }
        if (!more || stop == end) break;
        const HeldSegment& behind = items_[static_cast<std::size_t>(index)];
        const std::uint64_t covered = std::min(behind.end(), end);
        added.overlap += covered - behind.offset;
        from = covered;
        ++index;
    }
    return added;
}

HeldSegment HeldSegments::take_front() {
    HeldSegment taken = std::move(items_[head_]);
    bytes_ -= taken.captured;
    if (++head_ == items_.size()) {
        items_.clear();
        head_ = 0;
    } else if (head_ >= 64 && head_ * 2 >= items_.size()) {
        items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
        head_ = 0;
    }
    return taken;
}

void HeldSegments::retransmitted(std::uint64_t begin, std::uint64_t end, std::int64_t time_ns) noexcept {
    for (std::size_t i = head_; i < items_.size() && items_[i].offset < end; ++i) {
        if (items_[i].end() <= begin) continue;
        items_[i].retransmitted = true;
        if (begin <= items_[i].offset && end >= items_[i].end())
            items_[i].time_ns = std::min(items_[i].time_ns, time_ns);
    }
}

void HeldSegments::stamped_earlier(std::uint64_t begin, std::uint64_t end, std::int64_t time_ns) noexcept {
    for (std::size_t i = head_; i < items_.size() && items_[i].offset < end; ++i)
        if (begin <= items_[i].offset && end >= items_[i].end())
            items_[i].time_ns = std::min(items_[i].time_ns, time_ns);
}

std::uint64_t HeldSegments::rebase(std::uint64_t origin) {
    std::uint64_t dropped = 0;
    while (!empty() && front().end() <= origin) dropped += take_front().captured;
    if (!empty() && front().offset < origin) {
        HeldSegment& cut = front();
        const std::uint64_t lost = std::min<std::uint64_t>(origin - cut.offset, cut.captured);
        if (lost > 0) std::memmove(cut.data.get(), cut.data.get() + lost, cut.captured - lost);
        cut.captured -= static_cast<std::uint32_t>(lost);
        cut.missing -= static_cast<std::uint32_t>(origin - cut.offset - lost);
        bytes_ -= lost;
        dropped += lost;
        cut.offset = origin;
    }
    for (std::size_t i = head_; i < items_.size(); ++i) items_[i].offset -= origin;
    return dropped;
}

std::uint64_t Stream::anchor(std::uint64_t origin) {
    const auto shifted = [origin](std::uint64_t offset) { return offset > origin ? offset - origin : 0; };
    base_seq += static_cast<std::uint32_t>(origin);
    next = 0;
    acked = shifted(acked);
    stuck_ack = shifted(stuck_ack);
    fin_at = shifted(fin_at);
    based = anchored = true;
    return held != nullptr ? held->rebase(origin) : 0;
}

}  // namespace tapscope
