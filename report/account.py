"""What a tap lost, and where, from the wire to the messages: the lines that `tapscope stats` shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tapscope.capture.accounting import Account, account
from tapscope.report import losses
from tapscope.store.codes import Protocol, tap_point_text
from tapscope.store.runfile import RunFile

_DROPS = (
    ("dropped_by_interface", "Dropped by the network card or its driver"),
    ("dropped_by_kernel", "Dropped in the kernel's buffer: larger with --buffer-mb"),
    ("dropped_by_queue", "Dropped by tapscope, which could not keep up"),
)

_CONNECTION_SUMS = ("bytes", "missing", "unparsed")


@dataclass(frozen=True)
class Line:
    """One line of the account; None where a unit does not apply or a recorder did not say."""

    stage: str
    what: str
    packets: int | None
    bytes: int | None


def lines(run: RunFile) -> tuple[list[Line], Account]:
    """The account of a run, in the order in which a packet meets the stages."""
    counters = run.counters()
    total = account(
        run.read_table("connections"),
        run.read_table("messages", ["conn", "direction", "wire_bytes", "missing_bytes"]),
        counters,
    )
    captures = [source for source in run.sources() if source["kind"] == "capture"]
    recorded = run.meta("manifest", {}).get("capture", {})
    if captures and isinstance(recorded, dict):  # a run directory says what its recorder dropped
        captures[0] = {key: recorded[key] for key, _ in _DROPS if key in recorded} | captures[0]
    return list(_lines(captures, counters, total)), total


def _lines(
    captures: list[dict[str, Any]], counters: list[tuple[str, int, str]], total: Account
) -> Iterator[Line]:
    for key, what in _DROPS:
        told = [int(source[key]) for source in captures if source.get(key) is not None]
        if told or key == "dropped_by_kernel":
            yield Line("before the tap", what if told else f"{what} (not recorded)", *_sum(told))
    yield Line(
        "captured",
        "Packets captured",
        sum(int(source.get("packets") or 0) for source in captures),
        sum(int(source.get("bytes") or 0) for source in captures),
    )
    cut = sum(int(source.get("truncated_packets") or 0) for source in captures)
    if cut:
        yield Line("captured", "Packets cut off by the snap length", cut, None)
    for name, value, unit in counters:
        if name.startswith("decode.") and unit in ("packets", "bytes") and value:
            packets, size = (value, None) if unit == "packets" else (None, value)
            yield Line("not followed", losses.words(name), packets, size)
    yield Line("TCP payload", "Bytes in TCP segments", _value(counters, "tcp.segments"), total.payload)
    for name, value in total.discarded.items():
        yield Line("TCP payload", losses.words(name), None, value)
    yield Line("streams", "In messages", None, total.in_messages)
    for name, value in total.outside.items():
        yield Line("streams", losses.words(name), None, value)
    for name, value in total.missing.items():
        yield Line("never seen", losses.words(name), None, value)


def _sum(told: list[int]) -> tuple[int | None, None]:
    return (sum(told) if told else None), None


def _value(counters: list[tuple[str, int, str]], wanted: str) -> int:
    return next((value for name, value, _ in counters if name == wanted), 0)


def per_tap_point(run: RunFile) -> list[dict[str, Any]]:
    """Connections, bytes and losses per tap point and protocol, the largest first."""
    table = run.read_table("connections")
    protocol = table["protocol"].astype(np.int64)
    groups, at = np.unique(
        np.stack([table["tap_point"].astype(np.int64), protocol]), axis=1, return_inverse=True
    )
    at = at.reshape(-1)

    def total(*names: str) -> list[int]:
        values = sum(table[name].astype(np.int64) for name in names)
        return [int(value) for value in np.bincount(at, weights=values, minlength=groups.shape[1])]

    sums = {name: total(f"{name}_to_server", f"{name}_to_client") for name in _CONNECTION_SUMS}
    sums["retransmits"] = total("retransmits_to_server", "retransmits_to_client")
    sums["duplicates"] = total("duplicates")
    records = [
        {
            "tap_point": tap_point_text(int(groups[0, i])),
            "protocol": Protocol(int(groups[1, i])).name.lower(),
            "connections": int(np.count_nonzero(at == i)),
        }
        | {name: values[i] for name, values in sums.items()}
        for i in range(groups.shape[1])
    ]
    return sorted(records, key=lambda record: -int(record["bytes"]))


def tap_points(run: RunFile) -> list[dict[str, Any]]:
    """What came from each tap point, the busiest first; `duplicates` are copies of segments seen before."""
    connections = run.read_table("connections", ["tap_point"])["tap_point"]
    records = [
        {
            "tap_point": tap_point_text(code),
            "packets": packets,
            "bytes": size,
            "connections": int(np.count_nonzero(connections == code)),
            "duplicates": copies,
        }
        for code, packets, size, copies in run.meta("tap_points", [])
        if packets
    ]
    return sorted(records, key=lambda record: -int(record["packets"]))


def as_record(listed: list[Line], total: Account) -> dict[str, Any]:
    """The account for `--json`."""
    return {
        "lines": [asdict(line) for line in listed],
        "balanced": not total.disagreements,
        "disagreements": list(total.disagreements),
    }
