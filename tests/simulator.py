"""Three tiers with known truth: closed-loop users -> web (HTTP) -> app (AJP) -> db (MySQL).

A small discrete-event simulation in which every queue is real: users think and wait, the web server has
worker threads, both servers take connections from pools, every node has processors that serve first come,
first served, and the application server can stand still for a while (a stop-the-world collection).
The tables that come out obey store/tables.py and agree with each other, as a tap between the hosts would
see them. Nothing of the product is used except the column contracts and the run file, so that it can judge
the product.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store.codes import (
    CallFlag,
    Direction,
    LinkKind,
    MessageFlag,
    MessageKind,
    Protocol,
    TokenKind,
)
from tapscope.store.runfile import RunFile
from tapscope.store.tables import TABLES, Table, check

START_NS = 1_790_000_000_000_000_000
"""First instant of every simulation: 2026-09-21 UTC."""
HOP_NS = 20_000
"""From a host to the tap, and from the tap to the other host."""
ADDRESSES = ["10.77.0.1", "10.77.0.11", "10.77.0.12", "10.77.0.13"]
NODE_NAMES = ["10.77.0.1", "10.77.0.11", "10.77.0.12", "10.77.0.13"]
PORTS = (0, 80, 8009, 3306)
PROTOCOLS = (Protocol.UNKNOWN, Protocol.HTTP, Protocol.AJP, Protocol.MYSQL)
WEB, APP, DB = 1, 2, 3
TIER_NAMES = {WEB: "web", APP: "app", DB: "db"}
EVENT_LOAD = ("tier", "window_ns", "width_ns", "load", "max", "arrivals", "completions")

# Route, mean application milliseconds, and its statements (index, how often at least, at most).
PAGES = (
    ("GET /board/stories ?page", 1.5, ((0, 1, 1), (1, 2, 5))),
    ("GET /board/story/{n}", 2.0, ((2, 1, 1), (3, 1, 6), (1, 1, 2))),
    ("GET /board/search ?q&type", 4.0, ((4, 1, 1), (1, 0, 4))),
    ("GET /board/about", 0.6, ()),
    ("POST /board/comment ?parent&story", 3.0, ((1, 1, 1), (2, 1, 1), (5, 1, 1))),
)
STATEMENTS = (
    ("SELECT id, title, writer FROM stories ORDER BY date DESC LIMIT ?", 1.8),
    ("SELECT nickname FROM users WHERE id = ?", 0.35),
    ("SELECT * FROM stories WHERE id = ?", 0.6),
    ("SELECT * FROM comments WHERE story_id = ? AND parent = ?", 1.1),
    ("SELECT id FROM stories WHERE title LIKE ? LIMIT ?", 6.0),
    ("INSERT INTO comments VALUES (?+)", 1.4),
)


@dataclass
class _Call:
    node: int
    conn: int
    class_id: int
    parent: int
    story: int
    arrive: int
    request_end: int
    begin: int = -1
    depart: int = -1


class _Pool:
    """Interchangeable items (threads, processors, connections), handed out first come, first served."""

    def __init__(self, items: list[int]) -> None:
        self.free = deque(items)
        self.waiting: deque[Generator] = deque()
        self.frozen = False  # while set, nothing is handed out: what comes back stays here


@dataclass
class Simulation:
    """Tables as the stages make them, the truth about every call, and what hosts and logs would say."""

    tables: dict[str, Table]
    classes: list[tuple[int, str]]
    addresses: list[str]
    counters: list[tuple[str, int, str]]
    sources: list[dict]
    true_parent: NDArray[np.int64]
    busy: dict[int, list[tuple[int, int]]] = field(repr=False)
    processors: dict[int, int] = field(default_factory=dict)
    begin_ns: int = START_NS
    end_ns: int = START_NS

    def cpu_percent(self, node: int, width_ns: int = 50_000_000) -> tuple[NDArray, NDArray]:
        """Start (int64 ns) and processor utilisation (percent of all processors) of each window of a node."""
        edges = np.arange(self.begin_ns, self.end_ns + width_ns, width_ns)
        spans = np.array(self.busy[node], dtype=np.int64).reshape(-1, 2)
        area = np.diff(_area(spans[:, 0], spans[:, 1], edges))
        return edges[:-1], 100.0 * area / width_ns / self.processors[node]

    def save(self, path: Path) -> None:
        """Write a run file with everything that a tap gives."""
        with RunFile.create(path) as run:
            run.write_addresses(self.addresses)
            run.write_classes(self.classes)
            run.write_sources(self.sources)
            run.write_counters(self.counters)
            for name in TABLES:
                run.write_table(name, self.tables[name])
            run.write_node_names(NODE_NAMES)
            run.set_meta("complete", True)

    def write_host_logs(self, directory: Path) -> None:
        """Write `hosts/<tier>/cgroup_cpu.csv` of each host: growing CPU time, sampled every 50 ms."""
        for node, name in TIER_NAMES.items():
            at, percent = self.cpu_percent(node)
            used = np.cumsum(percent / 100.0 * self.processors[node] * 50_000_000).astype(np.int64)
            folder = directory / "hosts" / name
            folder.mkdir(parents=True)
            rows = ["time_ns_begin,time_ns_end,usage_ns"]
            ends = (at + 50_000_000).tolist()
            rows += [
                f"{end - 5_000},{end + 5_000},{use}" for end, use in zip(ends, used.tolist(), strict=True)
            ]
            (folder / "cgroup_cpu.csv").write_text("\n".join(rows) + "\n")

    def event_loads(self, width_ns: int = 50_000_000) -> dict[str, list[Any]]:
        """Columns of event_load: queue length by each tier's own log, in the windows of `loads`."""
        windows = np.arange(self.begin_ns, self.end_ns, width_ns)
        edges = np.append(windows, windows[-1] + width_ns)
        columns: dict[str, list[Any]] = {name: [] for name in EVENT_LOAD}
        for node, name in TIER_NAMES.items():
            arrive, depart = self.event_calls(node)
            mine = self.tables["loads"]["node"] == node
            values = (
                [name] * len(windows),
                windows.tolist(),
                [width_ns] * len(windows),
                (np.diff(_area(arrive, depart, edges)) / width_ns).tolist(),
                self.tables["loads"]["max"][mine].tolist(),
                np.histogram(arrive, edges)[0].tolist(),
                np.histogram(depart, edges)[0].tolist(),
            )
            for column, more in zip(EVENT_LOAD, values, strict=True):
                columns[column] += more
        return columns

    def event_calls(self, node: int, offset_ns: int = 0) -> tuple[NDArray, NDArray]:
        """Arrival and departure (int64 ns) of the calls of a node as its own log gives them."""
        calls = self.tables["calls"]
        mine = (calls["server_node"] == node) & (calls["depart_ns"] >= 0)
        micro = 1000
        arrive = (calls["arrive_ns"][mine] + HOP_NS + offset_ns) // micro * micro
        return arrive, (calls["depart_ns"][mine] - HOP_NS + offset_ns) // micro * micro


