"""Tables of a testbed's run directory, for the tests of several scenarios."""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter
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
    """A finished run and its tables."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder = folder
        self.options = options
        self.manifest: dict[str, Any] = run.run(options, folder)
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
