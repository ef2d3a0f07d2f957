"""A generated capture as the engine reads it, next to what is in it (benchmarks/capture/generated.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from generated import generate, read_truth, truth_rows

from tapscope import capture


class Read:
    """A generated capture as the engine reads it, next to what is in it."""

    def __init__(self, generator: Path, folder: Path, kind: str, **options: float) -> None:
        path, truth = folder / f"{kind}.pcap", folder / f"{kind}.truth"
        made = generate(generator, kind, path, truth=truth, **options)
        self.truth = read_truth(truth)
        self.tables = capture.read_files([path], salt=b"sixteen bytes ok")
        assert len(self.truth) == made.messages
        assert self.tables.counter("packets") == made.packets
        path.unlink()
        self.messages = self.tables.messages
        self.rows = truth_rows(self.tables, self.truth)
        paired = self.messages["request"]
        self.request = np.where(
            paired >= 0, self.rows[paired], -1
        )  # row in the truth of the request paired with


def assert_exact(read: Read) -> None:
    """Every message is there, with its times, size, kind and request, and nothing else."""
    assert len(read.rows) == len(read.truth)
    np.testing.assert_array_equal(np.sort(read.rows), np.arange(len(read.truth)))
    for column in ("begin_ns", "end_ns", "wire_bytes", "kind", "protocol"):
        np.testing.assert_array_equal(read.messages[column], read.truth[column][read.rows], err_msg=column)
    np.testing.assert_array_equal(read.request, read.truth["request"][read.rows])
    assert not read.messages["missing_bytes"].any()
