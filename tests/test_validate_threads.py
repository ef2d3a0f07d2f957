"""Logs of the servers' threads as event monitors: calls by the system calls that moved them."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_program import tapscope
from event_logs import write_run
from simulated_world import HOP_NS
from simulator import APP, DB, WEB, Simulation, simulate
from thread_world import closed, end, header, moved, opened

from tapscope.reconstruct.threads.log import HEADER, RECORD, How, Kind, Way
from tapscope.store.codes import Direction
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.validate.validation import Validation, validate
from tapscope.validate.verdict import Thresholds

GOLDEN = Path(__file__).resolve().parent.parent / "pcaps" / "threads"
BAR = Thresholds(pearson_r=0.999, bias_percent=1.0, bias_calls=0.0, by=("senders", "wire"))
LATE_NS = 10_000
"""How much later than the wire a client's thread has its answer."""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("golden") / "board.db"
    done = tapscope("trace", GOLDEN / "board.pcap.gz", "-o", path)
    assert done.returncode == 0, done.stderr
    return path


def counters(result: Validation) -> dict[str, int]:
    return {name: value for name, value, _ in result.counters}


def test_real_servers_agree_with_the_tap_within_the_bar(run):
    result = validate(run, GOLDEN, GOLDEN / "calls.csv.gz", by_threads=True, thresholds=BAR)
    tiers = {tier.tier: tier for tier in result.tiers}
    for name in ("app", "db"):
        assert tiers[name].failures == []
        reading = tiers[name].reading("concurrent_by_senders")
        assert reading.pearson_r > 0.999
        assert abs(reading.bias_percent) < 1
    with RunFile.open(run) as opened_run:
        calls = len(opened_run.read_table("calls")["conn"])
    assert sum(each.matched for each in result.requests) == calls, "also log-ins, PREPARE and PING"
    assert all(each.tap_only == each.log_only == 0 for each in result.requests)
    for each in result.requests:
        assert each.arrive.p1_ns > 0, "nobody receives before the wire had it"
        assert each.depart.p99_ns < 0, "nor is anything on the wire before it was sent"
    assert result.paths.completeness == 1.0
    assert {source["monitor"] for source in result.sources} == {"thread log"}
    # Nobody logged what the users sent, so only the server's own log is there, and it is late.
    assert tiers["web"].reading("concurrent_by_senders") is None


