"""The reconstruction that goes on while the capture does: its result is that of the capture as a whole."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from capture_packets import read_pcap, write_pcap
from simulator import Simulation, simulate
from thinned import thinned_by

from tapscope.capture import _native, read_files
from tapscope.capture.chunks import Chunk, Chunks
from tapscope.capture.segment import arrays_of
from tapscope.reconstruct import run
from tapscope.reconstruct.assumed import Stays
from tapscope.reconstruct.live.lost import Answers, Waiting
from tapscope.reconstruct.live.run import Reconstructor
from tapscope.reconstruct.unseen import Unseen
from tapscope.store.codes import EvidenceMode, LinkKind, MessageKind
from tapscope.store.tables import TABLES, empty

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
SAMPLES = sorted(
    path for path in PCAPS.rglob("*.pcap*") if path.suffix in (".pcap", ".pcapng", ".gz", ".zst")
)
SALT = bytes(range(16))
LARGE = 3_000_000
"""Bytes of a file."""


def followed(path: Path, steps, mode: EvidenceMode = EvidenceMode.ALL, **options) -> dict:
    """Tables of a capture that came in pieces, each as many packets long as `steps()` says."""
    capture = _native.Capture.of_files(paths=[str(path)], salt=SALT, keep_text=False, port_map={}, limits={})
    chunks, live = Chunks(), Reconstructor(mode, **options)
    parts = []

    def add() -> None:
        segment = capture.drain()
        chunks.learn_classes({number: tuple(rest) for number, *rest in segment["classes"]})
        parts.append(live.add(chunks.add(*arrays_of(segment)), chunks.addresses))

    packets, more = 0, True
    while more:
        packets += steps()
        while capture.run(0, packets):
            pass
        more = capture.status()["packets"] == packets
        add()
    capture.finish()
    add()
    parts.append(live.finish(chunks.addresses))
    return assembled(live, chunks.addresses, parts)


def assembled(live: Reconstructor, addresses: list[str], parts: list) -> dict:
    number = live.nodes.renumber(addresses)
    nodes, names = live.nodes.table(addresses)
    nodes["addr"] = np.array(addresses)[nodes["addr"]]
    calls = joined([part.calls for part in parts])
    for side in ("client_node", "server_node"):
        calls[side] = number[calls[side]]
    links = joined([part.done.links for part in parts])
    links["kind"][np.isin(links["child"], live.doubtful_roots())] = LinkKind.UNKNOWN
    links = ordered(links, links["child"])
    members = joined([part.done.trace_calls for part in parts])
    ids = np.concatenate([part.done.trace_ids for part in parts])
    assert sorted(ids.tolist()) == list(range(len(ids)))
    return {
        "calls": calls,
        "links": links,
        "traces": ordered(joined([part.done.traces for part in parts]), ids),
        "trace_calls": ordered(members, members["call"]),
        "nodes": nodes,
        "names": names,
        "late": live.late,
        "messages": np.sort(np.concatenate([part.message_rows for part in parts])),
    }


def joined(parts: list[dict]) -> dict:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def ordered(table: dict, by: np.ndarray) -> dict:
    order = np.argsort(by, kind="stable")
    return {name: values[order] for name, values in table.items()}


def differences(live: dict, path: Path, mode: EvidenceMode = EvidenceMode.ALL) -> list[str]:
    tables = read_files([path], salt=SALT)
    made, addresses = run.trace(tables, mode), tables.addresses
    made.nodes["addr"] = np.array(addresses)[made.nodes["addr"]]
    out = [] if live["names"] == made.node_names else [f"{live['names']} and {made.node_names}"]
    for name in ("calls", "links", "traces", "trace_calls", "nodes"):
        for column, values in getattr(made, name).items():
            other = live[name][column]
            if len(values) != len(other):
                out.append(f"{name}: {len(other)} rows and {len(values)}")
                break
            differ = np.flatnonzero(values != other)
            if len(differ):
                at = differ[0]
                out.append(f"{name}.{column}[{at}]: {other[at]} and {values[at]} ({len(differ)})")
    return out


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.relative_to(PCAPS)))
def test_a_capture_that_comes_in_pieces_gives_what_it_gives_as_a_whole(path: Path):
    some = random.Random(7)
    # Each piece of the largest ones costs a look at all that is open.
    sizes = (1, 3, 40, 400) if path.stat().st_size < LARGE else (1, 3, 40, 4000)
    live = followed(path, lambda: some.choice(sizes))
    assert differences(live, path) == []


@pytest.mark.parametrize("name", ["http_ajp_mysql_groundtruth.pcap", "mediawiki_http_mysql.pcap"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_capture_with_losses_that_comes_in_pieces_gives_what_it_gives_as_a_whole(
    tmp_path, name: str, seed: int
):
    """But for what is told at the end: who may have made a lost call, or been made by one."""
    some = random.Random(seed)
    path = write_pcap(
        tmp_path / "thin.pcap", [each for each in read_pcap(PCAPS / name) if some.random() > 0.03]
    )
    live = followed(path, lambda: some.choice((1, 3, 40, 400)))
    at_the_end = ("traces.complete", "links.kind")
    assert [each for each in differences(live, path) if not each.startswith(at_the_end)] == []


def test_time_goes_on_while_a_live_tap_is_silent():
    capture = _native.Capture.of_files(
        paths=[str(PCAPS / "http_ajp_mysql_groundtruth.pcap")],
        salt=SALT,
        keep_text=False,
        port_map={},
        limits={},
    )
    while capture.run(50, 2**63):
        pass
    chunks = Chunks()
    arrays, about = arrays_of(capture.drain())
    chunks.learn_classes({})
    seen_ns = Chunks().add(arrays, about).now_ns
    second = 1_000_000_000
    assert chunks.add(arrays, about | {"written_ns": seen_ns + second}).now_ns == seen_ns
    arrays, about = arrays_of(capture.drain())
    assert chunks.add(arrays, about | {"written_ns": seen_ns + 60 * second}).now_ns == seen_ns + 55 * second


def test_time_stands_still_where_segments_were_written_by_another_clock():
    capture = _native.Capture.of_files(
        paths=[str(PCAPS / "http_ajp_mysql_groundtruth.pcap")],
        salt=SALT,
        keep_text=False,
        port_map={},
        limits={},
    )
    while capture.run(50, 2**63):
        pass
    chunks = Chunks()
    year = 31_536_000_000_000_000
    arrays, about = arrays_of(capture.drain())
    seen_ns = chunks.add(arrays, about | {"written_ns": about["sources"][0]["last_ns"] + year}).now_ns
    arrays, about = arrays_of(capture.drain())
    assert chunks.add(arrays, about | {"written_ns": seen_ns + 2 * year}).now_ns == seen_ns


SHORT = {"first_stretch": 1500, "stretch": 600, "ahead": 200, "first_ns": 1_000_000_000}


@pytest.fixture(scope="module")
def world() -> Simulation:
    return simulate(seed=41, users=60, seconds=20.0, lose=12)


def in_order(told: dict[str, dict]) -> dict[str, dict]:
    """The tables with messages in the order of their begin, as a tap tells them."""
    tables = {name: dict(told[name]) for name in ("connections", "messages", "evidence", "tcp_events")}
    messages, evidence = tables["messages"], tables["evidence"]
    order = np.argsort(messages["begin_ns"], kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    messages = {name: values[order] for name, values in messages.items()}
    request = messages["request"]
    messages["request"] = np.where(request >= 0, place[request], -1)
    evidence["message"] = place[evidence["message"]]
    by_message = np.argsort(evidence["message"], kind="stable")
    evidence = {name: values[by_message] for name, values in evidence.items()}
    return tables | {"messages": messages, "evidence": evidence}


def chunks_of(tables: dict[str, dict], at_ns: list[int]):
    """What a tap tells until each of these times: a message when it begins, how it ends when it does."""
    messages, evidence = tables["messages"], tables["evidence"]
    end = list(TABLES["messages"]).index(next(c for c in TABLES["messages"] if c.name == "end_ns"))
    known = np.zeros(len(messages["begin_ns"]), dtype=bool)
    ended = known.copy()
    for number, now in enumerate(at_ns):
        fresh = ~known & (messages["begin_ns"] <= now)
        late = known & ~ended & (messages["end_ns"] <= now)
        told = {name: values[fresh] for name, values in messages.items()}
        told["end_ns"] = np.where(told["end_ns"] <= now, told["end_ns"], -1)
        rows = np.flatnonzero(late)
        yield Chunk(
            tables["connections"] if number == 0 else empty("connections"),
            np.arange(len(tables["connections"]["first_ns"]) if number == 0 else 0),
            told,
            np.flatnonzero(fresh),
            {name: values[fresh[evidence["message"]]] for name, values in evidence.items()},
            empty("tcp_events"),
            {
                "message": rows,
                "column": np.full(len(rows), end),
                "change": np.zeros(len(rows), dtype=np.int64),
                "value": messages["end_ns"][rows],
            },
            now,
        )
        known |= fresh
        ended = known & (messages["end_ns"] <= now)


def of_world(tables: dict, addresses: list[str], at_ns: list[int], mode: EvidenceMode, **options) -> dict:
    live = Reconstructor(mode, **options)
    parts = [live.add(chunk, addresses) for chunk in chunks_of(in_order(tables), at_ns)]
    parts.append(live.finish(addresses))
    return assembled(live, addresses, parts) | {"waited": [len(part.call_ids) for part in parts]}


@pytest.mark.parametrize("mode", [EvidenceMode.ALL, EvidenceMode.TIMING])
@pytest.mark.parametrize("step_ns", [700_000_000, 3_300_000_000])
@pytest.mark.parametrize("lost", [0.0, 0.03])
def test_a_busy_system_gives_the_same_whatever_the_pieces(world: Simulation, mode, step_ns, lost):
    tables = vars(thinned_by(world, lost).tables) if lost else world.tables
    at_once = of_world(tables, world.addresses, [world.end_ns], mode, **SHORT)
    times = [*range(world.begin_ns, world.end_ns, step_ns), world.end_ns]
    in_pieces = of_world(tables, world.addresses, times, mode, **SHORT)
    assert len(at_once["calls"]["conn"]) > 8000
    assert sum(count > 0 for count in in_pieces["waited"]) > 2
    for name in ("calls", "links", "traces", "trace_calls", "nodes"):
        for column, values in at_once[name].items():
            np.testing.assert_array_equal(in_pieces[name][column], values, err_msg=f"{name}.{column}")


@pytest.mark.parametrize("mode", [EvidenceMode.ALL, EvidenceMode.TIMING])
def test_what_was_made_for_a_lost_call_goes_to_nobody_while_the_capture_goes_on(world, mode):
    thinned = thinned_by(world, 0.03)
    times = [*range(world.begin_ns, world.end_ns, 1_000_000_000), world.end_ns]
    live = of_world(vars(thinned.tables), world.addresses, times, mode, **SHORT)["links"]
    whole = run.trace(thinned.tables, mode).links
    given = [int((links["kind"][thinned.orphan] == LinkKind.LINKED).sum()) for links in (live, whole)]
    assert given[0] <= given[1] + 0.04 * thinned.orphan.sum()
    right = [(links["parent"] == thinned.parent).mean() for links in (live, whole)]
    assert right[0] > right[1] - 0.01


def test_where_calls_stay_for_long_a_lost_one_is_still_there_while_the_capture_goes_on():
    """What it may have begun with is decided by then; it is a parent from there on."""
    second = 1_000_000_000
    arrive = np.arange(200) * second // 10
    stays = Stays()
    stays.add({"arrive_ns": arrive, "response_begin_ns": arrive + 5 * second}, np.arange(200))
    lost = replace(
        Unseen(*np.zeros((len(fields(Unseen)), 1), dtype=np.int64)),
        after_ns=np.array([second]),
        before_ns=np.array([40 * second]),
        answer_ns=np.array([40 * second]),
    )
    waiting, found = Waiting(Answers()), []
    for frontier in (30, 37, 39, 41):
        rows, parents, _ = waiting.take(
            lost if frontier == 37 else Unseen.none(), {0: stays}, frontier * second
        )
        found += rows["arrive_ns"][parents].tolist()
    assert found == [38 * second]


def test_what_waits_does_not_grow_with_the_capture():
    kept = []
    for seconds in (15.0, 45.0):
        world = simulate(seed=42, users=20, seconds=seconds)
        options = {"first_stretch": 300, "stretch": 200, "ahead": 50, "first_ns": 1_000_000_000}
        live, most = Reconstructor(EvidenceMode.NOIDS, **options), 0
        for chunk in chunks_of(
            in_order(world.tables), list(range(world.begin_ns, world.end_ns, 1_000_000_000))
        ):
            live.add(chunk, world.addresses)
            most = max(most, live.waiting()["calls"])
        kept.append(most)
    assert kept[1] < 1.3 * kept[0]


def test_a_call_that_is_not_answered_holds_the_others_back_for_two_minutes_at_most():
    world = simulate(seed=43, users=4, seconds=200.0)
    tables = in_order(world.tables)
    messages = tables["messages"]
    first = int(np.flatnonzero(messages["kind"] == MessageKind.REQUEST)[0])
    messages["request"][messages["request"] == first] = -1
    # Nothing else comes on its connection that would tell that it is over.
    others = (messages["conn"] == messages["conn"][first]) & (np.arange(len(messages["conn"])) != first)
    messages["conn"][others] += 1
    live = Reconstructor(EvidenceMode.NOIDS, **SHORT)
    times = list(range(world.begin_ns, world.end_ns, 5_000_000_000))
    settled = [len(live.add(chunk, world.addresses).call_ids) for chunk in chunks_of(tables, times)]
    began = int(messages["begin_ns"][first])
    assert sum(settled) == live.calls > 0
    waited = next(now - began for now, count in zip(times, settled, strict=True) if count)
    assert 120e9 < waited < 130e9