def _area(begin: NDArray, end: NDArray, at: NDArray) -> NDArray:
    """Integral over time of the number of spans [begin, end) that are open, from -infinity to each `at`."""
    total = np.zeros(len(at), dtype=np.int64)
    for bound, sign in ((np.sort(begin), 1), (np.sort(end), -1)):
        count = np.searchsorted(bound, at, side="left")
        passed = np.concatenate([[0], np.cumsum(bound - START_NS)])[count]
        total += sign * (count * (at - START_NS) - passed)
    return total


class _World:
    def __init__(self, seed: int, end_ns: int) -> None:
        self.random = random.Random(seed)
        self.now = START_NS
        self.end = end_ns
        self.events: list[tuple[int, int, Generator, int | None]] = []
        self.order = 0
        self.calls: list[_Call] = []
        self.busy: dict[int, list[tuple[int, int]]] = {WEB: [], APP: [], DB: []}
        self.cpu: dict[int, _Pool] = {}
        self.pool: dict[int, _Pool] = {}
        self.workers = _Pool([])

    def start(self, process: Generator, at: int) -> None:
        self._at(at, process, None)

    def _at(self, when: int, process: Generator, value: int | None) -> None:
        self.order += 1
        heapq.heappush(self.events, (when, self.order, process, value))

    def give(self, pool: _Pool, item: int) -> None:
        if pool.waiting and not pool.frozen:
            self._at(self.now, pool.waiting.popleft(), item)
        else:
            pool.free.append(item)

    def run(self) -> None:
        while self.events and self.events[0][0] < self.end:
            self.now, _, process, value = heapq.heappop(self.events)
            try:
                demand = process.send(value)
            except StopIteration:
                continue
            if isinstance(demand, _Pool):
                if demand.free and not demand.frozen:
                    self._at(self.now, process, demand.free.popleft())
                else:
                    demand.waiting.append(process)
            else:
                self._at(self.now + demand, process, None)

    def think(self, mean_ns: float) -> int:
        return int(self.random.expovariate(1.0 / mean_ns))

    def compute(self, node: int, mean_ms: float) -> Generator:
        item = yield self.cpu[node]
        began = self.now
        yield self.think(mean_ms * 1e6)
        self.busy[node].append((began, self.now))
        self.give(self.cpu[node], item)

    def call(self, node: int, conn: int, class_id: int, parent: int, story: int) -> tuple[int, _Call]:
        arrive = self.now + HOP_NS
        record = _Call(node, conn, class_id, parent, story, arrive, arrive + 1000 + story % 3000)
        self.calls.append(record)
        return len(self.calls) - 1, record

    def reply(self, record: _Call) -> int:
        record.begin = self.now + HOP_NS
        size_ns = self.random.randrange(2_000, 60_000)
        if record.begin + size_ns < self.end:
            record.depart = record.begin + size_ns
        else:
            record.begin = -1
        return 2 * HOP_NS + size_ns

    def user(self, conn: int, think_ns: float) -> Generator:
        while True:
            yield self.think(think_ns)
            page = self.random.choices(range(len(PAGES)), (5, 6, 1, 2, 1))[0]
            row, record = self.call(WEB, conn, page, -1, self.random.randrange(1, 90_000))
            yield 2 * HOP_NS
            worker = yield self.workers
            yield from self.compute(WEB, 0.25)
            link = yield self.pool[APP]
            yield from self.application(link, page, row, record.story)
            self.give(self.pool[APP], link)
            yield from self.compute(WEB, 0.1)
            self.give(self.workers, worker)
            yield self.reply(record)

    def application(self, conn: int, page: int, parent: int, story: int) -> Generator:
        row, record = self.call(APP, conn, len(PAGES) + page, parent, story)
        yield 2 * HOP_NS
        _, mean_ms, statements = PAGES[page]
        yield from self.compute(APP, mean_ms / 2)
        for statement, least, most in statements:
            for _ in range(self.random.randint(least, most)):
                session = yield self.pool[DB]
                yield from self.query(session, statement, row, story)
                self.give(self.pool[DB], session)
                yield from self.compute(APP, mean_ms / 10)
        yield from self.compute(APP, mean_ms / 3)
        yield self.reply(record)

    def query(self, conn: int, statement: int, parent: int, story: int) -> Generator:
        _, record = self.call(DB, conn, 2 * len(PAGES) + statement, parent, story)
        yield 2 * HOP_NS
        yield from self.compute(DB, STATEMENTS[statement][1])
        yield self.reply(record)

    def stall(self, length_ns: int) -> Generator:
        """No processor of the application server takes up new work for `length_ns`."""
        pool = self.cpu[APP]
        pool.frozen = True
        began = self.now
        yield length_ns
        pool.frozen = False
        for _ in range(len(pool.free)):
            self.busy[APP].append((began, self.now))
            self.give(pool, pool.free.popleft())


