"""Makes captures with known contents (generate/*.cpp), and compares what was found in one with its truth."""

from __future__ import annotations

import ipaddress
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SOURCES = Path(__file__).resolve().parent / "generate"
KINDS = (
    "http_small",
    "http_chunked",
    "http_window",
    "http_large",
    "mysql_text",
    "mysql_prepared",
    "ajp",
    "tiers",
)

# struct TruthRow of generate/network.hpp. `request` is the row of the request that a response answers (-1
# none); `lost` has bit 0 set when the packet of the first byte is not in the capture, bit 1 when any is not.
TRUTH = np.dtype(
    [
        ("begin_ns", "<i8"),
        ("end_ns", "<i8"),
        ("request", "<i8"),
        ("client_addr", "<u4"),
        ("tcp_seq", "<u4"),
        ("wire_bytes", "<u4"),
        ("connection", "<u4"),
        ("client_port", "<u2"),
        ("server_port", "<u2"),
        ("direction", "u1"),
        ("protocol", "u1"),
        ("kind", "u1"),
        ("lost", "u1"),
    ]
)


def compiler() -> list[str]:
    """The C++ compiler and the flags of everything that the benchmark builds."""
    return [os.environ.get("CXX", "c++"), "-std=c++20", "-O3"]


def build_generator(folder: Path) -> Path:
    """Compile the generator into `folder`; CalledProcessError with the compiler's words when that fails."""
    program = folder / "generate"
    sources = sorted(SOURCES.glob("*.cpp"))
    newest = max(file.stat().st_mtime for file in SOURCES.iterdir())
    if not program.exists() or program.stat().st_mtime < newest:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([*compiler(), *map(str, sources), "-lz", "-o", str(program)], check=True)
    return program


@dataclass(frozen=True)
class Generated:
    """What a generated capture holds."""

    path: Path
    packets: int
    messages: int
    bytes: int


def generate(program: Path, kind: str, path: Path, **options: float | Path) -> Generated:
    """Write a capture; the options are those of generate/main.cpp (bytes, seed, lost, truth, ...)."""
    words = [f"{name}={value}" for name, value in options.items()]
    line = subprocess.check_output([str(program), kind, str(path), *words], text=True).split()
    return Generated(path, *(int(line[i]) for i in (1, 3, 5)))


def read_truth(path: Path) -> np.ndarray:
    """Rows of a truth file, with the fields of TRUTH."""
    return np.fromfile(path, TRUTH)


def truth_rows(tables: Any, truth: np.ndarray) -> np.ndarray:
    """Row in the truth of each message that was found, int64; -1 where no message begins at that byte.

    Messages are the same when connection (addresses and ports), direction and sequence number of the first
    byte are; a generated capture has each combination once. Raises ValueError when it was found twice.
    """
    m, c = tables.messages, tables.connections
    address = np.array([int(ipaddress.ip_address(text)) for text in tables.addresses], dtype=np.uint64)
    conn = m["conn"]
    columns = [
        (address[c["client_addr"][conn]], truth["client_addr"]),
        (c["client_port"][conn], truth["client_port"]),
        (c["server_port"][conn], truth["server_port"]),
        (m["direction"], truth["direction"]),
        (m["tcp_seq"], truth["tcp_seq"]),
    ]
    joined = [np.concatenate([np.asarray(a, np.uint64), np.asarray(b, np.uint64)]) for a, b in columns]
    found = len(conn)
    order = np.lexsort(joined)  # stable: of two equal ones the message that was found comes first
    same = np.ones(max(len(order) - 1, 0), dtype=bool)
    for column in joined:
        same &= column[order[1:]] == column[order[:-1]]
    first, second = order[:-1][same], order[1:][same]
    if np.any(second < found):
        raise ValueError("a message was found twice")
    rows = np.full(found, -1, dtype=np.int64)
    rows[first] = second - found
    return rows
