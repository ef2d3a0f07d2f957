"""A program that is started without standard streams, as daemons are, works all the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli_program import COMMAND, environment

from tapscope.store.errors import ExitCode

CAPTURE = Path(__file__).resolve().parent.parent / "pcaps" / "http_ajp_mysql_groundtruth.pcap"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_capture_is_traced_without_standard_streams(closed: str, tmp_path: Path) -> None:
    words = [*COMMAND, "trace", str(CAPTURE), "-o", str(tmp_path / "run.db")]
    script = f'"$@" {closed}'
    done = subprocess.run(["sh", "-c", script, "sh", *words], env=environment(), timeout=120, check=False)
    assert done.returncode == ExitCode.DONE
    # Nothing but the run was written into it.
    assert (tmp_path / "run.db").read_bytes().startswith(b"SQLite format 3")
