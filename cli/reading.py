"""Run files that commands read: what is not whole is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tapscope.cli.output import note, utc
from tapscope.store.runfile import RunFile


@contextmanager
def opened(path: str | Path) -> Iterator[RunFile]:
    """A run file to read from. Of one that is not complete, stderr says so."""
    with RunFile.open(path) as run:
        if not run.meta("complete", False):
            note(unfinished(run.meta("stage", "none"), run.meta("following", {})))
        yield run


def unfinished(stage: str, following: Mapping[str, Any]) -> str:
    """Why a run is not complete, by the last stage that was done."""
    if stage != "follow":
        why = "This run is not complete: it was interrupted or ran out of disk. The last stage done was:"
        return f"{why} {stage}."
    until = following.get("until_ns", -1)
    return (
        f"This run is still being followed, or was killed meanwhile: transactions until {utc(until)} are in "
        "it, queue lengths come at the end."
    )