def simulate(
    seed: int = 1,
    users: int = 60,
    seconds: float = 10.0,
    think_ms: float = 400.0,
    stall_at_s: float | None = None,
    stall_ms: float = 400.0,
    lose: int = 0,
) -> Simulation:
    """Run the model. `lose` responses (the seed chooses) fall into a gap; same seed, same result."""
    end = START_NS + int(seconds * 1e9)
    world = _World(seed, end)
    world.workers = _Pool(list(range(users)))
    processors = {WEB: 2, APP: 2, DB: 2}
    world.cpu = {node: _Pool(list(range(count))) for node, count in processors.items()}
    first_app, first_db = users, users + 40
    world.pool = {
        APP: _Pool(list(range(first_app, first_db))),
        DB: _Pool(list(range(first_db, first_db + 12))),
    }
    for conn in range(users):
        world.start(world.user(conn, think_ms * 1e6), START_NS)
    if stall_at_s is not None:
        world.start(world.stall(int(stall_ms * 1e6)), START_NS + int(stall_at_s * 1e9))
    world.run()
    lost = set(random.Random(seed + 1).sample(range(len(world.calls)), lose))
    return _tables(world, users, lost, processors)


def _column(values: object, name: str, table: str) -> NDArray:
    dtype = next(column.dtype for column in TABLES[table] if column.name == name)
    return np.asarray(values).astype(dtype)


