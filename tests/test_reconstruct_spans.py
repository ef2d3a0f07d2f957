"""Span tables: what is read, what is left out and named, and links by each service's own clock."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
import span_sets
from cli_program import tapscope
from simulator import Simulation, simulate

from tapscope.reconstruct import span_tables, spans
from tapscope.reconstruct.match.cycles import circling
from tapscope.store.codes import LinkKind
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile

HEADER = ",".join(spans.COLUMNS)


@pytest.fixture(scope="module")
def world() -> Simulation:
    return simulate(seed=11, users=12, seconds=6.0)


def _file(tmp_path: Path, *lines: str, header: str = HEADER) -> Path:
    path = tmp_path / "spans.csv"
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return path


def _traced(*listed: dict[str, str], folder: Path) -> dict[str, tuple[str, LinkKind]]:
    """Parent and kind of link by message id."""
    read = spans.read([span_sets.write(folder / "spans.csv", list(listed))])
    given = span_tables.tables(read)
    links = span_tables.trace(read, given).links
    ids = [read.message_id[row] for row in given.row]
    parents = links["parent"].tolist()
    return {
        own: ("" if parent < 0 else ids[parent], LinkKind(kind))
        for own, parent, kind in zip(ids, parents, links["kind"].tolist(), strict=True)
    }


def _row(own: str, caller: str, callee: str, *times: int | str) -> dict[str, str]:
    cells = (own, caller, callee, f"call {callee}", *(str(time) for time in times))
    return dict(zip(spans.COLUMNS, cells, strict=True))


def test_links_are_right_whatever_the_clocks_of_the_services_say(world, tmp_path):
    listed = span_sets.rows(world)
    found = _traced(*listed, folder=tmp_path)
    true = {row["message_id"]: row["true_parent_id"] for row in span_sets.truth(world)}
    inner = [own for own, parent in true.items() if parent]
    right = sum(found[own][0] == true[own] for own in inner)
    assert right / len(inner) > 0.97
    assert all(found[own] == ("", LinkKind.ROOT) for own, parent in true.items() if not parent)


def test_links_do_not_depend_on_how_far_the_clocks_are_apart(world, tmp_path):
    skewed = _traced(*span_sets.rows(world), folder=tmp_path)
    assert skewed == _traced(*span_sets.rows(world, skew_us=(0, 0, 0, 0)), folder=tmp_path)


def test_a_packed_table_and_other_column_orders_read_alike(world, tmp_path):
    listed = span_sets.rows(world)
    plain = spans.read([span_sets.write(tmp_path / "a.csv", listed)])
    turned = [dict(reversed(row.items())) | {"extra": "x"} for row in listed]
    packed = spans.read([span_sets.write(tmp_path / "b.csv.gz", turned)])
    assert plain.message_id == packed.message_id
    for name in ("sent_ns", "received_ns", "responded_ns", "answered_ns"):
        assert (getattr(plain, name) == getattr(packed, name)).all()


def test_every_bad_row_is_counted_by_name_and_the_rest_is_kept(tmp_path):
    path = _file(
        tmp_path,
        "a,x,y,e,,10,20,",
        "b,x,y",
        ",x,y,e,,10,20,",
        "a,x,y,e,,11,21,",
        "c,,y,e,,10,20,",
        "d,x,y,e,,ten,20,",
        "e,x,y,e,,-5,20,",
        "f,x,y,e,,99999999999999999,,",
        "g,x,y,e,,,20,",
        "h,x,y,e,,30,20,",
        "i,x,y,e,,10.2505,20,9",
        "",
        "j,x,y,e,7,,,",
    )
    read = spans.read([path])
    assert read.message_id == ["a", "i", "j"]
    assert read.received_ns.tolist() == [10_000, 10_250, -1]
    assert read.answered_ns.tolist() == [-1, -1, -1]
    assert read.counters == {
        "span.short_row": 1,
        "span.no_message_id": 1,
        "span.repeated_message_id": 1,
        "span.no_service": 1,
        "span.bad_time": 3,
        "span.no_request_time": 1,
        "span.ends_before_it_begins": 1,
        "span.end_without_begin": 1,
    }
    (source,) = read.sources
    assert (source["rows"], source["rows_left_out"]) == (3, 9)
    assert source["first_line"]["span.bad_time"] == 7
    assert source["first_line"]["span.end_without_begin"] == 12


def test_blanks_around_cells_are_no_part_of_them(tmp_path):
    path = _file(tmp_path, "a , client, web, GET /, , 1000, 2000 ,", header=HEADER.replace(",", ", "))
    read = spans.read([path])
    assert (read.message_id, read.services, read.endpoints) == (["a"], ["client", "web"], ["GET /"])
    assert (read.received_ns.tolist(), read.responded_ns.tolist()) == ([1_000_000], [2_000_000])
    assert read.counters == {}


def test_ids_that_are_no_utf_8_still_differ(tmp_path):
    path = tmp_path / "spans.csv"
    rows = (
        b"m%cn, client, web, GET /, , %d000, %d500 ," % (byte, at, at) for at, byte in ((1, 0xF1), (2, 0xE1))
    )
    path.write_bytes(b"\n".join((HEADER.encode(), *rows)))
    read = spans.read([path])
    assert (read.message_id, read.counters) == (["m\\xf1n", "m\\xe1n"], {})


def test_it_is_told_when_requests_make_too_many_calls_to_be_weighed_together(tmp_path):
    for number, told in ((20, False), (310, True)):  # calls of each of two requests
        rows = [_row(f"r{at}", "client", "web", "", 1_000 + at, 5_000_000 + at, "") for at in (0, 1)]
        for call in range(2 * number):
            begin = 10_000 + call * 4_000
            rows.append(_row(f"c{call}", "web", "db", begin, begin + 100, begin + 2_000, begin + 2_100))
        path = span_sets.write(tmp_path / "spans.csv", rows)
        done = tapscope("trace", "--spans", path, "-o", tmp_path / "run.db", "--force")
        assert done.returncode == 0, done.stderr
        assert ("too many calls together" in done.stderr) == told


def test_a_table_that_is_cut_gives_the_rows_up_to_there(world, tmp_path):
    path = span_sets.write(tmp_path / "a.csv.gz", span_sets.rows(world))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    read = spans.read([path])
    assert 0 < len(read) < len(world.true_parent)
    assert read.counters["span.truncated_file"] == 1
    assert "cut" in read.sources[0]["warning"]


@pytest.mark.parametrize(
    ("damaged", "name"),
    [
        ('"b,x,y,e,,11,21,', "span.unclosed_quote"),
        ('b,x,y,"e,,11,21,', "span.unclosed_quote"),
        ('b,x,y,e,,11,21,"', "span.unclosed_quote"),
        ('b,x,y,"' + "e" * 200_000 + '",,11,21,', "span.unreadable_row"),
    ],
)
@pytest.mark.parametrize("behind", [1, 3000])
def test_a_damaged_row_costs_its_own_line_only(tmp_path, damaged, name, behind):
    others = [f'c{number},x,y,"e",,1{number},1{number},' for number in range(behind)]
    read = spans.read([_file(tmp_path, "a,x,y,e,,10,20,", damaged, *others)])
    assert len(read) == 1 + behind
    assert read.counters == {name: 1}
    (source,) = read.sources
    assert (source["rows_left_out"], source["first_line"]) == (1, {name: 3})


def test_a_damaged_last_row_without_line_end_is_left_out(tmp_path):
    path = _file(tmp_path, "a,x,y,e,,10,20,")
    with path.open("a", encoding="utf-8") as file:
        file.write('b,x,y,e,,11,21,"')
    read = spans.read([path])
    assert (read.message_id, read.counters) == (["a"], {"span.unclosed_quote": 1})


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_of_a_row_that_spans_several_is_counted(tmp_path, end):
    path = tmp_path / "spans.csv"
    lines = [HEADER, "a,x,y,e,,10,20,", 'b,x,y,"e', "", 'f",,11,21,', 'c,x,y,"e, ""f""",,12,22,']
    path.write_bytes(end.join([*lines, ""]).encode())
    read = spans.read([path])
    assert (read.message_id, read.endpoints) == (["a", "c"], ["e", 'e, "f"'])
    assert read.counters == {"span.unclosed_quote": 1, "span.short_row": 1}
    assert read.sources[0]["rows_left_out"] == 2
    assert read.sources[0]["first_line"] == {"span.unclosed_quote": 3, "span.short_row": 5}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b,c\n1,2,3\n", "line 1: this is no span table: no column message_id"),
        (HEADER.replace("endpoint,", "").encode() + b"\n", "not whole: no column endpoint"),
        (b"", "no column message_id"),
        (bytes(range(256)) * 8, "line 1"),
        pytest.param(gzip.compress(b"a,b\n"), "line 1: this is no span table", id="gzip"),
    ],
)
def test_a_wrong_header_is_an_error_that_says_what_is_expected(tmp_path, content, words):
    path = tmp_path / "spans.csv"
    path.write_bytes(content)
    with pytest.raises(TapscopeError, match=words) as caught:
        spans.read([path])
    assert "t_response_received_us" in str(caught.value)


