"""A real capture that loses packets: what is left of it keeps its accuracy."""

from __future__ import annotations

import argparse
import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
loss = runpy.run_path(str(ROOT / "benchmarks" / "loss.py"), run_name="loss")


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
@pytest.mark.parametrize("mode", ["all", "timing"])
def test_transactions_that_lost_nothing_keep_their_accuracy(mode: str) -> None:
    options = argparse.Namespace(lost=[0.01, 0.04], evidence=[mode], seed=3)
    printed = [
        line.strip("| ").split(" | ") for line in loss["lines"](ROOT / "pcaps" / "testbed_shop", options)
    ]
    whole, *thinned = ([float(cell.replace("-", "nan")) for cell in cells[2:]] for cells in printed)
    assert len(thinned) == 2
    for share, lost, touched, edges, paths, sure_wrong, called, not_called in thinned:
        assert lost > 50 * share
        assert touched > 10
        assert edges > whole[3] - 0.4
        assert paths > whole[4] - 1.0
        assert sure_wrong < 0.3
        assert called < 2.0
        assert not_called < 70