def _typed(name: str, columns: dict[str, object]) -> Table:
    table = {key: _column(values, key, name) for key, values in columns.items()}
    check(name, table)
    return table


def _tables(world: _World, users: int, lost: set[int], processors: dict[int, int]) -> Simulation:
    records = sorted(range(len(world.calls)), key=lambda row: world.calls[row].arrive)
    place = {old: new for new, old in enumerate(records)}
    calls = [world.calls[old] for old in records]
    gone = np.array([old in lost for old in records])
    parent = np.array([-1 if call.parent < 0 else place[call.parent] for call in calls], dtype=np.int64)
    node = np.array([call.node for call in calls])
    depart = np.array([call.depart for call in calls])
    answered = depart >= 0
    seen = answered & ~gone
    classes = (
        [(int(Protocol.HTTP), text) for text, _, _ in PAGES]
        + [(int(Protocol.AJP), text) for text, _, _ in PAGES]
        + [(int(Protocol.MYSQL), text) for text, _ in STATEMENTS]
    )
    messages, request, response = _messages(calls, seen, users)
    flags = np.where(~answered, CallFlag.UNANSWERED | CallFlag.CLIPPED, 0)
    flags = np.where(gone & answered, CallFlag.UNANSWERED | CallFlag.LOST_RESPONSE, flags)
    columns: dict[str, object] = {
        "conn": [call.conn for call in calls],
        "request": request,
        "response": response,
        "client_node": node - 1,
        "server_node": node,
        "protocol": [PROTOCOLS[each] for each in node],
        "class_id": [call.class_id for call in calls],
        "arrive_ns": [call.arrive for call in calls],
        "request_end_ns": [call.request_end for call in calls],
        "response_begin_ns": np.where(seen, [call.begin for call in calls], -1),
        "depart_ns": np.where(seen, depart, -1),
        "status": np.where(seen, np.where(node == DB, 0, 200), -1),
        "flags": flags,
        "tcp_seq": messages["tcp_seq"][request],
    }
    call_table = _typed("calls", columns)
    tables = {
        "connections": _connections(call_table, messages, users),
        "messages": messages,
        "evidence": _evidence(calls, request),
        "calls": call_table,
        "nodes": _typed(
            "nodes",
            {"addr": range(4), "port": (0, 0, 0, 0), "protocol": PROTOCOLS, "depth": range(4)},
        ),
        "loads": _loads(call_table, world.end),
    }
    tables["links"] = _links(parent)
    tables["traces"], tables["trace_calls"] = _traces(call_table, parent)
    hole = int(tables["connections"]["missing_to_client"].sum())
    counters = [("stream.missing_bytes", hole, "bytes"), ("pair.lost_response", int(gone.sum()), "calls")]
    source = {
        "path": "simulated.pcapng",
        "kind": "capture",
        "format": "pcapng",
        "packets": 4 * len(calls),
        "bytes": int(messages["wire_bytes"].sum()),
        "first_ns": START_NS,
        "last_ns": world.end,
        "truncated_packets": 0,
    }
    return Simulation(
        tables,
        classes,
        list(ADDRESSES),
        counters,
        [source],
        parent,
        world.busy,
        processors,
        START_NS,
        world.end,
    )