def test_a_call_to_a_service_that_reports_nothing_is_linked_but_is_nobody_s_parent(tmp_path):
    found = _traced(
        _row("root", "client", "web", "", 1000, 9000, ""),
        _row("silent", "web", "bank", 2000, "", "", 8000),
        _row("inner", "bank", "ledger", 3000, 3100, 3200, 3300),
        folder=tmp_path,
    )
    assert found["silent"] == ("root", LinkKind.LINKED)
    assert found["inner"][0] == ""


def test_a_call_that_its_caller_did_not_report_has_an_unknown_parent(tmp_path):
    found = _traced(
        _row("root", "client", "web", "", 1000, 9000, ""),
        _row("seen", "web", "app", 2000, 2100, 2900, 3000),
        _row("unseen", "web", "app", "", 4000, 5000, ""),
        folder=tmp_path,
    )
    assert found["seen"] == ("root", LinkKind.LINKED)
    assert found["unseen"] == ("", LinkKind.UNKNOWN)


@pytest.mark.parametrize("way_us", [0, 20, 200])
def test_a_service_that_calls_itself_is_not_taken_for_its_own_caller(way_us, tmp_path):
    """Both ends of a call are at one service then, and less apart than what nesting allows for."""
    random = np.random.default_rng(7)
    rows, expected, now = [], {}, 0
    for number in range(300):
        now += int(random.exponential(20_000))
        begin, end = now, now + 900 + int(random.exponential(1_500))
        above, caller = "", "client"
        for depth in range(int(random.integers(1, 4))):
            own = f"{number}.{depth}"
            rows.append(_row(own, caller, "web", begin, begin + way_us, end, end + way_us))
            expected[own] = above
            above, caller = own, "web"
            begin, end = begin + way_us + 100, end - way_us - 100
            if end - begin < 4 * way_us + 400:
                break
    found = _traced(*rows, folder=tmp_path)
    assert sum(own.endswith(".2") for own in expected) > 20
    wrong = [own for own, (parent, _) in found.items() if parent != expected[own]]
    assert len(wrong) < 0.05 * len(expected)


