"""What studies and sweeps share: the tool's own commands run one after the other, each done once.

Every step is a command line that anybody can type, in a process of its own (its memory goes with it), with
its output in a file beside its result. A step whose result is there is not repeated, so that a campaign that
was broken off goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile

Say = Callable[[str], None]


def keep_plan(folder: Path, plan: dict[str, Any], name: str) -> None:
    """Write down what this folder is for, or check that it is for the same; TapscopeError when it is not."""
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        if any(folder.iterdir()):
            raise TapscopeError("the directory is not empty", path=folder, remedy="Name a new one with -o.")
        path.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TapscopeError(
            f"this is no JSON: {error}", path=path, remedy="Begin in a new folder."
        ) from error
    if before != plan:
        raise TapscopeError(
            f"this folder holds another campaign: {json.dumps(before)}",
            path=path,
            remedy="Repeat its options to go on with it, or name a new folder with -o.",
            exit_code=ExitCode.USAGE,
        )


def testbed_run(words: Sequence[str], out: Path, lock: Path | None, say: Say) -> None:
    """One run of the testbed into `out`. lock: a file that is held locked meanwhile, so that other
    measurements on this machine wait."""
    if (out / "manifest.json").exists():
        return
    if out.exists():  # broken off: the manifest is written last
        shutil.rmtree(out)
    with _alone(lock):
        _tool(["testbed", "run", *words, "-o", str(out)], out.with_suffix(".run.log"), say)


def traced(folder: Path, say: Say, *, again: bool = False, match: bool = True) -> Path:
    """Run file of a run directory, beside it; without `match` its calls have no parents."""
    path = folder.with_suffix(".db")
    if again or not _complete(path):
        words = ["trace", str(folder), "-o", str(path), "--force", *([] if match else ["--no-match"])]
        _tool(words, folder.with_suffix(".trace.log"), say)
    return path


def validated(folder: Path, say: Say) -> None:
    """Compares the run file beside a run directory with the directory's event logs; the result is stored in
    it, whatever the verdict. Where there are logs of the servers' threads it is compared with these before,
    and the result left beside it."""
    words = ["validate", str(folder.with_suffix(".db"))]
    if (folder / "threads").is_dir():
        _tool([*words, "--threads", str(folder), "--json"], folder.with_suffix(".threads.json"), say)
    _tool([*words, "--events", str(folder)], folder.with_suffix(".validate.log"), say)


def _complete(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with RunFile.open(path) as run:
            return bool(run.meta("complete", False))
    except TapscopeError:
        return False


@contextlib.contextmanager
def _alone(lock: Path | None) -> Iterator[None]:
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


ACCEPTED = (ExitCode.DONE, ExitCode.LOW_QUALITY, ExitCode.VALIDATION_FAILED)
"""A lossy capture and a failed validation are results; the tables name them."""


def _tool(words: Sequence[str], log: Path, say: Say) -> None:
    """Run one command of the tool; what it prints goes to `log`. TapscopeError when it fails."""
    say(shlex.join(["tapscope", *words]))
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tapscope", *words], stdout=file, stderr=subprocess.STDOUT
        )
        try:
            status = process.wait()
        except BaseException:  # Ctrl-C, SIGTERM: the run tears down what it started
            process.terminate()
            process.wait()
            raise
    if status not in ACCEPTED:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise TapscopeError(
            f"`tapscope {shlex.join(words[:2])}` ended with status {status}: {' '.join(last)}",
            path=log,
            remedy="Mend what it says and give the same command again: what is done is kept.",
        )
