"""What something costs over the size of its input: a line per size, each measured in a process of its own."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trace_capture import machine


def print_lines(
    script: str,
    title: str,
    option: str,
    sizes: Sequence[int],
    make: Callable[[Path, int], int],
    measure: Callable[[Path], dict[str, Any]],
    head: str,
    line: Callable[[Path, int, dict[str, Any]], str],
) -> None:
    """The whole program of a benchmark whose file is `script`; `--OPTION N ...` gives other sizes.

    make    : writes the input of a size into a folder and says how large it became; not measured
    measure : figures of one run on such a folder, plain values
    line    : of the folder, what `make` said and what `measure` gave
    """
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument(f"--{option}", dest="sizes", type=int, nargs="+", default=list(sizes))
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(measure(given.one)))
        return
    print(f"machine   {machine()}")
    print(head)
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as name:
            made = make(Path(name), size)
            command = [sys.executable, script, "--one", name]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            print(line(Path(name), made, json.loads(done.stdout)), flush=True)