def _messages(calls: list[_Call], seen: NDArray, users: int) -> tuple[Table, NDArray, NDArray]:
    """Message table in time order, and the row of each call's request and response (-1: none)."""
    rows = []
    for row, call in enumerate(calls):
        size = 200 + call.story % 300
        protocol = PROTOCOLS[call.node]
        rows.append((call.arrive, row, Direction.TO_SERVER, protocol, call, call.request_end, size))
        if seen[row]:
            rows.append((call.begin, row, Direction.TO_CLIENT, protocol, call, call.depart, 10 * size))
    rows.sort(key=lambda each: (each[0], each[2]))
    request = np.full(len(calls), -1, dtype=np.int64)
    response = np.full(len(calls), -1, dtype=np.int64)
    sequence: dict[tuple[int, int], int] = {}
    seqs, answers = [], []
    for place, (_, row, direction, _, call, _, size) in enumerate(rows):
        key = (call.conn, direction)
        seqs.append(sequence.setdefault(key, 1000 + 7 * call.conn))
        sequence[key] = (seqs[-1] + size) % 2**32
        if direction == Direction.TO_SERVER:
            request[row] = place
            answers.append(-1)
        else:
            response[row] = place
            answers.append(request[row])
    to_client = np.array([each[2] == Direction.TO_CLIENT for each in rows])
    columns: dict[str, object] = {
        "conn": [each[4].conn for each in rows],
        "direction": [each[2] for each in rows],
        "protocol": [each[3] for each in rows],
        "kind": np.where(to_client, MessageKind.RESPONSE, MessageKind.REQUEST),
        "begin_ns": [each[0] for each in rows],
        "end_ns": [each[5] for each in rows],
        "wire_bytes": [each[6] for each in rows],
        "missing_bytes": np.zeros(len(rows)),
        "class_id": np.where(to_client, -1, [each[4].class_id for each in rows]),
        "status": np.where(to_client, [0 if each[3] == Protocol.MYSQL else 200 for each in rows], -1),
        "tcp_seq": seqs,
        "flags": np.full(len(rows), MessageFlag.NONE),
        "request": answers,
    }
    return _typed("messages", columns), request, response


def _connections(calls: Table, messages: Table, users: int) -> Table:
    count = users + 40 + 12
    conn = np.arange(count)
    server = np.where(conn < users, WEB, np.where(conn < users + 40, APP, DB))
    first = np.full(count, START_NS)
    size = messages["wire_bytes"].astype(np.int64)
    to_server = messages["direction"] == Direction.TO_SERVER
    sent = np.bincount(messages["conn"], weights=np.where(to_server, size, 0), minlength=count)
    back = np.bincount(messages["conn"], weights=np.where(to_server, 0, size), minlength=count)
    holes = np.bincount(calls["conn"], (calls["flags"] & CallFlag.LOST_RESPONSE) > 0, count) * 1460
    last = np.full(count, START_NS)
    np.maximum.at(last, messages["conn"], messages["end_ns"])
    nothing = np.zeros(count)
    never = np.full(count, -1)
    columns: dict[str, object] = {
        "client_addr": server - 1,
        "server_addr": server,
        "client_port": 40_000 + conn,
        "server_port": np.array(PORTS)[server],
        "protocol": np.array(PROTOCOLS)[server],
        "tap_point": nothing,
        "first_ns": first,
        "last_ns": last,
        "syn_ns": never,
        "established_ns": never,
        "closed_ns": never,
        "close_how": nothing,
        "midstream": np.ones(count),
        "bytes_to_server": sent,
        "bytes_to_client": back,
        "missing_to_client": holes,
    }
    for column in TABLES["connections"]:
        columns.setdefault(column.name, nothing)
    return _typed("connections", columns)


def _evidence(calls: list[_Call], request: NDArray) -> Table:
    """One business key per request (the story), and the whole request target of HTTP and AJP."""
    rows = []
    for row, call in enumerate(calls):
        key = random.Random(call.story * 16 + 15).getrandbits(64)
        rows.append((request[row], 0 if call.node == DB else 0x8000_0002, TokenKind.NUMBER, key))
        if call.node != DB:
            page = call.class_id % len(PAGES)
            target = random.Random(call.story * 16 + page).getrandbits(64)
            rows.append((request[row], 1, TokenKind.URI, target))
    rows.sort()
    columns: dict[str, object] = {
        "message": [row[0] for row in rows],
        "slot": [row[1] for row in rows],
        "kind": [row[2] for row in rows],
        "hash": np.array([row[3] for row in rows], dtype=np.uint64),
    }
    return _typed("evidence", columns)


