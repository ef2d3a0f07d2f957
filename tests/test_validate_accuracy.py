"""Path accuracy on links whose errors are known, and the join of truth and tap."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from event_logs import key, request_ids, true_links, write_logs, write_run, write_truth
from simulator import APP, DB, WEB, Simulation, simulate

from tapscope.store.codes import LinkKind
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.store.tables import Table
from tapscope.validate import accuracy, edges, tap, truth
from tapscope.validate.accuracy import PathAccuracy
from tapscope.validate.event_calls import Names
from tapscope.validate.joining import last_before
from tapscope.validate.truth import Keys


@pytest.fixture(scope="module")
def world() -> Simulation:
    return simulate(seed=31, users=60, seconds=4.0)


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("accuracy")
    write_run(world, folder / "run.db")
    write_truth(world, folder / "truth" / "calls.csv.gz")
    write_logs(world, folder / "events")
    return folder


def _judge(
    folder: Path, links: Table, truth_path: Path | None = None, begun_from_ns: int | None = None
) -> PathAccuracy:
    names = Names()
    with RunFile.open(folder / "run.db") as run:
        seen = tap.read(run)
    true = truth.read(truth_path or folder / "truth" / "calls.csv.gz", names)
    return accuracy.paths(accuracy.from_run(seen, links, names), true, begun_from_ns=begun_from_ns)


def _edge(found: PathAccuracy, pair: str) -> edges.EdgeAccuracy:
    return next(edge for edge in found.edges if edge.pair == pair)


def _rows(world: Simulation, node: int) -> np.ndarray:
    """Calls of a node that have a parent (of the entry tier: that have children)."""
    return np.flatnonzero(world.tables["calls"]["server_node"] == node)


def test_true_links_are_right_everywhere(world, folder):
    found = _judge(folder, true_links(world))
    calls = world.tables["calls"]["server_node"]
    assert _edge(found, "HTTP->AJP").right == _edge(found, "HTTP->AJP").edges == (calls == APP).sum()
    assert _edge(found, "AJP->MYSQL").right == (calls == DB).sum()
    assert found.paths_correct == found.paths_exist == found.paths_reported == (calls == WEB).sum()
    assert (found.completeness, found.accuracy, found.calibration_error) == (1.0, 1.0, 0.0)
    assert found.counters == {}


def test_one_statement_at_the_wrong_parent_spoils_two_paths(world, folder):
    links = true_links(world)
    child = int(_rows(world, DB)[50])
    right = int(links["parent"][child])
    other = int(next(row for row in _rows(world, APP) if row != right))
    links["parent"][child] = other
    found = _judge(folder, links)
    edge = _edge(found, "AJP->MYSQL")
    assert (edge.wrong, edge.unlinked, edge.right) == (1, 0, edge.edges - 1)
    assert edge.wrong_join_rate == pytest.approx(1 / edge.edges)
    assert found.paths_correct == found.paths_exist - 2
    assert found.completeness == found.accuracy == pytest.approx(1 - 2 / found.paths_exist)


def test_paths_of_transactions_that_began_later_are_counted_by_themselves(world, folder):
    calls = world.tables["calls"]
    web = np.sort(calls["arrive_ns"][calls["server_node"] == WEB])
    middle = int(web[len(web) // 2])
    links = true_links(world)
    early, late = (
        next(int(row) for row in _rows(world, DB) if (calls["arrive_ns"][row] > middle) == later)
        for later in (False, True)
    )
    links["parent"][early], links["kind"][early] = -1, LinkKind.UNKNOWN
    found = _judge(folder, links, begun_from_ns=middle)
    assert found.paths_exist == found.paths_correct == np.count_nonzero(web >= middle)
    assert _edge(found, "AJP->MYSQL").unlinked == 1, "edges are those of all"
    # An early call that was given to a late transaction spoils that one.
    links["parent"][early], links["kind"][early] = true_links(world)["parent"][late], LinkKind.LINKED
    found = _judge(folder, links, begun_from_ns=middle)
    assert found.paths_correct == found.paths_exist - 1


def test_an_unlinked_statement_spoils_its_own_path_only(world, folder):
    links = true_links(world)
    child = int(_rows(world, DB)[50])
    links["parent"][child], links["kind"][child] = -1, LinkKind.UNKNOWN
    found = _judge(folder, links)
    assert (_edge(found, "AJP->MYSQL").unlinked, _edge(found, "AJP->MYSQL").wrong) == (1, 0)
    assert found.paths_correct == found.paths_exist - 1
    assert found.paths_reported == found.paths_exist


def test_an_inner_call_reported_as_root_is_one_more_reported_path(world, folder):
    links = true_links(world)
    child = int(_rows(world, APP)[7])
    links["parent"][child], links["kind"][child] = -1, LinkKind.ROOT
    found = _judge(folder, links)
    assert found.paths_reported == found.paths_exist + 1
    assert found.paths_correct == found.paths_exist - 1
    assert found.accuracy < found.completeness < 1


def test_paths_against_a_twin_that_compares_whole_trees(world, folder):
    random = np.random.default_rng(8)
    links = true_links(world)
    apps = _rows(world, APP)
    for child in random.choice(_rows(world, DB), 60, replace=False):
        links["parent"][child] = random.choice(apps)
    for child in random.choice(apps, 20, replace=False):
        links["parent"][child], links["kind"][child] = -1, LinkKind.UNKNOWN

    def trees(parent: np.ndarray) -> dict[int, frozenset[tuple[int, int]]]:
        found: dict[int, set[tuple[int, int]]] = {}
        for call in range(len(parent)):
            root = call
            while parent[root] >= 0:
                root = int(parent[root])
            found.setdefault(root, set()).add((call, int(parent[call])))
        return {root: frozenset(members) for root, members in found.items()}

    true = trees(world.true_parent)
    reported = {
        root: tree for root, tree in trees(links["parent"]).items() if links["kind"][root] == LinkKind.ROOT
    }
    correct = sum(true.get(root) == tree for root, tree in reported.items())
    found = _judge(folder, links)
    assert (found.paths_exist, found.paths_reported, found.paths_correct) == (
        len(true),
        len(reported),
        correct,
    )
    assert 0 < correct < len(true) - 20


def test_calibration_compares_what_was_claimed_with_what_was_right(world, folder):
    links = true_links(world)
    statements = _rows(world, DB)
    links["probability"][statements] = 0.75
    apps = _rows(world, APP)
    for child in statements[::2]:
        links["parent"][child] = apps[0] if world.true_parent[child] != apps[0] else apps[1]
    found = _judge(folder, links)
    row = next(row for row in found.calibration if row["from"] == 0.7)
    assert row["mean_probability"] == pytest.approx(0.75)
    assert row["right"] == pytest.approx(0.5, abs=0.001)
    share = len(statements) / (len(statements) + len(apps))
    assert found.calibration_error == pytest.approx(0.25 * share, abs=0.001)


def test_concurrency_is_the_calls_in_flight_at_the_parent_s_node(world, folder):
    calls = world.tables["calls"]
    found = _judge(folder, true_links(world))
    counted: dict[int, int] = {}
    apps = _rows(world, APP)
    for child in _rows(world, DB):
        at = calls["arrive_ns"][child]
        known = calls["depart_ns"][apps] >= 0
        inside = known & (calls["arrive_ns"][apps] <= at) & (calls["depart_ns"][apps] > at)
        low = max(low for low in edges.CONCURRENCY_BINS if low <= max(int(inside.sum()), 1))
        counted[low] = counted.get(low, 0) + 1
    table = {row["from"]: row["edges"] for row in found.concurrency if row["pair"] == "AJP->MYSQL"}
    assert table == counted
    assert len(table) > 2


def test_a_call_that_the_tap_missed_makes_its_path_incomplete(world, folder, tmp_path):
    extra = tmp_path / "calls.csv"
    rows = list(csv.DictReader(_unpacked(folder / "truth" / "calls.csv.gz")))
    mysql = next(row for row in rows if row["protocol"] == "mysql")
    rows.append(mysql | {"ts_ns": str(int(mysql["ts_ns"]) + 5_000), "tcp_seq": "77", "kind": "COM_QUERY"})
    rows.append(
        mysql | {"ts_ns": str(int(mysql["ts_ns"]) + 9_000), "tcp_seq": "99", "kind": "COM_STMT_CLOSE"}
    )
    _write_csv(extra, rows)
    found = _judge(folder, true_links(world), extra)
    assert found.counters == {"truth_without_call": 1, "truth_one_way": 1}
    assert found.paths_correct == found.paths_exist - 1


def test_calls_outside_any_transaction_are_counted_not_judged(world, folder, tmp_path):
    rows = list(csv.DictReader(_unpacked(folder / "truth" / "calls.csv.gz")))
    nameless = [row for row in rows if row["protocol"] == "mysql"][:5]
    for row in nameless:
        row["request_id"] = ""
    unknown = next(row for row in rows if row["protocol"] == "mysql" and row["request_id"])
    rows.remove(unknown)
    _write_csv(tmp_path / "calls.csv", rows)
    found = _judge(folder, true_links(world), tmp_path / "calls.csv")
    assert found.counters["calls_in_no_transaction"] == 5
    assert found.counters["calls_without_truth"] == 1
    assert found.counters["unjudged_calls_in_paths"] == 6
    assert found.paths_correct == found.paths_exist


def test_an_id_that_comes_twice_belongs_to_the_call_that_is_open(world, tmp_path):
    # The second transaction takes the first one's ID while the first is still running.
    ids = request_ids(world)
    calls = world.tables["calls"]
    web = _rows(world, WEB)
    first = next(
        (int(a), int(b))
        for a in web
        for b in web
        if calls["arrive_ns"][a]
        < calls["arrive_ns"][b]
        < calls["depart_ns"][b]
        < calls["depart_ns"][a] - 3_000_000
    )
    write_run(world, tmp_path / "run.db")
    write_truth(world, tmp_path / "truth" / "calls.csv.gz")
    rows = list(csv.DictReader(_unpacked(tmp_path / "truth" / "calls.csv.gz")))
    for row in rows:
        if row["request_id"] == ids[first[1]]:
            row["request_id"] = ids[first[0]]
    _write_csv(tmp_path / "calls.csv", rows)
    found = _judge(tmp_path, true_links(world), tmp_path / "calls.csv")
    late = [edge.wrong for edge in found.edges]
    # AJP calls sent while both were open cannot be told apart by the ID; after the second has left they can.
    assert sum(late) <= 2
    assert found.counters.get("parent_not_captured", 0) == 0


def test_of_parallel_calls_the_one_of_the_same_part_is_the_parent(tmp_path):
    """A page (part 0) makes two calls to one server at once; both ask the database while both are open."""
    rows = [  # ts_ns, src, sport, dst, dport, part; the page, its two calls, a statement of the first one
        (10, "c", 1, "w", 80, 0),
        (20, "w", 2, "a", 8080, 1),
        (30, "w", 3, "a", 8080, 2),
        (40, "a", 4, "d", 3306, 1),
        (50, "a", 5, "d", 3306, 2),
    ]
    path = tmp_path / "calls.csv"
    lines = [f"{at},{src},{sport},{dst},{dport},1,http,x,{part}" for at, src, sport, dst, dport, part in rows]
    path.write_text("ts_ns,src,sport,dst,dport,tcp_seq,protocol,request_id,part\n" + "\n".join(lines) + "\n")
    names = Names()
    true = truth.read(path, names)
    told = accuracy.LinkedCalls(
        keys=true.keys,
        depart_ns=np.array([100, 90, 80, 60, 70]),
        parent=np.array([-1, 0, 0, 1, 2]),
        kind=np.array([int(LinkKind.ROOT)] + [int(LinkKind.LINKED)] * 4),
        probability=np.ones(5),
    )
    assert accuracy.paths(told, true).paths_correct == 1
    told.parent[3] = 2  # the later of the two: what the request id alone would say
    found = accuracy.paths(told, true)
    assert (found.paths_correct, sum(edge.wrong for edge in found.edges)) == (0, 1)


def test_an_export_of_links_is_judged_like_the_run_file(world, folder, tmp_path):
    links = true_links(world)
    child = int(_rows(world, DB)[9])
    links["parent"][child] = int(_rows(world, APP)[0])
    head = [f"child_{name}" for name in ("ts_ns", "src", "sport", "dst", "dport", "tcp_seq")]
    head += [name.replace("child", "parent") for name in head]
    path = tmp_path / "links.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*head, "probability", "runner_up_probability", "kind"])
        for row in range(len(links["child"])):
            parent = int(links["parent"][row])
            above = key(world, parent) if parent >= 0 else ("",) * 6
            kind = LinkKind(links["kind"][row]).name.lower()
            out.writerow([*key(world, row), *above, links["probability"][row], 0, kind])
        out.writerow(["not", "a", "row"])
    names = Names()
    linked = accuracy.from_csv(path, names)
    found = accuracy.paths(linked, truth.read(folder / "truth" / "calls.csv.gz", names))
    twin = _judge(folder, links)
    assert found.edges == twin.edges
    assert found.paths_correct == twin.paths_correct
    assert found.counters == {"links.short_row": 1}
    assert found.concurrency == [], "an export has no departures"


def test_a_links_file_without_a_column_is_refused(tmp_path):
    (tmp_path / "links.csv").write_text("child_ts_ns,child_src\n1,2\n")
    with pytest.raises(TapscopeError, match="column child_sport is missing"):
        accuracy.from_csv(tmp_path / "links.csv", Names())


def test_a_truth_file_that_is_cut_or_has_bad_numbers_is_read_as_far_as_it_goes(folder, tmp_path):
    packed = (folder / "truth" / "calls.csv.gz").read_bytes()
    (tmp_path / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    cut = truth.read(tmp_path / "cut.csv.gz", Names())
    assert len(cut.keys) > 0
    assert cut.counters["truth.truncated_file"] == 1
    bad = "ts_ns,src,sport,dst,dport,tcp_seq,protocol,request_id\n1,a,2,b,3,4,http,x\nwhat,a,2,b,3,4,http,x\n"
    (tmp_path / "bad.csv").write_text(bad)
    found = truth.read(tmp_path / "bad.csv", Names())
    assert (len(found.keys), found.counters) == (1, {"truth.bad_number": 1})
    with pytest.raises(TapscopeError, match="cannot be read: No such file"):
        truth.read(tmp_path / "none.csv", Names())


def _unpacked(path: Path) -> list[str]:
    import gzip

    return gzip.decompress(path.read_bytes()).decode().splitlines()


def _write_csv(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)


def _keys(rows: list[tuple[int, int]]) -> Keys:
    """Keys that differ in sequence number and time only."""
    block = np.array(rows, dtype=np.int64).reshape(-1, 2)
    one = np.ones(len(block), dtype=np.int64)
    return Keys(block[:, 0], one, one, one, one, block[:, 1])


def test_reused_sequence_numbers_are_matched_to_the_nearest_in_time():
    offered = _keys([(1_000, 5), (900_000_000, 5), (2_000, 6)])
    wanted = _keys([(890_000_000, 5), (1_100, 5), (2_000, 7), (10_000_000_000, 6)])
    assert truth.match(wanted, offered).tolist() == [1, 0, -1, -1]


def test_no_row_is_matched_twice():
    assert truth.match(_keys([(10, 1), (14, 1)]), _keys([(11, 1)])).tolist() == [0, -1]


def test_matching_against_a_twin():
    random = np.random.default_rng(4)
    offered = [
        (int(at), int(seq)) for at, seq in zip(random.integers(0, 9 * 10**9, 300), range(300), strict=True)
    ]
    wanted = [(at + int(random.integers(-2 * 10**9, 2 * 10**9)), seq) for at, seq in offered[::-2]]
    twin = [
        next((row for row, (t, s) in enumerate(offered) if s == seq and abs(t - at) <= truth.REACH_NS), -1)
        for at, seq in wanted
    ]
    assert truth.match(_keys(wanted), _keys(offered)).tolist() == twin
    assert -1 in twin


@pytest.mark.parametrize("base", [(0, 0, 0, 0, 0), (0, 1, 0, 0, 7), (-1, 5, 0, 80, 2**32 - 1)])
def test_rows_match_only_where_every_column_is_equal(base):
    """Columns are compared several at a time; none may be lost in that, whatever they hold."""
    others = [(*base[:at], base[at] + 1, *base[at + 1 :]) for at in range(5)]
    wanted = Keys(*np.array([(10, *row) for row in (base, *others)], dtype=np.int64).T)
    offered = Keys(*np.array([(11, *row) for row in (*others, base)], dtype=np.int64).T)
    assert truth.match(wanted, offered).tolist() == [5, 0, 1, 2, 3, 4]


def test_last_before_against_a_twin():
    random = np.random.default_rng(2)
    group_a, at_a = random.integers(-1, 5, 200), random.integers(0, 50, 200)
    group_b, at_b = random.integers(-1, 6, 300), random.integers(-5, 60, 300)
    found = last_before(group_a, at_a, group_b, at_b)
    for row in range(300):
        usable = [a for a in range(200) if group_a[a] == group_b[row] >= 0 and at_a[a] <= at_b[row]]
        best = max((at_a[a] for a in usable), default=None)
        assert (found[row] == -1) == (best is None)
        if best is not None:
            assert (group_a[found[row]], at_a[found[row]]) == (group_b[row], best)