def test_of_a_circle_the_least_certain_link_is_taken_back():
    parent = np.array([1, 2, 0, 0, -1, 5, 4])
    assert circling(parent, np.array([0.9, 0.7, 0.8, 0.1, 1.0, 0.5, 1.0])).tolist() == [1, 5]
    assert circling(np.array([-1, 0, 1, 0]), np.ones(4)).tolist() == []
    assert circling(np.empty(0, dtype=np.int64), np.empty(0)).tolist() == []


def test_the_command_makes_a_run_like_any_other(world, tmp_path):
    path = span_sets.write(tmp_path / "spans.csv.gz", span_sets.rows(world))
    out = tmp_path / "run.db"
    done = tapscope("trace", "--spans", str(path), "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert f"{len(world.true_parent)} rows of span tables, 0 left out" in done.stdout
    with RunFile.open(out) as stored:
        assert stored.meta("complete")
        assert {"web", "app", "db"} < set(stored.node_names())
        nodes = [row[0] for row in stored.sql("SELECT DISTINCT node FROM v_load")]
        assert set(nodes) == {"web", "app", "db"}
    listed = tapscope("export", str(out), "--table", "span_links", "-o", str(tmp_path / "links.csv"))
    assert listed.returncode == 0, listed.stderr
    with (tmp_path / "links.csv").open(newline="") as file:
        links = {row["message_id"]: row for row in csv.DictReader(file)}
    assert set(links) == {f"m{call}" for call in range(len(world.true_parent))}
    inner = next(row for row in links.values() if row["kind"] == "linked")
    assert inner["parent_message_id"] in links
    assert 0 < float(inner["probability"]) <= 1
    for command in ("stats", "queues", "traces"):
        shown = tapscope(command, str(out))
        assert shown.returncode == 0, shown.stderr
    page = tapscope("report", str(out), "-o", str(tmp_path / "report.html"))
    assert page.returncode == 0, page.stderr


def test_a_call_that_is_never_answered_stays_until_the_table_ends(tmp_path):
    begins = range(1_655_759_356_010_000, 1_655_759_357_000_000, 100_000)
    answered = [f"b{at},client,S,x,,{at},{at + 20_000}," for at in begins]
    path = _file(tmp_path, f"a,client,S,x,,{begins[0] - 10_000},,", *answered)
    done = tapscope("trace", "--spans", str(path), "-o", str(tmp_path / "run.db"))
    assert done.returncode == 0, done.stderr
    with RunFile.open(tmp_path / "run.db") as stored:
        found = stored.read_table("loads")
    inside_us = 930_000 + len(begins) * 20_000
    assert (found["load"] * found["width_ns"]).sum() == pytest.approx(inside_us * 1000)
    assert found["max"].max() == 2


HOUR_US = 3_600_000_000


def _loads(stored: RunFile, service: str) -> dict[str, list[float]]:
    found = stored.read_table("loads")
    here = found["node"] == stored.node_names().index(service)
    return {name: values[here].tolist() for name, values in found.items() if name != "node"}


@pytest.mark.parametrize("off_us", [-3_000_000, 10 * HOUR_US, 8760 * HOUR_US])
def test_a_clock_that_is_off_changes_no_queue_of_another_service(world, off_us, tmp_path):
    as_they_are = span_sets.write(tmp_path / "a.csv", span_sets.rows(world, skew_us=(0, 0, 0, 0)))
    shifted = span_sets.write(tmp_path / "b.csv", span_sets.rows(world, skew_us=(0, 0, 0, off_us)))
    for table in (as_they_are, shifted):
        done = tapscope("trace", "--spans", str(table), "-o", str(table.with_suffix(".db")))
        assert done.returncode == 0, done.stderr
        assert "days away" not in done.stdout + done.stderr
    with RunFile.open(as_they_are.with_suffix(".db")) as a, RunFile.open(shifted.with_suffix(".db")) as b:
        for service in ("web", "app"):
            np.testing.assert_equal(_loads(b, service), _loads(a, service))
        assert b.path.stat().st_size < 1.1 * a.path.stat().st_size
        moved = _loads(a, "db")
        moved["window_ns"] = [at + off_us * 1000 for at in moved["window_ns"]]
        np.testing.assert_equal(_loads(b, "db"), moved)
    page = tapscope("report", str(shifted.with_suffix(".db")), "-o", str(tmp_path / "report.html"))
    assert page.returncode == 0, page.stderr


def test_a_call_stamped_days_away_at_its_callee_is_told_in_words_for_tables(tmp_path):
    at = 1_655_759_356_000_000
    usual = [f"m{i},client,S,x,,{at + i * 1000},{at + i * 1000 + 500}," for i in range(50)]
    days = at + 240 * HOUR_US
    other = [f"o{i},client,T,x,,{days + i * 1000},{days + i * 1000 + 500}," for i in range(50)]
    path = _file(tmp_path, *usual, *other, f"far,client,S,x,,{days},{days + 500},")
    done = tapscope("trace", "--spans", str(path), "-o", str(tmp_path / "run.db"))
    assert done.returncode == 0, done.stderr
    told = " ".join((done.stdout + done.stderr).split())
    assert "1 calls are stamped days away from all others of their callee" in told
    assert "editcap" not in told
    with RunFile.open(tmp_path / "run.db") as stored:
        assert [sum(_loads(stored, service)["arrivals"]) for service in ("S", "T")] == [50, 50]
    page = tapscope("report", str(tmp_path / "run.db"), "-o", str(tmp_path / "report.html"))
    assert page.returncode == 0, page.stderr


def test_many_rows_left_out_are_low_quality_with_the_line_of_the_first(tmp_path):
    path = _file(tmp_path, "a,x,y,e,,10,20,", "b,x,y", "c,x,y,e,,20,30,")
    done = tapscope("trace", "--spans", str(path), "-o", str(tmp_path / "run.db"))
    assert done.returncode == 3
    assert "short_row (line 3)" in done.stderr


def test_a_table_without_rows_is_low_quality_and_says_so(tmp_path):
    path = _file(tmp_path)
    done = tapscope("trace", "--spans", str(path), "-o", str(tmp_path / "run.db"))
    assert done.returncode == 3
    assert "the span table has no rows" in done.stderr
    assert tapscope("report", str(tmp_path / "run.db"), "-o", str(tmp_path / "r.html")).returncode == 0


@pytest.mark.parametrize("arguments", [[], ["in.pcap", "--spans", "x.csv"], ["--spans", "x", "--follow"]])
def test_spans_and_packets_exclude_each_other(tmp_path, arguments):
    done = tapscope("trace", *arguments, "-o", str(tmp_path / "run.db"))
    assert done.returncode == 2
    assert "span" in done.stderr


def test_the_order_of_the_rows_tells_nothing_where_times_are_equal(tmp_path: Path) -> None:
    rows = span_sets.rows(simulate(seed=8, users=60, seconds=2.0))
    for row in rows:  # clocks of a millisecond
        row |= {name: row[name][:-3] + "000" for name in row if name.startswith("t_") and row[name]}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert _traced(*rows, folder=tmp_path / "a") == _traced(*rows[::-1], folder=tmp_path / "b")
