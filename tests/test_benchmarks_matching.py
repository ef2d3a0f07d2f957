"""The node that speed is measured on: what its calls name is heard, and tells more than times do."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
matching = runpy.run_path(str(ROOT / "benchmarks" / "matching.py"), run_name="matching")

CALLS, IN_FLIGHT = 10_000, 10


def test_with_content_every_call_is_right_and_by_time_and_class_nearly_all_are() -> None:
    with_content, by_time = (
        matching["run_stream"](CALLS, IN_FLIGHT, content, 0) for content in (True, False)
    )
    assert with_content["calls"] == by_time["calls"] >= CALLS
    assert with_content["right"] > 0.9995
    assert 0.98 < by_time["right"] < with_content["right"]
