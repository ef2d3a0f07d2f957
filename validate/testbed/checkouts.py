"""Who held a pooled connection: the rule for messages on it that carry no request id."""

from __future__ import annotations

import csv
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from .pcapfile import Capture
from .requests import Request
from .streams import Run, Stream, streams

# The application logs whole microseconds, cut off; the last packet of a checkout may lie within the cut part.
_LOG_STEP_NS = 1_000


@dataclass
class Checkouts:
    """Per pooled connection (its name in the log): return times, borrow times, ids; by return time."""

    returned: dict[str, list[int]] = field(default_factory=dict)
    records: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    @classmethod
    def read(cls, *paths: Path, key: str = "thread_id") -> Checkouts:
        """Reads the checkouts.tsv of the applications that share a database; none gives no checkouts.

        key: the column that names the connection.
        """
        found: dict[str, list[tuple[int, int, str]]] = {}
        for path in paths:
            with path.open(encoding="utf-8") as file:
                for row in csv.DictReader(file, delimiter="\t"):
                    identity = "" if row["request_id"] == "-" else row["request_id"]
                    found.setdefault(row[key], []).append(
                        (int(row["return_us"]) * 1000, int(row["borrow_us"]) * 1000, identity)
                    )
        table = cls()
        for connection, rows in found.items():
            rows.sort()
            table.returned[connection] = [r[0] + _LOG_STEP_NS for r in rows]
            table.records[connection] = [(r[1], r[2]) for r in rows]
        return table

    def holder(self, connection: str, ts_ns: int) -> str:
        """Request that held a connection at a moment, or "".

        Holders of one connection return it one after the other, so the first return at or after the moment is
        the holder's, if it had begun to borrow by then (waiting for the previous holder counts as borrowing).
        """
        returned = self.returned.get(connection)
        if returned is None:
            return ""
        n = bisect_left(returned, ts_ns)
        if n == len(returned):
            return ""
        borrowed, identity = self.records[connection][n]
        return identity if borrowed <= ts_ns else ""


def thread_ids(capture: Capture, port: int) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """(client address, port) -> [(time of the greeting, MariaDB thread id)], from the greetings."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for stream in streams(capture):
        if stream.flow.sport != port:
            continue
        runs = stream.runs(capture)
        if not runs or runs[0].after_gap or len(runs[0].data) < 12 or runs[0].data[3:5] != b"\x00\x0a":
            continue
        data = runs[0].data
        end = data.find(b"\x00", 5)
        _, _, client, client_port = stream.flow.text()
        thread = int.from_bytes(data[end + 1 : end + 5], "little")
        found.setdefault((client, client_port), []).append((runs[0].origin(0)[0], thread))
    for times in found.values():
        times.sort()
    return found


class MysqlCheckouts:
    """Holders of the MySQL connections of a capture, by the thread id that the server gave each."""

    def __init__(
        self, capture: Capture, port: int, checkouts: Checkouts, known: dict[tuple[str, int], int]
    ) -> None:
        """known: (client address, port) -> thread id, for connections whose greeting was not captured."""
        self._greeted = thread_ids(capture, port)
        self._checkouts = checkouts
        self._known = known

    def _thread_of(self, stream: Stream, ts_ns: int) -> int:
        client, port, _, _ = stream.flow.text()
        times = self._greeted.get((client, port), [])
        n = bisect_right(times, (ts_ns, 1 << 62))
        return times[n - 1][1] if n else self._known.get((client, port), -1)

    def holder(self, stream: Stream, run: Run, request: Request, ts_ns: int) -> str:
        """Request that held the connection when the message was sent, or ""."""
        return self._checkouts.holder(str(self._thread_of(stream, ts_ns)), ts_ns)

    def knows(self) -> bool:
        """Whether there is a checkout log."""
        return bool(self._checkouts.returned)


class WireCheckouts:
    """Holders of connections that the log names as the wire does: ADDRESS:PORT>PORT, the client's, then the
    server's port."""

    def __init__(self, checkouts: Checkouts) -> None:
        self._checkouts = checkouts

    def holder(self, stream: Stream, run: Run, request: Request, ts_ns: int) -> str:
        """Request that held the connection when the message was sent, or ""."""
        client, port, _, server_port = stream.flow.text()
        return self._checkouts.holder(f"{client}:{port}>{server_port}", ts_ns)

    def knows(self) -> bool:
        """Whether there is a checkout log."""
        return bool(self._checkouts.returned)
