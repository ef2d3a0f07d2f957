"""Which calls an event of TCP touched: against the definition, and end to end from packets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from capture_packets import ACK, CLIENT, PSH, RST, SERVER, SYN, Dialogue, write_pcap
from hypothesis import given, settings
from hypothesis import strategies as st

from tapscope.analyze.calls import read_calls
from tapscope.analyze.tcp_events import RESENT, Touched, kept, touched, troubles, troubles_between
from tapscope.cli.listeners import events as listed_events
from tapscope.cli.listings import trace_tree
from tapscope.cli.pipeline import TraceOptions, trace
from tapscope.cli.response_times import document
from tapscope.report.run import read
from tapscope.report.transactions import transactions
from tapscope.store.codes import CallFlag, Direction, TcpEventKind
from tapscope.store.runfile import RunFile

Table = dict[str, np.ndarray[Any, np.dtype[Any]]]
MS = 1_000_000
CONNECTIONS = 3

stretch = st.tuples(st.integers(0, CONNECTIONS - 1), st.integers(0, 30), st.integers(0, 12))


def twin(events: Table, calls: Table, connections: Table) -> set[tuple[int, int]]:
    """The definition, event by event and call by call."""
    found = set()
    for event, conn in enumerate(events["conn"]):
        begin, end = events["begin_ns"][event], events["end_ns"][event]
        mine = [call for call in range(len(calls["conn"])) if calls["conn"][call] == conn]
        stays = {}
        for call in mine:
            arrive, depart = calls["arrive_ns"][call], calls["depart_ns"][call]
            if depart < 0:
                depart = max(connections["last_ns"][conn], arrive)
            syn = connections["syn_ns"][conn]
            if syn >= 0 and all(arrive <= calls["arrive_ns"][other] for other in mine):
                arrive = min(arrive, syn)
            stays[call] = arrive, depart
        hit = {call for call in mine if stays[call][0] <= end and stays[call][1] >= begin}
        if not hit and events["kind"][event] in RESENT:
            before = [call for call in mine if stays[call][0] < begin]
            if before:
                last = max(before, key=lambda call: (stays[call][0], call))
                hit = {last} if calls["flags"][last] & CallFlag.RETRANSMITTED else set()
        found |= {(event, call) for call in hit}
    return found


@given(
    st.lists(st.tuples(stretch, st.booleans(), st.booleans()), max_size=12),
    st.lists(st.tuples(stretch, st.sampled_from(TcpEventKind)), max_size=12),
    st.lists(st.integers(-1, 10), min_size=CONNECTIONS, max_size=CONNECTIONS),
)
@settings(max_examples=300)
def test_touched_calls_are_those_of_the_definition(
    call_rows: list[Any], event_rows: list[Any], syn_ns: list[int]
) -> None:
    calls = {
        "conn": np.array([conn for (conn, _, _), _, _ in call_rows], dtype=np.int32),
        "arrive_ns": np.array([at for (_, at, _), _, _ in call_rows], dtype=np.int64),
        "depart_ns": np.array(
            [at + long if answered else -1 for (_, at, long), answered, _ in call_rows], dtype=np.int64
        ),
        "flags": np.array([again * CallFlag.RETRANSMITTED for _, _, again in call_rows], dtype=np.uint32),
    }
    events = {
        "conn": np.array([conn for (conn, _, _), _ in event_rows], dtype=np.int32),
        "kind": np.array([kind for _, kind in event_rows], dtype=np.uint8),
        "begin_ns": np.array([at for (_, at, _), _ in event_rows], dtype=np.int64),
        "end_ns": np.array([at + long for (_, at, long), _ in event_rows], dtype=np.int64),
    }
    connections = {"syn_ns": np.array(syn_ns), "last_ns": np.full(CONNECTIONS, 25)}
    found = touched(events, calls, connections)
    pairs = list(zip(found.event.tolist(), found.call.tolist(), strict=True))
    assert pairs == sorted(twin(events, calls, connections))


def test_troubles_count_what_was_touched() -> None:
    events = {
        "conn": np.array([0, 0, 1, 1], dtype=np.int32),
        "kind": np.array([TcpEventKind.RESENT, TcpEventKind.RESENT, TcpEventKind.RST, TcpEventKind.RESENT]),
        "direction": np.array([1, 1, 0, 1]),
        "begin_ns": np.array([0, 5, 9, 9]),
        "end_ns": np.array([3, 9, 9, 10]),
        "packets": np.array([1, 2, 1, 1]),
    }
    connections = {"server_addr": np.array([4, 4]), "server_port": np.array([80, 80])}
    found = Touched(np.array([0, 1, 1]), np.array([7, 7, 8]))
    (one,) = troubles(events, connections, found, np.array([-1] * 7 + [3, 3]))
    assert (one.kind, one.direction, one.server_addr, one.server_port) == (
        TcpEventKind.RESENT,
        Direction.TO_CLIENT,
        4,
        80,
    )
    assert (one.events, one.packets, one.calls, one.traces, one.waited_ns, one.first_ns) == (2, 3, 2, 1, 4, 0)


ASK = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"a" * 2000
WINDOW_AT = 14 + 20 + 14


def traced(path: Path) -> Path:
    """Four connections: one waits for its SYN and, in its second request, for a retransmission of the first
    half of the answer; one's client does not read; one is reset by the listener; one is quiet."""
    slow = Dialogue(client_port=40001)
    slow.emit(CLIENT, SYN)
    slow.now_ns += 1000 * MS
    slow.open().send(CLIENT, ASK % 1).send(SERVER, ANSWER).send(CLIENT, ASK % 2)
    start = slow.seq[SERVER]
    slow.emit(SERVER, PSH | ACK, ANSWER[:1000])
    slow.now_ns += 210 * MS
    slow.emit(SERVER, PSH | ACK, ANSWER[:1000])
    slow.seq[SERVER] = start + 1000
    slow.send(SERVER, ANSWER[1000:]).send(CLIENT, ASK % 3).send(SERVER, ANSWER).close()
    full = Dialogue(client_port=40002).open().send(CLIENT, ASK % 4)
    full.send(SERVER, ANSWER[:1000])
    time_ns, frame = full.packets[-1]
    full.packets[-1] = time_ns, frame[:WINDOW_AT] + b"\0\0" + frame[WINDOW_AT + 2 :]
    full.now_ns += 300 * MS
    full.emit(CLIENT, ACK)
    full.send(SERVER, ANSWER[1000:]).close()
    broken = Dialogue(client_port=40003).open().send(CLIENT, ASK % 5)
    broken.now_ns += 50 * MS
    broken.emit(SERVER, RST | ACK)
    quiet = Dialogue(client_port=40004).open()
    for number in range(20):
        quiet.send(CLIENT, ASK % number).send(SERVER, ANSWER)
    quiet.close()
    packets = [*slow.packets, *full.packets, *broken.packets, *quiet.packets]
    capture = write_pcap(path / "a.pcap", sorted(packets))
    return trace([capture], path / "run.db", TraceOptions(self_check=False))


