// Bytes in, text out: plays a scripted exchange to the engine's Conversation and prints the messages it reports.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dissect/conversation.hpp"
#include "expect.hpp"
#include "record.hpp"

namespace tapscope::test {

inline void expect_equal(const std::string& actual, const std::string& expected, const std::string& what) {
    if (actual == expected) return;
    std::fprintf(stderr, "FAILED %s\n--- expected\n%s\n--- actual\n%s\n", what.c_str(), expected.c_str(),
                 actual.c_str());
    ++failures;
}

// One delivery to the tap: bytes of one direction in one packet, or (with `missing`) bytes that were never seen.
struct Delivery {
    Direction direction;
    std::string bytes;
    std::uint64_t missing = 0;
};

inline Delivery up(std::string bytes) { return {Direction::to_server, std::move(bytes)}; }
inline Delivery down(std::string bytes) { return {Direction::to_client, std::move(bytes)}; }
inline Delivery lost_up(std::uint64_t n) { return {Direction::to_server, {}, n}; }
inline Delivery lost_down(std::uint64_t n) { return {Direction::to_client, {}, n}; }

class Tap {
public:
    explicit Tap(Protocol protocol = Protocol::unknown)
        : recorder_({1, 2}), conversation_(std::make_unique<Conversation>(recorder_, 0, protocol)) {}

    // `chunk`: bytes delivered at once; 0 = each step whole. All chunks of a step carry the step's time.
    Tap& play(const std::vector<Delivery>& script, std::size_t chunk = 0) {
        for (const Delivery& step : script) {
            const auto d = static_cast<unsigned>(step.direction);
            ++time_ns_;
            if (step.missing > 0) {
                conversation_->gap(step.direction, step.missing);
                sent_[d] += step.missing;
                continue;
            }
            // An exact-size heap copy, so that a sanitizer sees every read beyond the end.
            for (std::size_t at = 0; at < step.bytes.size();) {
                const std::size_t n =
                    chunk == 0 ? step.bytes.size() : std::min(chunk, step.bytes.size() - at);
                const std::vector<std::uint8_t> copy(
                    step.bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    step.bytes.begin() + static_cast<std::ptrdiff_t>(at + n));
                conversation_->bytes(step.direction, copy, time_ns_, sent_[1 - d]);
                at += n;
                sent_[d] += n;
            }
        }
        recorder_.settle_hashes();
        return *this;
    }

    Tap& finish() {
        ++time_ns_;
        conversation_->end(Direction::to_server, time_ns_, false);
        conversation_->end(Direction::to_client, time_ns_, false);
        recorder_.settle_hashes();
        return *this;
    }

    // One line a message: row, direction, kind, class, status, flags, length, times, request.
    std::string messages() const {
        std::string out;
        const auto& m = recorder_.messages;
        for (std::size_t i = 0; i < m.size; ++i) {
            constexpr const char* kinds[] = {"request", "response", "interim", "one-way"};
            out += std::to_string(i) + (m.direction[i] == 0 ? " > " : " < ") + kinds[m.kind[i]];
            if (m.class_id[i] >= 0) out += " '" + class_text(m.class_id[i]) + "'";
            if (m.status[i] >= 0) out += " status " + std::to_string(m.status[i]);
            if (m.flags[i] != 0) out += " flags " + std::to_string(m.flags[i]);
            out += " bytes " + std::to_string(m.wire_bytes[i]);
            if (m.missing_bytes[i] != 0) out += " missing " + std::to_string(m.missing_bytes[i]);
            out += " at " + std::to_string(m.begin_ns[i]) + "-" + std::to_string(m.end_ns[i]);
            if (m.request[i] >= 0) out += " answers " + std::to_string(m.request[i]);
            out += "\n";
        }
        return out;
    }

    // Tokens of one message: "slot kind hash" with values of `vocabulary` in place of the hash where they match.
    std::string tokens(std::size_t row, const std::vector<std::string>& vocabulary) const {
        constexpr const char* kinds[] = {"?", "uri", "number", "text", "endpoint", "result", "statement"};
        std::string out;
        const auto& e = recorder_.evidence;
        for (std::size_t i = 0; i < e.size; ++i) {
            if (e.message[i] != static_cast<std::int64_t>(row)) continue;
            std::string value = "(unknown value)";
            for (const auto& word : vocabulary) {
                if (siphash13({1, 2}, as_bytes(word)) == e.hash[i]) value = word;
            }
            out += name_of_slot(e.slot[i], vocabulary) + " " + kinds[e.kind[i] & 0x7F] +
                   ((e.kind[i] & id_like) != 0 ? "/id " : " ") + value + "\n";
        }
        return out;
    }

    std::string counters(std::string_view prefix) const {
        std::string out;
        for (const auto& row : recorder_.counters.rows()) {
            if (row.name.starts_with(prefix)) out += row.name + " " + std::to_string(row.value) + "\n";
        }
        return out;
    }

    // Every byte of both streams is in a message or counted outside of messages.
    bool accounted() const {
        for (unsigned d = 0; d < 2; ++d) {
            std::uint64_t bytes = conversation_->exchange().at(static_cast<Direction>(d)).outside;
            const auto& m = recorder_.messages;
            for (std::size_t i = 0; i < m.size; ++i) bytes += m.direction[i] == d ? m.wire_bytes[i] : 0;
            if (bytes != sent_[d]) return false;
        }
        return true;
    }

    std::uint64_t outside(Direction d) { return conversation_->exchange().at(d).outside; }
    const Recorder& recorder() const { return recorder_; }

private:
    static std::string name_of_slot(std::uint32_t slot, const std::vector<std::string>& vocabulary) {
        if (slot >= kPathSegmentSlot) return "segment " + std::to_string(slot - kPathSegmentSlot);
        if (slot < 4096) return std::to_string(slot);
        for (const auto& word : vocabulary) {
            if (slot_of_name(word) == slot) return word;
        }
        return "(unknown slot)";
    }

    std::string class_text(std::int32_t id) const {
        return const_cast<Recorder&>(recorder_).classes.entries()[static_cast<std::size_t>(id)].text;
    }

    Recorder recorder_;
    std::unique_ptr<Conversation> conversation_;
    std::int64_t time_ns_ = 0;
    std::uint64_t sent_[2] = {0, 0};
};

// Plays the script whole and in chunks of 1, 2, 3, 7 and 50 bytes: the messages must be the same each time.
inline std::string play_all_ways(const std::vector<Delivery>& script, const std::string& what,
                                 Protocol protocol = Protocol::unknown) {
    Tap whole(protocol);
    const std::string expected = whole.play(script).finish().messages();
    for (const std::size_t chunk : {1, 2, 3, 7, 50}) {
        Tap split(protocol);
        expect_equal(split.play(script, chunk).finish().messages(), expected,
                     what + ", chunks of " + std::to_string(chunk));
        expect(split.accounted(), what + ": bytes do not add up, chunks of " + std::to_string(chunk));
        expect(split.recorder().evidence.size == whole.recorder().evidence.size,
               what + ": evidence differs with chunks of " + std::to_string(chunk));
    }
    return expected;
}

}  // namespace tapscope::test
