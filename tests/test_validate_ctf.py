"""A CTF trace of annotated spans as event monitor: UA, DS, DR and UD of every tier that noted them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from tapscope.reconstruct import spans
from tapscope.validate import events
from tapscope.validate.event_calls import TIERS, EventCalls

SERVICES = Path(__file__).parents[1] / "pcaps" / "ctf" / "services"


def _load(folder: Path, damage: bool = False) -> EventCalls:
    there = folder / "hosts" / "services"
    shutil.copytree(SERVICES, there)
    if damage:
        stream = bytearray((there / "annotations_0").read_bytes())
        stream[20000:20400] = b"\xff\x00" * 200
        (there / "annotations_0").write_bytes(stream)
    return events.load(folder)


def test_every_tier_has_its_calls_with_the_trace_as_request_id(tmp_path):
    found = _load(tmp_path)
    table = spans.read([SERVICES])
    assert found.tiers() == ["web", "app", "db"]
    for tier in found.tiers():
        rows = found.of_tier(tier)
        own = np.flatnonzero(table.callee == table.services.index(tier))
        wanted = sorted(
            (table.trace_id[row], int(table.received_ns[row]), int(table.responded_ns[row])) for row in own
        )
        ids = [found.request_ids[code] for code in found.calls["request_id"][rows]]
        arrive, depart = found.calls["arrive_ns"][rows].tolist(), found.calls["depart_ns"][rows].tolist()
        assert sorted(zip(ids, arrive, depart, strict=True)) == wanted
    assert found.hosts == ["vm"]
    assert [(source["tier"], source["host"], source["calls"]) for source in found.sources] == [
        ("web", "vm", 40),
        ("app", "vm", 32),
        ("db", "vm", 48),
    ]
    assert not found.counters, "the trace's other files are its streams, not logs"
    assert not len(found.gaps["tier"])


def test_downstream_times_belong_to_the_call_that_sent(tmp_path):
    found = _load(tmp_path)
    call, send, receive = (found.downstream[name] for name in ("call", "send_ns", "receive_ns"))
    assert np.bincount(found.calls["tier"][call]).tolist() == [32, 48]
    assert np.all(found.calls["arrive_ns"][call] < send)
    assert np.all(send < receive)
    assert np.all(receive < found.calls["depart_ns"][call])
    by_client = found.callers["by"] < 0
    assert np.count_nonzero(by_client) == 40
    assert set(found.callers["tier"][by_client].tolist()) == {TIERS.index("web")}


def test_what_lies_behind_a_damage_is_a_gap_of_every_tier(tmp_path):
    found = _load(tmp_path, damage=True)
    assert ("events.ctf.damaged_trace", 1, "") in found.counters
    assert sorted(found.gaps["tier"].tolist()) == [TIERS.index(tier) for tier in found.tiers()]
    assert np.all(found.gaps["begin_ns"] >= found.calls["arrive_ns"].max())
