"""The report as a file: what is in it is what the run file holds, it is safe, and it stays small."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator import APP, WEB, Simulation, simulate

from tapscope.report import encode, health, html, strips, tiers, transactions, words
from tapscope.report.run import Run, read
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.store.tables import TABLES, empty


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(seed=7, users=30, seconds=4.0, lose=2)


@pytest.fixture(scope="module")
def run_path(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "run.db"
    simulation.save(path)
    return path


def page_of(path: Path) -> str:
    with RunFile.open(path) as file:
        return html.page(read(file))


class Page(HTMLParser):
    """Elements of a page and the text of its scripts, as a browser's parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data


def decoded(column: dict[str, Any]) -> np.ndarray:
    """The other half of encode.column, as assets/decode.js has it."""
    values, total = [], 0
    for step in column["delta"]:
        total += step or 0
        values.append(np.nan if step is None else total / column["scale"])
    return np.array(values)


@given(
    st.lists(st.one_of(st.floats(-1e9, 1e9), st.just(float("nan")), st.just(float("inf"))), max_size=50),
    st.sampled_from([1.0, 10.0, 1000.0]),
)
def test_coded_columns_come_back_within_half_a_step(values: list[float], scale: float) -> None:
    given_values = np.array(values, dtype=float)
    expected = np.where(np.isfinite(given_values), given_values, np.nan)
    back = decoded(json.loads(encode.script_json(encode.column(given_values, scale))))
    np.testing.assert_allclose(back, expected, atol=0.5000001 / scale, rtol=1e-9, equal_nan=True)


@given(st.text())
def test_json_for_a_script_has_no_markup_and_the_same_value(text: str) -> None:
    coded = encode.script_json({text: [text]})
    assert not set("<>&\u2028\u2029") & set(coded)
    assert json.loads(coded) == {text: [text]}


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), min_size=1, max_size=25))
def test_concurrent_counts_every_other_transaction_that_overlaps(spans: list[tuple[int, int]]) -> None:
    begin = np.array([at for at, _ in spans], dtype=np.int64)
    end = begin + 1 + np.array([length for _, length in spans], dtype=np.int64)
    expected = [
        sum(begin[j] < end[i] and end[j] > begin[i] for j in range(len(spans)) if j != i)
        for i in range(len(spans))
    ]
    assert transactions.concurrent(begin, end, begin, end).tolist() == expected


def test_chosen_transactions_are_the_slowest_and_some_of_every_slice_and_bucket() -> None:
    generator = np.random.default_rng(1)
    begin = np.sort(generator.integers(0, 10**11, 20_000))
    stay = (generator.lognormal(2, 1, 20_000) * 1e6).astype(np.int64)
    bucket, edges = transactions.buckets(stay)
    chosen = transactions.choose(begin, stay, bucket)
    slowest = np.sort(stay)[::-1]
    np.testing.assert_array_equal(stay[chosen][: transactions.SLOWEST], slowest[: transactions.SLOWEST])
    assert (np.diff(stay[chosen]) <= 0).all()
    for each in np.unique(bucket):
        assert np.isin(stay[bucket == each].max(), stay[chosen])
    slices = (begin - begin.min()) * transactions.SLICES // (begin.max() - begin.min() + 1)
    for each in range(transactions.SLICES):
        best = np.sort(stay[slices == each])[-transactions.PER_SLICE :]
        assert np.isin(best, stay[chosen]).all()
    assert ((stay >= edges[bucket] * 0.999999) & (stay <= edges[bucket + 1] * 1.000001)).all()


def test_tier_figures_equal_the_simulation(run_path: Path, simulation: Simulation) -> None:
    with RunFile.open(run_path) as file:
        figures = tiers.figures(read(file))
    assert [each.tier.node for each in figures] == [1, 2, 3]
    calls = simulation.tables["calls"]
    for each in figures:
        mine = (calls["server_node"] == each.tier.node) & (calls["depart_ns"] >= 0)
        stay = (calls["depart_ns"] - calls["arrive_ns"])[mine]
        assert each.mean_ns == pytest.approx(stay.mean())
        assert each.p99_ns == pytest.approx(np.percentile(stay, 99))
        assert each.queue_mean == pytest.approx(stay.sum() / 4e9, rel=0.01)
        loads = simulation.tables["loads"]
        assert each.queue_max == loads["max"][loads["node"] == each.tier.node].max()
    assert [each.root for each in figures] == [1, 0, 0]


