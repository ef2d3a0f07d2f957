"""What `findings` lists: each episode in which users were hurt, where it began, and what made it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any

from tapscope.analyze.candidates import Candidate
from tapscope.analyze.finding import Finding, why_none
from tapscope.analyze.findings import WINDOW_NS, findings
from tapscope.analyze.mechanisms import BY_LOGS
from tapscope.cli.output import utc
from tapscope.store.runfile import RunFile

SHOWN = 4
"""Metrics of a finding's ranking that the table shows; --json has them all."""


def records(run: RunFile, width_ns: int | None = None) -> list[dict[str, Any]]:
    """One record per finding, in order of time."""
    width = width_ns or WINDOW_NS
    names, addresses = run.node_names(), run.addresses()
    return [_record(found, names, addresses, width) for found in findings(run, width_ns=width)]


def _record(found: Finding, names: Sequence[str], addresses: Sequence[str], width_ns: int) -> dict[str, Any]:
    episode = found.episode
    behind = {one.node: one for one in found.travel}
    return {
        "begin_ns": episode.begin_ns,
        "end_ns": episode.end_ns,
        "length_ms": (episode.end_ns - episode.begin_ns) / 1e6,
        "entry": names[episode.entry],
        "peak_queue": episode.peak_load,
        "usual_queue": episode.usual_load,
        "very_long": len(episode.roots),
        "very_long_calls": [int(row) for row in episode.roots],
        "reconnected": episode.reconnected,
        "longest_ms": episode.longest_ns / 1e6,
        "origin": names[found.origin] if found.origin >= 0 else None,
        "cause": found.cause,
        "cause_begin_ns": None if found.began is None else found.began.at_ns,
        "cause_begin_low_ns": None if found.began is None else found.began.low_ns,
        "cause_begin_high_ns": None if found.began is None else found.began.high_ns,
        "cause_begin_ms": found.began_ms,
        "cause_begin_by": None if found.began is None else found.began.signs,
        "mechanisms": [
            {"name": one.name, "strength": one.strength, "metric": one.metric, "evidence": one.words}
            for one in found.mechanisms
        ],
        "ruled_out": found.ruled_out,
        "not_told": found.not_told,
        "ranking": [_ranked(one, width_ns) for one in found.ranking],
        "path": [
            {
                "node": names[rise.node],
                "peak_queue": rise.peak_load,
                "usual_queue": rise.usual_load,
                "excess_call_windows": rise.excess,
                "own_excess_call_windows": rise.own_excess,
                "behind_origin_ms": behind[rise.node].lag_ms if rise.node in behind else None,
                "behind_low_ms": behind[rise.node].low_ms if rise.node in behind else None,
                "behind_high_ms": behind[rise.node].high_ms if rise.node in behind else None,
                "behind_r": behind[rise.node].r if rise.node in behind else None,
            }
            for rise in found.path
        ],
        "overflowed": [
            {"listener": _listener(addresses[address], port), "syns_without_answer": count}
            for address, port, count in found.overflowed
        ],
        "tcp": [
            {
                "kind": one.kind.name.lower(),
                "direction": one.direction.name.lower(),
                "listener": _listener(addresses[one.server_addr], one.server_port),
                "what": one.words,
                "events": one.events,
                "packets": one.packets,
                "calls": one.calls,
                "transactions": one.traces,
                "longest_ms": one.waited_ns / 1e6,
            }
            for one in found.tcp
        ],
    }


def _ranked(one: Candidate, width_ns: int) -> dict[str, Any]:
    lag = one.lag
    return {
        **{key: value for key, value in asdict(one).items() if key != "lag"},
        "queue_behind_ms": None if lag is None else lag.windows * width_ns / 1e6,
        "queue_behind_low_ms": None if lag is None else lag.low * width_ns / 1e6,
        "queue_behind_high_ms": None if lag is None else lag.high * width_ns / 1e6,
    }


def _listener(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ip_address(address).version == 6 else f"{address}:{port}"


def show(listed: Sequence[dict[str, Any]], run: RunFile) -> None:
    """A few lines per finding."""
    if not listed:
        print(f"No findings: {why_none(run)}")
        return
    for number, record in enumerate(listed, start=1):
        print(
            f"{number}. {utc(record['begin_ns'])} UTC, {record['length_ms']:.0f} ms: queue of "
            f"{record['entry']} up to {record['peak_queue']:.1f} (usually {record['usual_queue']:.1f}); "
            f"longest response {record['longest_ms']:.0f} ms, {record['very_long']} very long transactions"
            + (f", {record['reconnected']} of them after a SYN sent again" if record["reconnected"] else "")
        )
        began = f"began at {record['origin']}" if record["origin"] else "no node's own queue rose"
        print(f"   {began}; cause: {record['cause']}{_since(record)}")
        for one in record["mechanisms"]:
            print(f"   + {one['name']} ({one['strength']:.2f}): {one['evidence']}")
        if record["path"]:
            print(f"   queues, lowest tier first: {', '.join(_rise(rise) for rise in record['path'])}")
        for one in record["overflowed"]:
            print(f"   overflowed: {one['listener']}, {one['syns_without_answer']} SYNs without an answer")
        for one in record["tcp"]:
            wait = f", up to {one['longest_ms']:.0f} ms" if one["longest_ms"] else ""
            often = "once" if one["events"] == 1 else f"{one['events']} times"
            print(
                f"   TCP at {one['listener']}: {one['what']} {often}{wait}; "
                f"transactions hit: {one['transactions']}"
            )
        for one in record["ranking"][:SHOWN] if record["mechanisms"] else ():
            print(f"   {_numbers(one)}")
        if not record["mechanisms"] and record["ruled_out"]:
            print(f"   ruled out: {'; '.join(record['ruled_out'])}")
        if record["not_told"] and record["cause"] not in BY_LOGS:
            print(f"   no log of {record['origin']} tells: {', '.join(record['not_told'])}")


def _since(record: dict[str, Any]) -> str:
    """When the cause began, against the users' harm."""
    if record["cause_begin_ms"] is None:
        return ""
    at, low, high = record["cause_begin_ms"]
    return f", from {at:+.0f} ms on ({low:+.0f} to {high:+.0f}, by its {record['cause_begin_by']})"


def _rise(rise: dict[str, Any]) -> str:
    text = f"{rise['node']} {rise['usual_queue']:.1f} to {rise['peak_queue']:.1f}"
    if rise["behind_origin_ms"] is None:
        return text
    text += f" ({rise['behind_origin_ms']:+.0f} ms"
    if math.isfinite(rise["behind_low_ms"]):
        text += f", {rise['behind_low_ms']:+.0f} to {rise['behind_high_ms']:+.0f}"
    return f"{text})"


def _numbers(one: dict[str, Any]) -> str:
    text = f"ranked {one['score']:.2f}: {one['words']}, in {one['covered']:.0%} of the growth and "
    text += f"{one['otherwise']:.0%} of quiet windows"
    if math.isfinite(one["r"]):
        text += f"; r {one['r']:.2f}, p {one['p']:.2g}, false discovery rate {one['q']:.2g}"
    if one["queue_behind_ms"] is not None:
        text += f"; queue {one['queue_behind_ms']:+.0f} ms behind"
    return text