def test_every_kind_reaches_the_transaction_that_it_hit(tmp_path: Path) -> None:
    with RunFile.open(traced(tmp_path)) as run:
        connections, calls = run.read_table("connections"), run.read_table("calls")
        assert kept(run.read_table("tcp_events"), connections)
        port = connections["client_port"][calls["conn"]]
        of = {
            (int(port[call]), int((port[:call] == port[call]).sum())): int(trace_of)
            for call, trace_of in zip(
                *(run.read_table("trace_calls")[n] for n in ("call", "trace")), strict=True
            )
        }
        listed = [
            (one["kind"], one["side"], round(one["waited_ms"]), one["traces"]) for one in listed_events(run)
        ]
        assert sorted(listed) == sorted(
            [
                ("syn_again", "client", 1000, [of[40001, 0]]),
                ("resent", "listener", 210, [of[40001, 1]]),
                ("zero_window", "client", 300, [of[40002, 0]]),
                ("rst", "listener", 0, [of[40003, 0]]),
            ]
        )
        (call,) = trace_tree(run, of[40001, 1])
        assert [(one["kind"], one["end_ns"] - one["begin_ns"]) for one in call["tcp"]] == [
            ("resent", 210 * MS + 10_000)
        ]
        (call,) = trace_tree(run, of[40004, 0])
        assert call["tcp"] == []
        (entry,) = document(run)["entries"]
        # The reset call has no answer, so that it is in no distribution of transactions.
        assert (entry["tcp"], entry["vlrt"], entry["vlrt_tcp"]) == (3, 3, 3)


def test_stretches_of_time_have_what_overlaps_them(tmp_path: Path) -> None:
    with RunFile.open(traced(tmp_path)) as run:
        whole = read_calls(run)
        begin = int(whole.calls["arrive_ns"].min())
        early, late = troubles_between(
            run, whole, [(begin, begin + 100 * MS), (begin + 900 * MS, begin + 2000 * MS)]
        )
    assert {one.kind.name for one in early} == {"SYN_AGAIN", "ZERO_WINDOW", "RST"}
    assert {one.kind.name: one.waited_ns for one in late} == {
        "SYN_AGAIN": 1000 * MS + 10_000,
        "RESENT": 210 * MS + 10_000,
    }


def test_a_run_of_before_says_that_it_has_none(tmp_path: Path) -> None:
    with RunFile.open(traced(tmp_path)) as run:
        events, connections = run.read_table("tcp_events"), run.read_table("connections")
    assert not kept({name: values[:0] for name, values in events.items()}, connections)


def test_the_waterfall_has_what_tcp_did_to_each_call(tmp_path: Path) -> None:
    with RunFile.open(traced(tmp_path)) as run:
        opened = read(run)
        drawn = transactions(opened, np.empty(0, dtype=np.int64))
        met = drawn["calls"]["tcp"]
        begin, end = (np.cumsum(met[name]["delta"]) for name in ("begin", "end"))
        port = opened.connections["client_port"][opened.calls["conn"]]
        rows = np.repeat(drawn["transactions"]["trace"], np.diff(drawn["transactions"]["first"]))
        root = opened.traces["root"][rows]
        shown = {
            (int(port[root[call]]), words): (int(first), int(last))
            for call, words, first, last in zip(met["call"], met["words"], begin, end, strict=True)
        }
    assert set(shown) == {
        (40001, "client sent its SYN again"),
        (40001, "listener sent data again, by a timer"),
        (40002, "client had no room to receive"),
    }
    first, last = shown[40001, "client sent its SYN again"]
    assert (first < -1000 * MS, last < 0) == (True, True)  # before the request
    first, last = shown[40001, "listener sent data again, by a timer"]
    assert last - first == 210 * MS + 10_000
