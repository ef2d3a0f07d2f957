"""`trace --max-wrong-joins`: what is too unsure is not linked, and the user is told what was, or could be."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import span_sets
from simulator import simulate

from tapscope.cli.main import run
from tapscope.store.codes import LinkKind
from tapscope.store.errors import ExitCode
from tapscope.store.runfile import RunFile


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A span table in which times alone leave much open, and the true parent of every message."""
    world = simulate(seed=31, users=120, seconds=2.0)
    path = span_sets.write(tmp_path_factory.mktemp("crowded") / "spans.csv", span_sets.rows(world))
    return path, {row["message_id"]: row["true_parent_id"] for row in span_sets.truth(world)}


def _links(path: Path, true: dict[str, str]) -> tuple[float, float, float]:
    """Of the links: the least probability, the share that is expected to be wrong, and the one that is."""
    with RunFile.open(path) as stored:
        links = stored.read_table("links")
        ids = [name for (name,) in stored.sql("SELECT message_id FROM span ORDER BY call")]
    linked = links["kind"] == LinkKind.LINKED
    wrong = [true[ids[c]] != ids[p] for c, p in zip(links["child"], links["parent"], strict=True) if p >= 0]
    probability = links["probability"][linked]
    return float(probability.min()), float(1 - probability.mean()), float(np.mean(wrong))


def test_as_few_as_asked_are_expected_wrong(crowded, tmp_path, capsys):
    spans, true = crowded
    asked = ["trace", "--spans", str(spans), "--no-self-check", "-o"]
    assert run([*asked, str(tmp_path / "all.db")]) == ExitCode.DONE
    hint = re.search(
        r"Expected wrong: ([0-9.]+) % of links; --max-wrong-joins 0.5% would refuse ([0-9.]+) % of them, "
        r"those below ([0-9.]+)",
        capsys.readouterr().out,
    )
    assert hint is not None
    assert run([*asked, str(tmp_path / "few.db"), "--max-wrong-joins", "0.5%"]) == ExitCode.DONE
    told = re.search(r"Refused: ([0-9.]+) % of links, those below ([0-9.]+)", capsys.readouterr().out)
    assert told is not None
    assert told.group(1) == hint.group(2)

    least, expected, wrong = _links(tmp_path / "few.db", true)
    _, before, wrong_before = _links(tmp_path / "all.db", true)
    assert least >= float(hint.group(3)) - 0.001
    assert expected <= 0.005 < before
    assert wrong < wrong_before / 4
    with RunFile.open(tmp_path / "few.db") as stored:
        assert stored.meta("options")["max_wrong_joins"] == 0.005
        links = stored.read_table("links")
    refused = (links["kind"] == LinkKind.UNKNOWN) & (links["runner_up"] >= 0)
    assert refused.any()
    assert np.all(links["parent"][refused] == -1)


def test_a_share_of_one_refuses_nothing_and_says_nothing(tmp_path, capsys):
    spans = span_sets.write(tmp_path / "spans.csv", span_sets.rows(simulate(seed=2, users=3, seconds=1.0)))
    given = ["trace", "--spans", str(spans), "--no-self-check", "-o", str(tmp_path / "run.db")]
    assert run([*given, "--max-wrong-joins", "1"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "Refused" not in out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--max-wrong-joins", "101%"], "is not in the range"),
        (["--max-wrong-joins", "nan%"], "is no number"),
        (["--max-wrong-joins", "few"], "is not a valid"),
        (["--max-wrong-joins", "0.5%", "--follow"], "give --min-probability"),
    ],
)
def test_what_makes_no_sense_is_refused(more, said, tmp_path, capsys):
    capture = Path(__file__).parent.parent / "pcaps" / "http_ajp_mysql_groundtruth.pcap"
    assert run(["trace", str(capture), "-o", str(tmp_path / "run.db"), *more]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run.db").exists()
