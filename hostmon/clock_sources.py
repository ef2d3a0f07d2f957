"""What a host counts that the tap sees too: bytes to and from it, and connections opened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.hostmon.clock_offset import Growth
from tapscope.hostmon.samples import Float, Int
from tapscope.store.codes import Direction
from tapscope.store.dynamic import DynamicTable
from tapscope.store.runfile import RunFile

LOOPBACK = "lo"
FRAME_BYTES = 66
"""Ethernet, IP and TCP headers of a message's packet: small messages count by their packets."""

CELLS_PER_SAMPLE = 64
MOST_CELLS = 4_000_000
"""The tap's totals are kept in cells, so that memory does not grow with the messages."""

BATCH = 1_000_000


@dataclass(frozen=True)
class Source:
    """A thing that both count. `columns` are the names that tools give the rates to and from the host."""

    method: str
    columns: tuple[tuple[str, str], ...]


NETWORK = Source(
    "network bytes",
    (
        ("rx_bytes_per_s", "tx_bytes_per_s"),  # Collectl raw
        ("net_rxkbtot", "net_txkbtot"),  # Collectl plot
        ("rxkb", "txkb"),  # sadf JSON
        ("rxkb_s", "txkb_s"),  # sadf CSV, sar
    ),
)
CONNECTIONS = Source(
    "connections opened",
    (
        ("tcp_passiveopens_per_s", "tcp_activeopens_per_s"),
        ("passive", "active"),
        ("passive_s", "active_s"),
    ),
)
SOURCES = (NETWORK, CONNECTIONS)


@dataclass(frozen=True)
class Counted:
    """Samples of a host in order of time (its clock), and what grew in each: to the host, from the host."""

    begin_ns: Int
    end_ns: Int
    grown: list[Float]


def counted(run: RunFile, host: str, source: Source) -> Counted | None:
    """A host's counters of a source, interfaces but loopback added up; None without such a table.

    Of several tables the one with the most samples is taken.
    """
    best: Counted | None = None
    for table in run.dynamic_tables():
        names = {column.name for column in table.columns}
        pair = next((pair for pair in source.columns if names.issuperset(pair)), None)
        if table.host == host and pair is not None:
            made = _samples(run, table, pair)
            if best is None or len(made.end_ns) > len(best.end_ns):
                best = made
    return best


def _samples(run: RunFile, table: DynamicTable, pair: tuple[str, str]) -> Counted:
    keys = [column.name for column in table.columns if column.name in ("interface", "iface")]
    got = run.read_dynamic(table.table, ["begin_ns", "end_ns", *pair, *keys])
    begin, end = got["begin_ns"].astype(np.int64), got["end_ns"].astype(np.int64)
    usable = (begin >= 0) & (end > begin) & np.isfinite(got[pair[0]]) & np.isfinite(got[pair[1]])
    for key in keys:
        usable &= got[key].astype(str) != LOOPBACK
    at, first, row = np.unique(end[usable], return_index=True, return_inverse=True)
    began = begin[usable][first]
    length = (at - began) / 1e9
    grown = [np.bincount(row, got[name][usable], len(at)) * length for name in pair]
    return Counted(began, at, grown)


def seen_by_tap(run: RunFile, addresses: set[str], source: Source, counters: Counted) -> list[Growth]:
    """The same as the tap saw it: totals to and from the addresses, at the tap's times."""
    own = np.array([text in addresses for text in run.addresses()], dtype=np.bool_)
    ends = ["client_addr", "server_addr", "first_ns", "last_ns", "syn_ns"]
    connections = run.read_table("connections", ends)
    client, server = own[connections["client_addr"]], own[connections["server_addr"]]
    if not (client.any() or server.any()):
        return [Growth(np.zeros(0, np.int64), np.zeros(1)), Growth(np.zeros(0, np.int64), np.zeros(1))]
    interval = int(np.median(counters.end_ns - counters.begin_ns)) if len(counters.end_ns) else 1
    first = int(connections["first_ns"][client | server].min())
    last = int(connections["last_ns"][client | server].max())
    cell = max(interval // CELLS_PER_SAMPLE, (last - first) // MOST_CELLS, 1)
    cells = Cells(first, cell, (last - first) // cell + 1)
    to_host, from_host = np.zeros(cells.count), np.zeros(cells.count)
    if source is CONNECTIONS:
        opened = connections["syn_ns"] >= 0
        for total, here in ((to_host, server), (from_host, client)):
            at = connections["syn_ns"][opened & here]
            cells.add(total, at, np.ones(len(at)))
    else:
        _add_messages(run, cells, client, server, to_host, from_host)
    return [cells.growth(to_host), cells.growth(from_host)]


@dataclass(frozen=True)
class Cells:
    """Short windows of one width in which amounts are added up."""

    first_ns: int
    width_ns: int
    count: int

    def add(self, total: Float, at_ns: Int, amount: Float) -> None:
        """Add amounts at times; those outside are left out."""
        cell = (at_ns - self.first_ns) // self.width_ns
        inside = (cell >= 0) & (cell < self.count)
        total += np.bincount(cell[inside], amount[inside], self.count)

    def growth(self, total: Float) -> Growth:
        """The amounts as a running total, each in the middle of its cell."""
        at = self.first_ns + np.arange(self.count, dtype=np.int64) * self.width_ns + self.width_ns // 2
        return Growth(at, np.concatenate([[0.0], np.cumsum(total)]))


def _add_messages(
    run: RunFile,
    cells: Cells,
    client: NDArray[np.bool_],
    server: NDArray[np.bool_],
    to_host: Float,
    from_host: Float,
) -> None:
    """Bytes of every message, half at its first and half at its last packet."""
    columns = ["conn", "direction", "begin_ns", "end_ns", "wire_bytes"]
    for low in range(0, run.count("messages"), BATCH):
        rows = run.read_table("messages", columns, "id >= ? AND id < ?", (low, low + BATCH))
        up = rows["direction"] == Direction.TO_SERVER
        of_client, of_server = client[rows["conn"]], server[rows["conn"]]
        half = rows["wire_bytes"] / 2.0 + FRAME_BYTES / 2.0
        for total, here in (
            (to_host, np.where(up, of_server, of_client)),
            (from_host, np.where(up, of_client, of_server)),
        ):
            for at in ("begin_ns", "end_ns"):
                cells.add(total, rows[at][here], half[here])
