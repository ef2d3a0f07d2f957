#include "merge_tables.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tapscope {
namespace {

constexpr unsigned kMaxEngines = 16;
constexpr std::size_t kBatchesOfTask = 64;

using Place = RowLog::Place;

// Runs the tasks on as many threads as there are engines; throws what a task threw.
void run_all(unsigned threads, std::size_t tasks, const std::function<void(std::size_t)>& task) {
    std::atomic<std::size_t> next{0};
    std::exception_ptr failed;
    std::mutex lock;
    const auto work = [&] {
        try {
            for (std::size_t i; (i = next.fetch_add(1)) < tasks;) task(i);
        } catch (...) {
            const std::lock_guard guard(lock);
            failed = std::current_exception();
        }
    };
    std::vector<std::thread> helpers;
    for (unsigned i = 1; i < threads && i < tasks; ++i) helpers.emplace_back(work);
    work();
    for (std::thread& helper : helpers) helper.join();
    if (failed) std::rethrow_exception(failed);
}

// A row of a merged table: which engine's, and which of its rows.
template <class Index>
struct From {
    static constexpr unsigned kShift = sizeof(Index) * 8 - 4;
    static constexpr Index kRow = (Index{1} << kShift) - 1;
};

template <class Index>
class Merge {
public:
    explicit Merge(std::span<const std::unique_ptr<Engine>> engines)
        : engines_(engines), threads_(static_cast<unsigned>(engines.size())) {
        for (const auto& engine : engines_) {
            const RowLog::Sizes& rows = engine->log().rows();
            total_.messages += rows.messages;
            total_.evidence += rows.evidence;
            total_.connections += rows.connections;
            new_message_.push_back(std::make_unique_for_overwrite<Index[]>(rows.messages));
            new_connection_.push_back(std::make_unique_for_overwrite<Index[]>(rows.connections));
        }
        messages_ = std::make_unique_for_overwrite<Index[]>(total_.messages);
        evidence_ = std::make_unique_for_overwrite<Index[]>(total_.evidence);
        connections_ = std::make_unique_for_overwrite<Index[]>(total_.connections);
    }

