"""Running programs with the thread recorder in front of libc (LD_PRELOAD)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from tapscope.store.errors import ExitCode, TapscopeError

LIBRARY = "libtapscope_threads.so"
FOLDER_VARIABLE = "TAPSCOPE_THREADS_DIR"
PAUSED = "paused"
"""File in the folder of the logs that pauses recording (recorder/pause.h)."""
HEARD_S = 0.2
"""After so long every process has seen it: helpers sleep for 160 ms at most."""


def recorder_file() -> Path:
    """The recorder. TapscopeError where it was not built (it needs Linux)."""
    path = Path(str(resources.files("tapscope.validate.threads").joinpath(LIBRARY)))
    if not path.exists():
        raise TapscopeError(
            "the thread recorder is not installed",
            path=path,
            remedy="Install tapscope on Linux with glibc; the recorder is built there.",
        )
    return path


def folder_for_logs(folder: Path) -> Path:
    """Makes a folder into which every user may write: servers give up root before they serve."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK) and folder.stat().st_uid == os.geteuid():
        folder.chmod(0o1777)
    return folder.resolve()


def environment(folder: Path, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables under which a program is recorded; `given` is what it is started with otherwise."""
    before = (os.environ if given is None else given).get("LD_PRELOAD", "")
    preload = ":".join(filter(None, [str(recorder_file()), before]))
    return {"LD_PRELOAD": preload, FOLDER_VARIABLE: str(folder)}


def pause(folder: Path) -> None:
    """Leave out sends and receives from now on, in all processes that log into this folder. TapscopeError
    when the folder cannot be written."""
    try:
        (folder / PAUSED).touch()
    except OSError as error:
        raise _not_ours(folder, error) from error


def resume(folder: Path) -> None:
    """Record again. TapscopeError as in `pause`."""
    try:
        (folder / PAUSED).unlink(missing_ok=True)
    except OSError as error:
        raise _not_ours(folder, error) from error


def _not_ours(folder: Path, error: OSError) -> TapscopeError:
    return TapscopeError(
        f"recording here cannot be paused or resumed: {error.strerror}",
        path=folder,
        remedy="Name the folder given to `tapscope threads record -o`, as its owner.",
    )


def execute(folder: Path, command: Sequence[str]) -> None:
    """Replaces this process by the command, recorded. TapscopeError when it cannot be started."""
    variables = environment(folder_for_logs(folder))
    sys.stdout.flush()
    try:
        os.execvpe(command[0], list(command), {**os.environ, **variables})
    except OSError as error:
        raise TapscopeError(
            f"{command[0]} cannot be started: {error.strerror}",
            remedy="Check the command behind `--`.",
            exit_code=ExitCode.USAGE,
        ) from error