def _links(parent: NDArray) -> Table:
    """The true links, each certain."""
    count = len(parent)
    kind = np.where(parent < 0, LinkKind.ROOT, LinkKind.LINKED)
    return _typed(
        "links",
        {
            "child": np.arange(count),
            "parent": parent,
            "kind": kind,
            "probability": np.ones(count),
            "runner_up": np.full(count, -1),
            "runner_up_probability": np.zeros(count),
        },
    )


def _traces(calls: Table, parent: NDArray) -> tuple[Table, Table]:
    count = len(parent)
    depth = calls["server_node"].astype(np.int64) - 1
    root = np.arange(count)
    for _ in range(3):
        root = np.where(parent[root] >= 0, parent[root], root)
    stay = np.where(calls["depart_ns"] >= 0, calls["depart_ns"] - calls["arrive_ns"], -1)
    whole = stay >= 0
    # Children run one after the other here, so that the union of their stays is the sum.
    inside = np.zeros(count, dtype=np.int64)
    has = parent >= 0
    np.add.at(inside, parent[has], np.where(whole[has], stay[has], 0))
    known = whole.copy()
    np.logical_and.at(known, parent[has], whole[has])
    intra = np.where(known, stay - inside, -1)
    roots = np.flatnonzero(~has)
    trace_of = np.full(count, -1)
    trace_of[roots] = np.arange(len(roots))
    trace = trace_of[root]
    complete = np.ones(len(roots), dtype=bool)
    np.logical_and.at(complete, trace, whole)
    traces: dict[str, object] = {
        "root": roots,
        "calls": np.bincount(trace, minlength=len(roots)),
        "begin_ns": calls["arrive_ns"][roots],
        "end_ns": calls["depart_ns"][roots],
        "complete": complete,
        "probability": np.ones(len(roots)),
    }
    rows = {"call": np.arange(count), "trace": trace, "depth": depth, "intra_node_ns": intra}
    return _typed("traces", traces), _typed("trace_calls", rows)


def _loads(calls: Table, end_ns: int, width_ns: int = 50_000_000) -> Table:
    """Loads of the calls that were seen to end; a slow twin of the product's own, for comparison."""
    edges = np.arange(START_NS, end_ns + width_ns, width_ns)
    parts: dict[str, list[NDArray]] = {column.name: [] for column in TABLES["loads"]}
    for node in (WEB, APP, DB):
        mine = (calls["server_node"] == node) & (calls["depart_ns"] >= 0)
        arrive, depart = calls["arrive_ns"][mine], calls["depart_ns"][mine]
        windows = len(edges) - 1
        highest = np.searchsorted(np.sort(arrive), edges[:-1]) - np.searchsorted(np.sort(depart), edges[:-1])
        level = 0
        for when, step in sorted([(t, 1) for t in arrive] + [(t, -1) for t in depart]):
            level += step
            window = (when - START_NS) // width_ns
            if window < windows:
                highest[window] = max(highest[window], level)
        out = np.clip((depart - START_NS) // width_ns, 0, windows - 1)
        completions = np.bincount(out, minlength=windows)
        total = np.bincount(out, weights=depart - arrive, minlength=windows)
        longest = np.full(windows, -1)
        np.maximum.at(longest, out, depart - arrive)
        columns = {
            "node": np.full(windows, node),
            "window_ns": edges[:-1],
            "width_ns": np.full(windows, width_ns),
            "load": np.diff(_area(arrive, depart, edges)) / width_ns,
            "max": highest,
            "arrivals": np.bincount((arrive - START_NS) // width_ns, minlength=windows)[:windows],
            "completions": completions,
            "pit_mean_ns": np.where(completions > 0, total / np.maximum(completions, 1), np.nan),
            "pit_max_ns": longest,
        }
        for name, values in columns.items():
            parts[name].append(values)
    return _typed("loads", {name: np.concatenate(values) for name, values in parts.items()})