    void run() {
        const std::size_t batches = engines_[0]->log().borders().size();
        run_all(threads_, (batches + kBatchesOfTask - 1) / kBatchesOfTask, [&](std::size_t task) {
            order(task * kBatchesOfTask, std::min((task + 1) * kBatchesOfTask, batches));
        });
        for (const auto& engine : engines_) engine->log().free_steps();
        merge_classes();
        merge_addresses();
        std::vector<std::function<void()>> tasks;
#define TAPSCOPE_GATHER_MESSAGES(type, name)                                                                 \
    tasks.push_back([this] {                                                                                 \
        gather<type>([](Recorder& r) -> auto& { return r.messages.name; }, messages_.get(), total_.messages, \
                     #name);                                                                                 \
    });
#define TAPSCOPE_GATHER_EVIDENCE(type, name)                                                                 \
    tasks.push_back([this] {                                                                                 \
        gather<type>([](Recorder& r) -> auto& { return r.evidence.name; }, evidence_.get(), total_.evidence, \
                     #name);                                                                                 \
    });
#define TAPSCOPE_GATHER_CONNECTIONS(type, name)                                                   \
    tasks.push_back([this] {                                                                      \
        gather<type>([](Recorder& r) -> auto& { return r.connections.name; }, connections_.get(), \
                     total_.connections, #name);                                                  \
    });
        TAPSCOPE_EVIDENCE_COLUMNS(TAPSCOPE_GATHER_EVIDENCE)
        TAPSCOPE_MESSAGE_COLUMNS(TAPSCOPE_GATHER_MESSAGES)
        TAPSCOPE_CONNECTION_COLUMNS(TAPSCOPE_GATHER_CONNECTIONS)
#undef TAPSCOPE_GATHER_CONNECTIONS
#undef TAPSCOPE_GATHER_EVIDENCE
#undef TAPSCOPE_GATHER_MESSAGES
        run_all(threads_, tasks.size(), [&](std::size_t task) { tasks[task](); });
        merge_tcp_events();
        for (std::size_t i = 0; i < engines_.size(); ++i) {
            Recorder& r = engines_[i]->recorder();
            // No row is appended from here on: the capacities only have to be true.
            r.messages.size = r.messages.ready = r.messages.capacity = i == 0 ? total_.messages : 0;
            r.evidence.size = r.evidence.ready = r.evidence.capacity = i == 0 ? total_.evidence : 0;
            r.connections.size = r.connections.ready = r.connections.capacity =
                i == 0 ? total_.connections : 0;
        }
    }

private:
    // Where one engine's log stands.
    struct Cursor {
        const RowLog::Steps* steps;
        std::size_t step, end;
        const std::uint64_t* due;
        std::uint64_t packet;
        Index message, evidence, connection;  // its next row of each table
        Place place;

        bool next() noexcept {  // the place of the step that comes; false: no more
            if (step == end) return false;
            const RowLog::Step& next = (*steps)[step];
            packet += next.ahead / 2;
            place = {packet, next.ahead % 2 != 0 ? *due++ : 0};
            return true;
        }
    };

    const RowLog& log_of(unsigned engine) const { return engines_[engine]->log(); }

    // The order of the rows of some batches of packets.
    void order(std::size_t first, std::size_t last) {
        std::vector<Cursor> open;
        RowLog::Sizes at;
        std::vector<unsigned> who;
        for (unsigned i = 0; i < engines_.size(); ++i) {
            const RowLog& log = engines_[i]->log();
            const RowLog::Border from = first == 0 ? RowLog::Border{} : log.borders()[first - 1];
            const RowLog::Border& to = log.borders()[last - 1];
            at.messages += from.rows.messages;
            at.evidence += from.rows.evidence;
            at.connections += from.rows.connections;
            Cursor cursor{&log.steps(),
                          from.step,
                          to.step,
                          log.due().data() + from.due,
                          from.packet,
                          static_cast<Index>(from.rows.messages),
                          static_cast<Index>(from.rows.evidence),
                          static_cast<Index>(from.rows.connections),
                          {}};
            if (!cursor.next()) continue;
            open.push_back(cursor);
            who.push_back(i);
        }
        Index *const messages = messages_.get(), *const evidence = evidence_.get();
        while (!open.empty()) {
            std::size_t best = 0;
            for (std::size_t i = 1; i < open.size(); ++i)
                if (open[i].place < open[best].place) best = i;
            Cursor& cursor = open[best];
            const unsigned engine = who[best];
            const Index tag = static_cast<Index>(engine) << From<Index>::kShift;
            const RowLog::Step step = log_of(engine).steps()[cursor.step++];
            Index* const renumbered = new_message_[engine].get() + cursor.message;
            for (Index i = 0; i < step.messages; ++i) {
                renumbered[i] = static_cast<Index>(at.messages + i);
                messages[at.messages + i] = tag | (cursor.message + i);
            }
            for (Index i = 0; i < step.evidence(); ++i)
                evidence[at.evidence + i] = tag | (cursor.evidence + i);
            cursor.message += step.messages;
            cursor.evidence += step.evidence();
            at.messages += step.messages;
            at.evidence += step.evidence();
            if (step.connection()) {
                new_connection_[engine][cursor.connection] = static_cast<Index>(at.connections);
                connections_[at.connections++] = tag | cursor.connection++;
            }
            if (!cursor.next()) {
                open.erase(open.begin() + static_cast<std::ptrdiff_t>(best));
                who.erase(who.begin() + static_cast<std::ptrdiff_t>(best));
            }
        }
    }

    struct Fresh {
        Place place;
        unsigned engine;
        std::size_t row;
    };
    // In the order in which they came up first.
    template <class Log>
    std::vector<Fresh> by_place(Log log) const {
        std::vector<Fresh> out;
        for (unsigned i = 0; i < engines_.size(); ++i) {
            const auto& rows = log(engines_[i]->log());
            for (std::size_t row = 0; row < rows.size(); ++row) out.push_back({rows[row].place, i, row});
        }
        std::stable_sort(out.begin(), out.end(),
                         [](const Fresh& a, const Fresh& b) { return a.place < b.place; });
        return out;
    }

    void merge_classes() {
        for (const auto& engine : engines_)
            new_class_.emplace_back(engine->recorder().classes.entries().size());
        ClassDictionary merged;
        for (const Fresh& fresh : by_place([](const RowLog& log) -> auto& { return log.classes(); })) {
            ClassDictionary::Entry& entry = engines_[fresh.engine]->recorder().classes.entries()[fresh.row];
            const std::int32_t id = merged.id(entry.protocol, entry.text);
            std::string& example = merged.entries()[static_cast<std::size_t>(id)].example;
            if (example.empty()) example = std::move(entry.example);
            new_class_[fresh.engine][fresh.row] = id;
        }
        engines_[0]->recorder().classes = std::move(merged);
    }

    void merge_addresses() {
        for (const auto& engine : engines_)
            new_address_.emplace_back(engine->tracker().addresses().all().size());
        AddressList merged;
        for (const Fresh& fresh : by_place([](const RowLog& log) -> auto& { return log.addresses(); }))
            new_address_[fresh.engine][fresh.row] =
                merged.index(engines_[fresh.engine]->tracker().addresses().all()[fresh.row]);
        engines_[0]->tracker().addresses() = std::move(merged);
    }

    // They are few; their order is by time (hand_over).
    void merge_tcp_events() {
        TcpEventColumns merged;
        for (std::size_t engine = 0; engine < engines_.size(); ++engine) {
            TcpEventColumns from = std::move(engines_[engine]->recorder().tcp_events);
            for (std::size_t i = 0; i < from.size; ++i) {
                const std::size_t row = merged.append();
#define TAPSCOPE_COPY(type, name) merged.name[row] = from.name[i];
                TAPSCOPE_TCP_EVENT_COLUMNS(TAPSCOPE_COPY)
#undef TAPSCOPE_COPY
                const auto conn = static_cast<std::size_t>(from.conn[i]);
                merged.conn[row] = static_cast<std::int32_t>(new_connection_[engine][conn]);
            }
        }
        engines_[0]->recorder().tcp_events = std::move(merged);
    }

    template <class T, class Access>
    void gather(Access access, const Index* order, std::size_t rows, std::string_view name) {
        // From the end, in the first engine's own column: a row never moves to the front, so that what is still to be
        // read stays.
        const T* from[kMaxEngines] = {};
        Column<T>& merged = access(engines_[0]->recorder());
        if (rows > merged.rows()) merged.resize_storage(rows);
        for (std::size_t i = 0; i < engines_.size(); ++i) from[i] = access(engines_[i]->recorder()).data();
        T* to = merged.data();
        const auto each = [&](auto value) {
            for (std::size_t i = rows; i-- > 0;) {
                const unsigned engine = static_cast<unsigned>(order[i] >> From<Index>::kShift);
                to[i] = value(engine, from[engine][order[i] & From<Index>::kRow]);
            }
        };
        // Numbers of rows become those of the merged tables; -1 (none) stays.
        const auto through = [&](const auto& maps) {
            each([&](unsigned engine, T row) {
                if constexpr (std::is_signed_v<T>)
                    return row < 0 ? row : static_cast<T>(maps[engine][static_cast<std::size_t>(row)]);
                else
                    return row;
            });
        };
        if (name == "request" || name == "message")
            through(new_message_);
        else if (name == "conn")
            through(new_connection_);
        else if (name == "class_id")
            through(new_class_);
        else if (name == "client_addr" || name == "server_addr")
            through(new_address_);
        else
            each([](unsigned, T value) { return value; });
        for (std::size_t i = 1; i < engines_.size(); ++i) Column<T>{}.swap(access(engines_[i]->recorder()));
    }

    std::span<const std::unique_ptr<Engine>> engines_;
    unsigned threads_;
    RowLog::Sizes total_;
    std::unique_ptr<Index[]> messages_, evidence_, connections_;          // merged row: From
    std::vector<std::unique_ptr<Index[]>> new_message_, new_connection_;  // by engine and its row
    std::vector<std::vector<std::int32_t>> new_class_, new_address_;
};

}  // namespace

void merge_tables(std::span<const std::unique_ptr<Engine>> engines) {
    std::size_t most = 0;
    Recorder& first = engines[0]->recorder();
    for (const auto& engine : engines) {
        const RowLog::Sizes& rows = engine->log().rows();
        most = std::max({most, rows.messages, rows.evidence, rows.connections});
        if (&engine == &engines[0]) continue;
        first.counters.add_all(engine->recorder().counters);
        first.remainders.add_all(engine->recorder().remainders);
        for (std::size_t i = 0; i < first.tap_points.rows().size(); ++i)
            first.tap_points.at(static_cast<std::uint16_t>(i)).copies +=
                engine->recorder().tap_points.rows()[i].copies;
    }
    if (most <= From<std::uint32_t>::kRow)
        Merge<std::uint32_t>(engines).run();
    else
        Merge<std::uint64_t>(engines).run();
}

}  // namespace tapscope