def test_lost_records_leave_windows_out_and_make_no_disagreement(run, tmp_path):
    for path in GOLDEN.glob("*.threads"):
        shutil.copy(path, tmp_path)
    log = next(tmp_path.glob("mariadbd*"))
    data = log.read_bytes()
    records = np.frombuffer(data[HEADER.itemsize :], RECORD)
    calls = np.flatnonzero(records["kind"] == Kind.CALL)
    keep = np.ones(len(records), dtype=bool)
    keep[calls[len(calls) // 2 : len(calls) // 2 + 40]] = False
    log.write_bytes(data[: HEADER.itemsize] + records[keep].tobytes())
    result = validate(run, tmp_path, by_threads=True, thresholds=BAR)
    db = next(tier for tier in result.tiers if tier.tier == "db")
    assert counters(result)["threads.calls_next_to_lost_records"] > 0
    assert db.windows_left_out["log_loss"] > 0
    assert db.failures == []
    assert db.reading("concurrent_by_senders").pearson_r > 0.999


def test_logs_of_other_servers_are_refused(run):
    with pytest.raises(TapscopeError, match="no call of a server that the run has"):
        validate(run, GOLDEN.parent / "threads_nginx", by_threads=True)


def test_the_command_takes_one_kind_of_logs(run):
    done = tapscope("validate", run, "--threads", GOLDEN, "--events", GOLDEN)
    assert done.returncode == 2
    assert "--threads DIR" in done.stderr
    done = tapscope("validate", run, "--threads", GOLDEN, "--by", "senders")
    assert "senders' stamps" in done.stdout


class Logs:
    """Thread logs of a simulated run, one process per node. A thread sends HOP_NS before the wire. A server's
    waits for a processor through half of the time until its answer, and receives then."""

    def __init__(self, world: Simulation, nodes: tuple[int, ...] = (WEB, APP, DB)) -> None:
        self.tables, self.addresses = world.tables, world.addresses
        self.records: dict[int, list[tuple[int, bytes]]] = {node: [] for node in nodes}
        self.sizes: dict[tuple[int, int], int] = {}
        calls, messages = self.tables["calls"], self.tables["messages"]
        answered = calls["response_begin_ns"] >= 0
        waits = np.where(answered, (calls["response_begin_ns"] - calls["request_end_ns"]) // 2, LATE_NS)
        self.late_ns = dict(zip(calls["arrive_ns"].tolist(), waits.tolist(), strict=True))
        self.node_of = dict(zip(calls["conn"].tolist(), calls["server_node"].tolist(), strict=True))
        for row in range(len(messages["conn"])):
            self.message(row)

    def number(self, conn: int, node: int) -> int:
        return 2 * conn + 1 + (self.node_of[conn] != node)

    def message(self, row: int) -> None:
        messages = {name: int(values[row]) for name, values in self.tables["messages"].items()}
        self.bytes(
            messages["conn"],
            Direction(messages["direction"]),
            messages["begin_ns"],
            messages["end_ns"],
            messages["wire_bytes"],
        )

    def bytes(self, conn: int, direction: Direction, begin_ns: int, end_ns: int, size: int) -> None:
        server = self.node_of[conn]
        offset = self.sizes.get((conn, direction), 0)
        self.sizes[conn, direction] = offset + size
        sender, receiver = (server - 1, server) if direction == Direction.TO_SERVER else (server, server - 1)
        if sender in self.records:
            begin, thread = end_ns - HOP_NS, 1000 + conn
            record = moved(begin, end_ns, self.number(conn, sender), thread, Way.SENT, offset, size)
            self.records[sender].append((begin, record))
        if receiver in self.records:
            begin, done = begin_ns - HOP_NS, end_ns + self.late_ns.get(begin_ns, LATE_NS)
            record = moved(begin, done, self.number(conn, receiver), 1000 + conn, Way.RECEIVED, offset, size)
            self.records[receiver].append((done, record))

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True)
        table = self.tables["connections"]
        for node, records in self.records.items():
            parts = [header(100 + node, f"server{node}")]
            for conn, server in self.node_of.items():
                if node not in (server, server - 1):
                    continue
                client, listener = (
                    (self.addresses[table[f"{side}_addr"][conn]], int(table[f"{side}_port"][conn]))
                    for side in ("client", "server")
                )
                own, peer = (listener, client) if node == server else (client, listener)
                how = How.ACCEPTED if node == server else How.CONNECTED
                begin = int(table["first_ns"][conn]) - HOP_NS
                parts.append(opened(begin, self.number(conn, node), 1, how, own, peer))
            parts += [record for _, record in sorted(records)]
            last = max(at for at, _ in records) + 1
            for conn, server in self.node_of.items():
                if node in (server, server - 1):
                    sizes = [
                        self.sizes.get((conn, way), 0) for way in (Direction.TO_SERVER, Direction.TO_CLIENT)
                    ]
                    both = tuple(sizes if node == server else sizes[::-1])
                    parts.append(closed(last, self.number(conn, node), 1, both, Kind.STILL))
            (folder / f"{node}.threads").write_bytes(b"".join([*parts, end(last)]))
        return folder


@pytest.fixture(scope="module")
def world() -> Simulation:
    return simulate(seed=71, users=60, seconds=4.0)


def write_clients(world: Simulation, path: Path) -> None:
    """What the load generator noted of its requests, 0.1 ms before and after the wire."""
    calls, connections = world.tables["calls"], world.tables["connections"]
    path.parent.mkdir()
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("request_id", "start_ns", "end_ns", "local_port"))
        for row in np.flatnonzero((calls["server_node"] == WEB) & (calls["depart_ns"] >= 0)).tolist():
            port = int(connections["client_port"][calls["conn"][row]])
            out.writerow(("", calls["arrive_ns"][row] - 100_000, calls["depart_ns"][row] + 100_000, port))


def test_receives_are_late_and_sends_tell_the_queue(world, tmp_path):
    logs = Logs(world).write(tmp_path / "threads")
    write_clients(world, tmp_path / "users" / "requests.csv")
    result = validate(write_run(world, tmp_path / "run.db"), logs, by_threads=True, thresholds=BAR)
    assert [tier.tier for tier in result.tiers] == ["web", "app", "db"]
    assert result.failures == []
    for tier, requests in zip(result.tiers, result.requests, strict=True):
        assert tier.agrees_with in ("senders", "wire")
        assert tier.reading("concurrent").bias_percent > 50, "a call is on no server's log while it waits"
        assert requests.arrive.mean_ns == pytest.approx(requests.near.mean_stay_ns / 2, rel=0.1)
        assert requests.sent.p99_ns < 0


def test_a_tap_that_sees_answers_late_disagrees(world, tmp_path):
    calls = world.tables["calls"]
    late = (calls["server_node"] == DB) & (calls["depart_ns"] >= 0)
    shifted = {**calls, "depart_ns": np.where(late, calls["depart_ns"] + 100_000, calls["depart_ns"])}
    wrong = Simulation(**{**vars(world), "tables": {**world.tables, "calls": shifted}})
    logs = Logs(world).write(tmp_path / "threads")
    # At the wire it would not show: what all calls have in common is taken for the way to the wire.
    sends = Thresholds(pearson_r=0.999, bias_percent=1.0, bias_calls=0.0, by=("senders",))
    result = validate(write_run(wrong, tmp_path / "run.db"), logs, by_threads=True, thresholds=sends)
    assert result.verdict == "failed"
    assert {tier.tier for tier in result.tiers if tier.failures} == {"db"}
    db = next(tier for tier in result.tiers if tier.tier == "db")
    assert db.reading("concurrent_by_senders").bias_percent > 1


def test_where_the_load_generator_is_recorded_its_sends_are_the_callers(world, tmp_path):
    logs = Logs(world).write(tmp_path / "threads")
    Logs(world, (0,)).write(tmp_path / "users" / "threads")
    result = validate(write_run(world, tmp_path / "run.db"), logs, by_threads=True, thresholds=BAR)
    assert (result.verdict, result.failures) == ("passed", [])
    web = result.requests[0]
    assert web.sent.calls == web.matched
    assert -2 * HOP_NS < web.sent.median_ns < 0
    assert {clock["of"] for clock in result.clocks} == {"client", "web", "app", "db"}


def test_a_request_behind_bytes_without_an_answer_is_left_out(world, tmp_path):
    """A COM_STMT_CLOSE is sent long before the next statement; the logs take both for one message."""
    calls = world.tables["calls"]
    at_db = np.flatnonzero((calls["server_node"] == DB) & (calls["depart_ns"] >= 0))
    conn = int(np.bincount(calls["conn"][at_db]).argmax())
    mine = at_db[calls["conn"][at_db] == conn]
    idle = calls["arrive_ns"][mine[1:]] - calls["depart_ns"][mine[:-1]]
    row = int(mine[1:][idle.argmax()])
    messages = world.tables["messages"]
    request = int(calls["request"][row])
    closing_ns = int(calls["arrive_ns"][row] - idle.max() // 2)

    class WithClosing(Logs):
        def message(self, number: int) -> None:
            if number == request:
                self.bytes(conn, Direction.TO_SERVER, closing_ns, closing_ns, 9)
            super().message(number)

    seq = messages["tcp_seq"].copy()
    later = np.flatnonzero((messages["conn"] == conn) & (messages["direction"] == Direction.TO_SERVER))
    seq[later[later >= request]] += 9
    shifted = {**world.tables, "messages": {**messages, "tcp_seq": seq}}
    changed = Simulation(**{**vars(world), "tables": shifted})
    recorded = WithClosing(changed)
    last_ns = int(messages["end_ns"].max()) + 1_000_000
    recorded.bytes(conn, Direction.TO_SERVER, last_ns, last_ns, 5)  # COM_QUIT
    logs = recorded.write(tmp_path / "threads")
    result = validate(write_run(changed, tmp_path / "run.db"), logs, by_threads=True, thresholds=BAR)
    assert idle.max() > 2_000_000
    assert counters(result)["threads.exchanges_left_out"] == 1
    assert counters(result)["threads.tap_calls_left_out"] == 1
    assert counters(result)["threads.last_words"] == 1
    assert result.requests[-1].log_only == 0
    db = next(tier for tier in result.tiers if tier.tier == "db")
    assert db.agrees_with in ("senders", "wire")


def test_requests_sent_before_the_first_answer_are_left_out(world, tmp_path):
    messages, calls = world.tables["messages"], world.tables["calls"]
    at_db = np.flatnonzero((calls["server_node"] == DB) & (calls["depart_ns"] >= 0))
    conn = int(np.bincount(calls["conn"][at_db]).argmax())
    first, second = at_db[calls["conn"][at_db] == conn][4:6].tolist()
    early = int(calls["request_end_ns"][first]) + 1

    class Pipelined(Logs):
        def bytes(self, conn: int, direction: Direction, begin_ns: int, end_ns: int, size: int) -> None:
            if (begin_ns, direction) == (int(calls["arrive_ns"][second]), Direction.TO_SERVER):
                begin_ns = end_ns = early
            super().bytes(conn, direction, begin_ns, end_ns, size)

    begin, arrive = messages["begin_ns"].copy(), calls["arrive_ns"].copy()
    begin[int(calls["request"][second])] = arrive[second] = early
    moved_tables = {"messages": {**messages, "begin_ns": begin}, "calls": {**calls, "arrive_ns": arrive}}
    changed = Simulation(**{**vars(world), "tables": {**world.tables, **moved_tables}})
    logs = Pipelined(world).write(tmp_path / "threads")
    result = validate(write_run(changed, tmp_path / "run.db"), logs, by_threads=True, thresholds=BAR)
    assert counters(result)["threads.exchanges_left_out"] == 1
    assert counters(result)["threads.tap_calls_left_out"] == 2
    assert next(tier for tier in result.tiers if tier.tier == "db").failures == []
