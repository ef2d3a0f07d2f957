"""Without the optional packages everything else works, and what needs them says which to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "pcaps/http_ajp_mysql_groundtruth.pcap"
WITHOUT_EXTRAS = (
    "import sys; sys.modules['plotly'] = sys.modules['matplotlib'] = None; "
    "from tapscope.cli.main import run; sys.exit(run(sys.argv[1:]))"
)


def tapscope(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in an interpreter that has neither plotly nor matplotlib."""
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("extras") / "run.db"
    traced = tapscope("trace", SAMPLE, "-o", path)
    assert traced.returncode == 0, traced.stderr
    return path


def test_the_report_names_the_extra_that_it_needs(run_file: Path) -> None:
    done = tapscope("report", run_file, "-o", run_file.with_suffix(".html"))
    assert done.returncode == 1
    assert "pip install 'tapscope[report]'" in done.stderr


def test_a_plot_of_a_validation_names_the_extra_that_it_needs(run_file: Path) -> None:
    logs = SAMPLE.with_suffix(".logs")
    done = tapscope("validate", run_file, "--events", logs, "--plot", run_file.with_suffix(".html"))
    assert done.returncode == 1
    assert "pip install 'tapscope[report]'" in done.stderr
    assert "bug" not in done.stderr


def test_a_sweep_names_the_extra_that_its_figures_need_before_it_runs_anything(tmp_path: Path) -> None:
    done = tapscope("testbed", "sweep", "--users", "5", "-o", tmp_path / "sweep")
    assert done.returncode == 1
    assert "pip install 'tapscope[figures]'" in done.stderr
    assert not (tmp_path / "sweep").exists()


def test_validation_without_a_plot_needs_no_extra(run_file: Path) -> None:
    done = tapscope("validate", run_file, "--events", SAMPLE.with_suffix(".logs"))
    assert "plotly" not in done.stderr
    assert "Queue length" in done.stdout
