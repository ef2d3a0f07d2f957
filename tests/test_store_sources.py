"""The register of inputs: one row for each, and for each session of a spool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tapscope.store.runfile import RunFile


def _live(spool: str, session: int, packets: int) -> dict[str, Any]:
    about = {"path": "eth1", "kind": "capture", "format": "live", "packets": packets}
    return about | {"spool": spool, "session": session}


def test_sessions_of_a_spool_are_kept_beside_each_other(tmp_path: Path) -> None:
    with RunFile.create(tmp_path / "run.db") as run:
        run.write_sources([_live("a", 0, 359), _live("a", 1, 708)])
        run.write_sources([_live("a", 1, 800), _live("b", 1, 5)])  # the second goes on, another spool begins
        packets = [(one["spool"], one["session"], one["packets"]) for one in run.sources()]
    assert packets == [("a", 0, 359), ("a", 1, 800), ("b", 1, 5)]


def test_a_file_that_is_loaded_again_is_one_source(tmp_path: Path) -> None:
    with RunFile.create(tmp_path / "run.db") as run:
        for packets in (7, 8):
            run.write_sources([{"path": "a.pcap", "kind": "capture", "packets": packets}])
        assert [one["packets"] for one in run.sources()] == [8]