def test_long_runs_are_merged_without_losing_a_peak(
    run_path: Path, simulation: Simulation, monkeypatch: Any
) -> None:
    monkeypatch.setattr(strips, "MAX_WINDOWS", 20)
    with RunFile.open(run_path) as file:
        made = {each["id"]: each for each in strips.strips(read(file))}
    loads = {n: v[simulation.tables["loads"]["node"] == APP] for n, v in simulation.tables["loads"].items()}
    series = {each["label"]: decoded(each["y"]) for each in made[f"queue-{APP}"]["series"]}
    assert len(series["tap"]) <= 21
    assert series["max"].max() == loads["max"].max()
    assert series["tap"].mean() == pytest.approx(loads["load"].mean(), rel=0.01)


EVIL = "GET /</script><img src=x onerror=alert(1)>{{data}}'\"&lt;<!--"


@pytest.fixture
def evil(tmp_path: Path) -> str:
    simulation = simulate(seed=3, users=8, seconds=1.5)
    simulation.classes = [(protocol, EVIL) for protocol, _ in simulation.classes]
    simulation.addresses = [f"{EVIL}{i}" for i in range(4)]
    simulation.counters.append((f"http.{EVIL}", 3, EVIL))
    simulation.sources[0] |= {"path": EVIL, "format": EVIL}
    path = tmp_path / "<img src=x>.db"
    simulation.save(path)
    with RunFile.open(path, write=True) as run:
        run.write_node_names([EVIL] * 4)
        run.write_columns(
            "agreement",
            {"tier": [EVIL], "subject": [EVIL], "measure": [EVIL], "value": [1.0], "unit": [EVIL]},
        )
        run.set_meta("validation", {"verdict": EVIL})
        run.set_meta("options", {"evidence": EVIL})
    return page_of(path)


def test_no_text_of_a_run_becomes_markup(evil: str) -> None:
    parsed = Page(evil)
    assert [name for name, _ in parsed.elements].count("script") == 3
    assert "img" not in {name for name, _ in parsed.elements}
    handlers = [key for _, attributes in parsed.elements for key in attributes if key.startswith("on")]
    assert handlers == []
    assert EVIL in json.loads(parsed.scripts[0])["transactions"]["class"]
    assert "{{" not in re.sub(r"(?s)<script.*?</script>", "", evil).replace("{{data}}", "")


