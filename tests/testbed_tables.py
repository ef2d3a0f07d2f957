"""Tables of a testbed's run directory, for the tests of several scenarios."""

from __future__ import annotations

import csv
import gzip
import io
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from tapscope.validate.testbed import run
from tapscope.validate.testbed.options import Options
from tapscope.validate.testbed.truth import IDENTITY


def rows(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter, quoting=quoting))


class Finished:
    """A finished run and its tables, with at least `requests` requests.

    How many are asked in a second is a matter of what else the machine does. Where they were fewer, the run
    is made again with three times the time, at most twice; then what it has is what there is to test.
    """

    def __init__(self, folder: Path, options: Options, requests: int = 60) -> None:
        self.folder = folder
        self.options = options
        self.manifest: dict[str, Any] = run.run(options, folder)
        self.asked = rows(folder / "users" / "requests.csv")
        while len(self.asked) < requests and self.options.seconds < 9 * options.seconds:
            shutil.rmtree(folder)
            self.options = replace(self.options, seconds=3 * self.options.seconds)
            self.manifest = run.run(self.options, folder)
            self.asked = rows(folder / "users" / "requests.csv")
        self.ids = {r["request_id"] for r in self.asked} - {""}
        self.calls = rows(folder / "truth" / "calls.csv.gz")

    def of(self, protocol: str) -> list[dict[str, str]]:
        return [c for c in self.calls if c["protocol"] == protocol]

    def kinds(self, protocol: str, how: str) -> Counter[str]:
        return Counter(c["kind"] for c in self.of(protocol) if c["how"] == how)

    def ids_in_capture(self) -> list[str]:
        raw = (self.folder / "capture" / "tap.pcap").read_bytes()
        return sorted({found.decode() for found in IDENTITY.findall(raw)} & self.ids)
