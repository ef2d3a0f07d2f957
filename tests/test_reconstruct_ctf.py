"""CTF traces of annotated spans: every annotation kept, the parents as noted, damage counted.

pcaps/ctf/services was recorded by LTTng from three services that annotate like BlkKin's library. What the run
file holds is compared with babeltrace2's output, taken apart here in another way.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_program import tapscope

from tapscope.reconstruct import ctf, dapper, span_tables, spans
from tapscope.store.codes import LinkKind
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile

SERVICES = Path(__file__).parents[1] / "pcaps" / "ctf" / "services"


@pytest.fixture(scope="module")
def printed() -> list[dict[str, str]]:
    """The trace's events as babeltrace2 prints them."""
    done = subprocess.run(
        ["babeltrace2", "--clock-seconds", "--no-delta", str(SERVICES)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = []
    for line in done.stdout.splitlines():
        row = {"time_ns": re.sub(r"\D", "", line.partition("]")[0])}
        for part in line.partition("}, { ")[2].removesuffix(" }").split(", "):
            name, _, value = part.partition(" = ")
            row[name] = value.strip('"')
        rows.append(row)
    return rows


def _traced(tmp_path: Path, *options: str, folder: Path = SERVICES) -> RunFile:
    out = tmp_path / "run.db"
    done = tapscope("trace", "--spans", str(folder), "-o", str(out), "--force", *options)
    assert done.returncode == 0, done.stderr
    return RunFile.open(out)


def test_every_annotation_is_kept_with_its_time_and_who_noted_it(printed, tmp_path):
    with _traced(tmp_path, "--keep-text") as run:
        kept = run.read_columns("annotation")
    assert len(kept["id"]) == len(printed) > 500
    wanted = sorted(
        (int(row["time_ns"]), row["service_name"], int(row["port_no"]), row.get("key", row.get("event")))
        for row in printed
    )
    assert sorted(zip(kept["time_ns"], kept["service"], kept["port"], kept["name"], strict=True)) == wanted
    values = {value for value in kept["value"] if value is not None}
    assert values == {f'/item?name="user {number}"\n' for number in range(10)}


def test_values_are_hashed_by_default_equal_ones_alike(tmp_path):
    with _traced(tmp_path) as run:
        kept = run.read_columns("annotation")
    values = [value for value in kept["value"] if value is not None]
    assert len(values) == 40
    assert len(set(values)) == 10
    assert all(re.fullmatch(r"#[0-9a-f]{16}", value) for value in values)
    assert b"user 3" not in (tmp_path / "run.db").read_bytes()


def test_parents_and_times_are_those_that_were_noted(printed, tmp_path):
    def key(trace: str, span: str) -> str:
        return f"{int(trace) % 2**64:016x}.{int(span) % 2**64:016x}"

    wanted: dict[str, dict[str, str | int]] = {}
    for row in printed:
        span = wanted.setdefault(key(row["trace_id"], row["span_id"]), {"parent": ""})
        if row["parent_span_id"] != "0":
            span["parent"] = key(row["trace_id"], row["parent_span_id"])
        if row.get("event") in dapper.CORE:
            span[row["event"]] = int(row["time_ns"])
    with _traced(tmp_path) as run:
        kept = run.read_columns("span")
        calls, links = run.read_table("calls"), run.read_table("links")
    assert len(kept["id"]) == len(wanted) == 120
    for own, call, sent, answered, parent in zip(
        *(kept[name] for name in ("message_id", "call", "sent_ns", "answered_ns", "true_parent_id")),
        strict=True,
    ):
        times = (sent, int(calls["arrive_ns"][call]), int(calls["depart_ns"][call]), answered)
        assert times == tuple(wanted[own][name] for name in dapper.CORE)
        assert parent == wanted[own]["parent"]
        linked = int(links["parent"][call])
        assert (kept["message_id"][kept["call"].index(linked)] if linked >= 0 else "") == parent
        assert links["kind"][call] == (LinkKind.LINKED if parent else LinkKind.ROOT)


def test_the_services_are_the_nodes(tmp_path):
    with _traced(tmp_path) as run:
        served = run.sql("SELECT server_name, count(*) FROM v_call GROUP BY 1 ORDER BY 1")
    assert served == [("app", 32), ("db", 48), ("web", 40)]


def test_a_trace_without_one_byte_of_an_event_stream_left_is_an_error_that_says_so(tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(SERVICES, folder)
    (folder / "annotations_0").write_bytes((SERVICES / "annotations_0").read_bytes()[:5000])
    with pytest.raises(TapscopeError, match=r"can read nothing.*annotations_0"):
        spans.read([folder])


def test_a_trace_that_is_damaged_in_the_middle_is_read_up_to_there(tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(SERVICES, folder)
    stream = bytearray((folder / "annotations_0").read_bytes())
    stream[20000:20400] = b"\xff\x00" * 200
    (folder / "annotations_0").write_bytes(stream)
    whole, read = spans.read([SERVICES]), spans.read([folder])
    assert read.counters["span.damaged_trace"] == 1
    assert "damaged_trace 1" in read.sources[0]["warning"]
    assert 50 < len(read) < len(whole) == 120
    # Bytes that are no event may read as one before it shows; the format has no checksum.
    assert len(set(read.message_id) - set(whole.message_id)) <= 1


def test_without_babeltrace2_the_error_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TapscopeError) as error:
        spans.read([SERVICES])
    assert "apt-get install babeltrace2" in str(error.value)


def test_a_table_beside_a_trace_is_refused(tmp_path):
    table = tmp_path / "spans.csv"
    table.write_text(",".join(spans.COLUMNS) + "\n", encoding="utf-8")
    with pytest.raises(TapscopeError, match="one after the other"):
        spans.read([SERVICES, table])


def test_only_a_folder_with_a_described_trace_is_one(tmp_path):
    assert ctf.is_trace(SERVICES.parent)
    assert not ctf.is_trace(SERVICES / "index")
    (tmp_path / "metadata").write_text("name: something else\n", encoding="utf-8")
    assert not ctf.is_trace(tmp_path)


def test_lines_are_taken_apart_whatever_a_text_holds():
    line = (
        '[1795331002.000000009] zipkin:keyval: { cpu_id = 0 }, { trace_id = -1, key = "k", '
        r'val = "a = \"5\", b = 6 }, { \\\n" }'
    )
    found = ctf._event(line + "\n")
    assert found is not None
    assert (found.time_ns, found.host, found.name) == (1795331002000000009, "", "zipkin:keyval")
    assert found.fields == {"cpu_id": "0", "trace_id": "-1", "key": "k", "val": 'a = "5", b = 6 }, { \\\n'}


def _event(time_ns: int, service: str, span: int, parent: int, event: str) -> ctf.Event:
    ids = {"trace_id": "7", "span_id": str(span), "parent_span_id": str(parent)}
    return ctf.Event(
        time_ns, "h", "zipkin:timestamp", ids | {"service_name": service, "event": event, "trace_name": "n"}
    )


def _spans(*given: ctf.Event) -> tuple[dict[str, dapper.Span], dict[str, int]]:
    found: dict[str, dapper.Span] = {}
    counted: dict[str, int] = {}
    for event in given:
        dapper.add(event, found, lambda name, value: counted.update({name: counted.get(name, 0) + value}))
    return found, counted


def test_a_span_without_the_four_times_lasts_from_first_to_last_annotation():
    found, _ = _spans(
        _event(10, "osd", 1, 0, "start"),
        _event(30, "osd", 1, 0, "end"),
        _event(20, "disk", 2, 1, "x"),
    )
    whole, single = found.values()
    assert (whole.callee, dapper.times(whole), dapper.caller(whole, found)) == (
        "osd",
        [-1, 10, 30, -1],
        dapper.CLIENT,
    )
    assert (single.callee, dapper.times(single), dapper.caller(single, found)) == (
        "disk",
        [-1, 20, -1, -1],
        "osd",
    )


def test_contradictions_and_other_events_are_counted():
    other = ctf.Event(5, "h", "app:other", {"size": "4"})
    found, counted = _spans(
        _event(1, "a", 1, 0, "sr"), other, _event(2, "a", 1, 0, "sr"), _event(3, "a", 1, 9, "ss")
    )
    assert counted == {"other_event": 1, "repeated_time": 1, "parent_contradiction": 1}
    assert [dapper.times(span) for span in found.values()] == [[-1, 1, 3, -1]]


def test_a_circle_of_told_parents_is_opened_and_counted():
    read = spans.read([SERVICES])
    inner = [row for row, parent in enumerate(read.parent_id) if parent]
    above = read.message_id.index(read.parent_id[inner[0]])
    whole = span_tables.trace(read, span_tables.tables(read))
    assert "span.parent_circle" not in whole.counters
    read.parent_id[above] = read.message_id[inner[0]]
    made = span_tables.trace(read, span_tables.tables(read))
    assert made.counters["span.parent_circle"] == 1
    unknown = (made.links["kind"] == LinkKind.UNKNOWN).sum()
    assert unknown == (whole.links["kind"] == LinkKind.UNKNOWN).sum() + 1