def test_policy_names_exactly_the_scripts_of_the_page(run_path: Path) -> None:
    parsed = Page(page_of(run_path))
    policy = next(
        a["content"] for name, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    directives = dict(each.strip().split(" ", 1) for each in policy.split(";"))
    hashes = {
        "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
        for text in parsed.scripts[1:]
    }
    assert set(directives["script-src"].split()) == hashes
    assert directives["default-src"] == "'none'"
    assert directives["connect-src"] == "'none'"


def test_page_refers_to_nothing_outside_of_itself(run_path: Path) -> None:
    for name, attributes in Page(page_of(run_path)).elements:
        for key in ("src", "href", "srcset", "action", "data"):
            value = attributes.get(key)
            assert value is None or value.startswith(("#", "data:")), (name, key, value)


def findings_of(simulation: Simulation, path: Path) -> tuple[int, str]:
    simulation.save(path)
    with RunFile.open(path) as file:
        found = health.findings(read(file))
    return health.verdict(found), " ".join(f"{each.what} {each.why}" for each in found)


def test_whole_capture_is_green(tmp_path: Path) -> None:
    level, text = findings_of(simulate(seed=1, users=10, seconds=1.0), tmp_path / "run.db")
    assert level == health.GREEN
    assert "no byte is missing" in text


def test_few_lost_responses_are_amber_and_named(tmp_path: Path) -> None:
    level, text = findings_of(simulate(seed=1, users=20, seconds=2.0, lose=2), tmp_path / "run.db")
    assert level == health.AMBER
    assert "2 calls lost the response" in text


def test_many_lost_responses_are_red(tmp_path: Path) -> None:
    simulation = simulate(seed=1, users=10, seconds=1.0, lose=30)
    assert findings_of(simulation, tmp_path / "run.db")[0] == health.RED


@pytest.mark.parametrize(
    ("source", "words_in_it"),
    [
        ({"drops": 500}, "500 packets dropped by the capturing host"),
        ({"truncated_packets": 400}, "400 packets cut by the snap length"),
    ],
)
def test_losses_of_the_capturing_host_are_named(
    tmp_path: Path, source: dict[str, int], words_in_it: str
) -> None:
    simulation = simulate(seed=1, users=10, seconds=1.0)
    simulation.sources[0] |= source
    level, text = findings_of(simulation, tmp_path / "run.db")
    assert level == health.RED
    assert words_in_it in text


def test_run_that_stopped_half_way_is_reported_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with RunFile.create(path) as run:
        run.set_meta("stage", "read")
    text = page_of(path)
    assert "Tracing did not finish" in text
    assert "The capture holds no packets" in text
    assert 'data-level="bad"' in text


def test_run_without_calls_says_what_was_seen_instead(tmp_path: Path) -> None:
    simulation = simulate(seed=1, users=5, seconds=1.0)
    for name in TABLES:
        if name != "connections":
            simulation.tables[name] = empty(name)
    simulation.tables["nodes"] = simulate(seed=1, users=1, seconds=0.1).tables["nodes"]
    simulation.save(tmp_path / "run.db")
    assert "The capture holds no calls" in page_of(tmp_path / "run.db")


def test_report_is_replaced_whole_or_not_at_all(run_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("before")
    html.write(run_path, out)
    assert out.read_text().startswith("<!doctype html>")
    with pytest.raises(TapscopeError, match="its folder does not exist"):
        html.write(run_path, tmp_path / "no" / "such" / "folder.html")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_page_grows_by_less_than_thirty_bytes_a_call(
    run_path: Path, simulation: Simulation, tmp_path: Path
) -> None:
    """A million calls must stay under 30 MB; the waterfalls are bounded, the strips grow with time only."""
    longer = simulate(seed=7, users=30, seconds=24.0)
    longer.save(tmp_path / "longer.db")
    added = len(longer.tables["calls"]["conn"]) - len(simulation.tables["calls"]["conn"])
    assert added > 8_000
    assert len(page_of(tmp_path / "longer.db")) - len(page_of(run_path)) < 30 * added


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0\u00a0%"),
        (1, 10**6, "< 0.01\u00a0%"),
        (10**6 - 1, 10**6, "> 99.99\u00a0%"),
        (10, 10, "100\u00a0%"),
    ],
)
def test_shares_never_round_to_nothing_or_all(part: int, whole: int, text: str) -> None:
    assert words.share(part, whole) == text


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (0, "0 ns"),
        (1_500, "1.50 µs"),
        (12_345_678, "12.3 ms"),
        (2e9, "2.00 s"),
        (3_725e9, "1 h 02 min 05 s"),
        (-1, "–"),
    ],
)
def test_durations_carry_their_unit(value_ns: float, text: str) -> None:
    assert words.duration(value_ns) == text


def test_slow_calls_stand_at_their_departure_and_above_the_threshold(
    run_path: Path, simulation: Simulation
) -> None:
    with RunFile.open(run_path) as file:
        run: Run = read(file)
        entry = next(tier for tier in run.tiers if tier.node == WEB)
        at, stay, threshold, total = strips.slow_calls(run, entry)
    assert total == len(at)
    assert (stay >= threshold).all()
    assert threshold >= 100_000_000
    assert np.isin(at, simulation.tables["calls"]["depart_ns"]).all()


def test_packets_without_calls_are_no_loss_and_unknown_ones_are(tmp_path: Path) -> None:
    simulation = simulate(seed=1, users=20, seconds=2.0)
    simulation.counters.append(("decode.arp", 6, "packets"))
    assert findings_of(simulation, tmp_path / "arp.db")[0] == health.GREEN
    simulation.counters.append(("decode.macsec", 6, "packets"))
    level, text = findings_of(simulation, tmp_path / "macsec.db")
    assert level == health.AMBER
    assert "6 packets could not be decoded" in text


def test_verdict_reasons_and_figures_of_a_validation_are_shown(run_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    shutil.copy(run_path, path)
    edges = {"pair": "AJP->MYSQL", "edges": 200, "right": 190, "wrong": 8, "unlinked": 2}
    with RunFile.open(path, write=True) as run:
        columns = {"tier": ["app"], "subject": ["concurrent"], "measure": ["pearson_r"], "value": [0.98765]}
        run.write_columns("agreement", columns)
        paths = {"edges": [edges], "paths_correct": 45, "paths_exist": 50, "paths_reported": 60}
        run.set_meta("validation", {"verdict": "failed", "failures": ["app: r is low"], "paths": paths})
    text = page_of(path)
    for shown in (
        "Tap and event monitors: failed",
        "app: r is low",
        "0.98765",
        "app (10.77.0.12)",
        "AJP → MYSQL",
    ):
        assert shown in text
    for part in ("95.0\u00a0%", "4.00\u00a0%", "1.00\u00a0%", "90.0\u00a0%", "25.0\u00a0%"):
        assert part in text
