"""The command line: every command is documented, prints what the run holds, and scripts can read it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from simulator import NODE_NAMES, Simulation, simulate

from tapscope.cli import manual
from tapscope.cli.formats import formats_md
from tapscope.cli.main import COMMANDS, run
from tapscope.cli.output import print_json, printable, utc
from tapscope.report.export import EXPORTS, write_rows
from tapscope.store.codes import CallFlag, LinkKind
from tapscope.store.errors import ExitCode
from tapscope.store.runfile import RunFile

DOCS = Path(__file__).resolve().parent.parent / "docs"
HOSTS = DOCS.parent / "pcaps" / "hosts"
LISTED = [(full, command) for full, command, _ in manual.commands()]


@pytest.fixture(scope="module")
def world() -> Simulation:
    return simulate(seed=7, users=30, seconds=3.0)


@pytest.fixture
def path(world, tmp_path) -> str:
    world.save(tmp_path / "run.db")
    return str(tmp_path / "run.db")


def text_of(capsys, *arguments: str) -> str:
    assert run(arguments) == ExitCode.DONE
    return capsys.readouterr().out


def json_of(capsys, *arguments: str):
    return json.loads(text_of(capsys, *arguments, "--json"))


# ---- help and documents ----


@pytest.mark.parametrize("words", [full.split() for full, _ in LISTED], ids=[full for full, _ in LISTED])
def test_every_command_has_help(capsys, words):
    out = text_of(capsys, *words, "--help")
    assert out.startswith(f"Usage: tapscope {' '.join(words)}")


@pytest.mark.parametrize(("full", "command"), LISTED, ids=[full for full, _ in LISTED])
def test_every_command_and_option_says_what_it_is_for(full, command):
    assert command.help
    if full.startswith("testbed"):
        return
    silent = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
    assert silent == []


def test_every_command_is_in_the_list_of_commands(capsys):
    out = text_of(capsys, "--help")
    assert [name for name in COMMANDS if f"\n  {name} " not in out] == []


@pytest.mark.parametrize(
    ("name", "made"),
    [("commands.md", manual.commands_md), ("formats.md", formats_md)],
)
def test_the_reference_pages_are_what_the_program_says(name, made):
    assert (DOCS / name).read_text(encoding="utf-8") == made(), "run: python -m tapscope.cli.manual docs"


def test_the_manual_pages_are_what_the_program_says():
    committed = {page.name: page.read_text(encoding="utf-8") for page in (DOCS / "man").glob("*.1")}
    assert committed == manual.man_pages(), "run: python -m tapscope.cli.manual docs"


def test_help_is_fast_because_nothing_heavy_is_imported():
    program = (
        "import sys\nfrom tapscope.cli.main import run\nrun(['--help'])\n"
        "heavy = {'numpy', 'sklearn', 'rich', 'plotly', 'tapscope.capture', 'sqlite3'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], env=environment(), check=True, capture_output=True)


def environment() -> dict[str, str]:
    return dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(capsys, shell):
    assert "_TAPSCOPE_COMPLETE" in text_of(capsys, "completion", shell)


def test_completion_completes_commands_and_options():
    def complete(words: str, index: int) -> str:
        asked = environment() | {
            "_TAPSCOPE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(index),
        }  # fmt: skip
        done = subprocess.run([sys.executable, "-m", "tapscope"], env=asked, check=False, capture_output=True)
        return done.stdout.decode()

    assert "plain,traces" in complete("tapscope tra", 1)
    assert "plain,--evidence" in complete("tapscope trace --ev", 2)


# ---- what is printed ----


def test_stats_tells_the_nodes_of_the_run(capsys, path, world):
    record = json_of(capsys, "stats", path)
    calls, loads = world.tables["calls"], world.tables["loads"]
    assert [node["node"] for node in record["nodes"]] == NODE_NAMES[1:]
    for row, node in enumerate(record["nodes"], start=1):
        here = calls["server_node"] == row
        answered = here & (calls["depart_ns"] >= 0)
        assert node["calls"] == here.sum()
        assert node["unanswered"] == (here & ~answered).sum()
        mean = (calls["depart_ns"] - calls["arrive_ns"])[answered].mean() / 1e6
        assert node["mean_response_ms"] == pytest.approx(mean)
        assert node["mean_queue"] == pytest.approx(loads["load"][loads["node"] == row].mean())
        assert node["linked_pct"] == 100.0
    connections = world.tables["connections"]
    seen = int(connections["bytes_to_server"].sum() + connections["bytes_to_client"].sum())
    assert record["loss"]["bytes"] == seen
    assert record["loss"]["unanswered_calls"] == ((calls["flags"] & CallFlag.UNANSWERED) != 0).sum()
    assert [listener["server_port"] for listener in record["listeners"]] == [3306, 80, 8009] or seen
    text = text_of(capsys, "stats", path)
    assert all(name in text for name in NODE_NAMES[1:])


def test_queues_tells_the_load_of_each_node(capsys, path, world):
    loads = world.tables["loads"]
    for row, record in enumerate(json_of(capsys, "queues", path), start=1):
        here = loads["node"] == row
        assert record["node"] == NODE_NAMES[row]
        assert record["mean"] == pytest.approx(loads["load"][here].mean())
        assert record["max"] == loads["max"][here].max()
        assert record["highest_ns"] == loads["window_ns"][here][np.argmax(loads["load"][here])]
        assert record["completions"] == loads["completions"][here].sum()
    assert "mean queue" in text_of(capsys, "queues", path)


def test_queues_of_one_node_in_a_stretch_of_time(capsys, path, world):
    loads = world.tables["loads"]
    windows = loads["window_ns"][loads["node"] == 2]
    span = ("--from", str(windows[5]), "--to", str(windows[9]))
    records = json_of(capsys, "queues", path, "--node", NODE_NAMES[2], *span)
    assert [record["window_start_ns"] for record in records] == windows[5:9].tolist()
    assert "window (UTC)" in text_of(capsys, "queues", path, "--series", *span)


def test_an_unknown_node_is_named_with_those_that_exist(capsys, path):
    assert run(["queues", path, "--node", "mars"]) == ExitCode.USAGE
    assert NODE_NAMES[1] in capsys.readouterr().err


def test_traces_lists_the_slowest_first(capsys, path, world):
    traces = world.tables["traces"]
    records = json_of(capsys, "traces", path, "--limit", "5")
    slowest = np.sort(traces["end_ns"] - traces["begin_ns"])[::-1][:5]
    assert [record["response_time_ns"] for record in records] == slowest.tolist()
    first = json_of(capsys, "traces", path, "--order", "time", "--limit", "3")
    assert [record["begin_ns"] for record in first] == np.sort(traces["begin_ns"])[:3].tolist()
    found = json_of(capsys, "traces", path, "--class", "/board/story/", "--limit", "1000")
    assert {record["class"] for record in found} == {"GET /board/story/{n}"}
    assert "response ms" in text_of(capsys, "traces", path)


def test_a_trace_is_the_tree_of_its_calls(capsys, path, world):
    tree, links = world.tables["trace_calls"], world.tables["links"]
    biggest = int(np.argmax(world.tables["traces"]["calls"]))
    records = json_of(capsys, "traces", path, "--trace", str(biggest))
    assert sorted(record["call"] for record in records) == sorted(
        tree["call"][tree["trace"] == biggest].tolist()
    )
    assert records[0]["offset_ns"] == 0
    place = {record["call"]: i for i, record in enumerate(records)}
    parent = dict(zip(links["child"].tolist(), links["parent"].tolist(), strict=True))
    for record in records[1:]:
        assert record["parent"] == parent[record["call"]]
        assert place[record["parent"]] < place[record["call"]]
    assert "    mysql SELECT" in text_of(capsys, "traces", path, "--trace", str(biggest))
    assert run(["traces", path, "--trace", "999999"]) == ExitCode.USAGE


def test_query_prints_rows_as_table_csv_and_json(capsys, path, world):
    sql = "SELECT kind, count(*) AS n, NULL AS missing FROM v_link GROUP BY kind ORDER BY kind"
    kinds = world.tables["links"]["kind"]
    expected = [
        {"kind": kind.name.lower(), "n": int((kinds == kind).sum()), "missing": None}
        for kind in sorted(LinkKind, key=lambda k: k.name)
        if (kinds == kind).any()
    ]
    assert json_of(capsys, "query", path, sql) == expected
    assert text_of(capsys, "query", path, sql, "--csv").splitlines()[0] == "kind,n,missing"
    assert "linked" in text_of(capsys, "query", path, sql)
    twice = "SELECT 1 AS a, 2 AS a, x'00ff' AS b"
    assert json_of(capsys, "query", path, twice) == [{"a": 1, "a_2": 2, "b": "00ff"}]
    assert text_of(capsys, "query", path, twice, "--csv").splitlines() == ["a,a,b", "1,2,00ff"]


@pytest.mark.parametrize(
    "sql", ["DELETE FROM call", "selec", "SELECT * FROM nowhere", "", "SELECT 1; SELECT 2"]
)
def test_a_query_that_cannot_be_run_is_the_users_mistake_and_changes_nothing(capsys, path, world, sql):
    assert run(["query", path, sql]) == ExitCode.USAGE
    assert "Traceback" not in capsys.readouterr().err
    with RunFile.open(path) as stored:
        assert stored.count("calls") == len(world.tables["calls"]["conn"])


def test_load_hosts_adds_tables_and_says_which(capsys, path):
    records = json_of(capsys, "load-hosts", path, str(HOSTS))
    assert {record["host"] for record in records} == {"web", "app"}
    with RunFile.open(path) as stored:
        assert {t.table for t in stored.dynamic_tables()} == {
            name for record in records for name in record["tables"]
        }
    assert "collectl raw" in text_of(capsys, "load-hosts", path, str(HOSTS))


# ---- exports ----


def rows_of(capsys, path: str, table: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text_of(capsys, "export", path, "--table", table))))


@pytest.mark.parametrize("table", [name for name in EXPORTS if name != "span_links"])
def test_csv_and_json_lines_hold_the_same_rows(capsys, path, table):
    rows = rows_of(capsys, path, table)
    lines = [
        json.loads(line)
        for line in text_of(capsys, "export", path, "--table", table, "--format", "jsonl").splitlines()
    ]
    assert list(rows[0]) == list(EXPORTS[table][1]) == list(lines[0])
    assert [{k: "" if v is None else str(v) for k, v in line.items()} for line in lines] == rows


def test_the_links_export_has_the_columns_that_scripts_rely_on(capsys, path):
    header = text_of(capsys, "export", path, "--table", "links").splitlines()[0]
    assert header == (
        "child_ts_ns,child_src,child_sport,child_dst,child_dport,child_tcp_seq,parent_ts_ns,parent_src,parent_sport,"
        "parent_dst,parent_dport,parent_tcp_seq,probability,runner_up_probability,kind"
    )


def test_the_links_export_tells_every_parent(capsys, path, world):
    calls, links = world.tables["calls"], world.tables["links"]
    rows = rows_of(capsys, path, "links")
    assert len(rows) == len(calls["conn"])
    parent = dict(zip(links["child"].tolist(), links["parent"].tolist(), strict=True))
    kind = dict(zip(links["child"].tolist(), links["kind"].tolist(), strict=True))
    connections = world.tables["connections"]
    for call, row in enumerate(rows):
        assert row["kind"] == LinkKind(kind[call]).name.lower()
        assert row["child_ts_ns"] == str(calls["arrive_ns"][call])
        assert row["child_tcp_seq"] == str(calls["tcp_seq"][call])
        above = parent[call]
        if above < 0:
            assert row["parent_ts_ns"] == row["parent_src"] == row["parent_tcp_seq"] == ""
            continue
        conn = calls["conn"][above]
        assert row["parent_ts_ns"] == str(calls["arrive_ns"][above])
        assert row["parent_src"] == world.addresses[connections["client_addr"][conn]]
        assert row["parent_dport"] == str(connections["server_port"][conn])


def test_a_call_without_a_link_row_is_unknown_in_the_export(capsys, path):
    with RunFile.open(path, write=True) as stored:
        links = stored.read_table("links")
        stored.write_table("links", {name: values[1:] for name, values in links.items()})
    rows = rows_of(capsys, path, "links")
    missing = [row for row in rows if row["kind"] == "unknown"]
    assert len(missing) == 1
    assert missing[0]["parent_src"] == ""


def test_the_loads_export_names_the_nodes(capsys, path, world):
    rows = rows_of(capsys, path, "loads")
    assert list(rows[0])[:7] == [
        "node",
        "window_start_ns",
        "width_ns",
        "load",
        "max",
        "arrivals",
        "completions",
    ]
    assert [float(row["load"]) for row in rows] == world.tables["loads"]["load"].tolist()
    assert {row["node"] for row in rows} == set(NODE_NAMES[1:])


def test_the_calls_export_names_protocol_class_and_flags(capsys, path, world):
    rows = rows_of(capsys, path, "calls")
    calls = world.tables["calls"]
    for row, class_id, flags in zip(rows, calls["class_id"].tolist(), calls["flags"].tolist(), strict=True):
        assert row["class"] == world.classes[class_id][1]
        names = "|".join(flag.name.lower() for flag in CallFlag if flag and flags & flag)
        assert row["flags"] == names


def test_an_export_to_a_file_appears_whole_or_not_at_all(capsys, path, tmp_path):
    out = tmp_path / "links.csv"
    assert text_of(capsys, "export", path, "--table", "links", "-o", str(out)) == ""
    assert out.read_text() == text_of(capsys, "export", path, "--table", "links")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["links.csv", "run.db"]


# ---- text from the network ----


def test_control_characters_from_the_network_never_reach_the_terminal(capsys, path):
    with RunFile.open(path, write=True) as stored:
        stored.write_classes([(p, f"GET /\x1b]0;owned\x07 [red]{t}") for p, t in stored.classes()])
    out = text_of(capsys, "traces", path)
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[red]" in out


def test_json_holds_no_character_that_a_terminal_obeys(capsys):
    text = "a\x1b[2J\x7f\x9b31m\ud800 é"
    print_json({"class": text})
    shown = capsys.readouterr().out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)
    assert "é" in shown
    assert json.loads(shown) == {"class": text}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_rows_on_a_terminal_hold_no_character_that_it_obeys(format_, kind):
    file = kind()
    assert write_rows(file, ["class"], [["GET /\x1b[2J\x9b31m/é"]], format_) == 1
    obeyed = re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", file.getvalue())
    assert bool(obeyed) == (kind is io.StringIO)  # files and pipes get what there is
    assert "é" in file.getvalue()


def test_printable_keeps_ordinary_text():
    assert printable("SELECT 'é' WHERE a = ?\t\x00") == "SELECT 'é' WHERE a = ?\ufffd\ufffd"


def test_times_are_shown_in_utc():
    assert utc(1_767_225_600_123_999_999) == "2026-01-01 00:00:00.123"
    assert utc(-1) == "-"
