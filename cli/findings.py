"""What `findings` lists: each episode in which users were hurt, where it began, and what made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapscope.analyze.findings import WINDOW_NS, Finding, findings
from tapscope.cli.output import utc
from tapscope.store.runfile import RunFile


def records(run: RunFile, width_ns: int | None = None) -> list[dict[str, Any]]:
    """One record per finding, in order of time."""
    names = run.node_names()
    return [_record(found, names) for found in findings(run, width_ns=width_ns or WINDOW_NS)]


def _record(found: Finding, names: Sequence[str]) -> dict[str, Any]:
    episode = found.episode
    return {
        "begin_ns": episode.begin_ns,
        "end_ns": episode.end_ns,
        "length_ms": (episode.end_ns - episode.begin_ns) / 1e6,
        "entry": names[episode.entry],
        "peak_queue": episode.peak_load,
        "usual_queue": episode.usual_load,
        "very_long": len(episode.roots),
        "very_long_calls": [int(row) for row in episode.roots],
        "longest_ms": episode.longest_ns / 1e6,
        "origin": names[found.origin] if found.origin >= 0 else None,
        "cause": found.cause,
        "mechanisms": [
            {"name": one.name, "strength": one.strength, "evidence": one.words} for one in found.mechanisms
        ],
        "ruled_out": found.ruled_out,
        "path": [
            {
                "node": names[rise.node],
                "peak_queue": rise.peak_load,
                "usual_queue": rise.usual_load,
                "excess_call_windows": rise.excess,
                "own_excess_call_windows": rise.own_excess,
            }
            for rise in found.path
        ],
    }


def show(listed: Sequence[dict[str, Any]]) -> None:
    """A few lines per finding."""
    if not listed:
        print("No findings: no queue was unusually long, and no transaction took very long.")
        return
    for number, record in enumerate(listed, start=1):
        print(
            f"{number}. {utc(record['begin_ns'])} UTC, {record['length_ms']:.0f} ms: queue of "
            f"{record['entry']} up to {record['peak_queue']:.1f} (usually {record['usual_queue']:.1f}); "
            f"longest response {record['longest_ms']:.0f} ms, {record['very_long']} very long transactions"
        )
        began = f"began at {record['origin']}" if record["origin"] else "no node's own queue rose"
        print(f"   {began}; cause: {record['cause']}")
        for one in record["mechanisms"]:
            print(f"   + {one['name']} ({one['strength']:.2f}): {one['evidence']}")
        if record["path"]:
            way = ", ".join(
                f"{rise['node']} {rise['usual_queue']:.1f} to {rise['peak_queue']:.1f}"
                for rise in record["path"]
            )
            print(f"   queues, lowest tier first: {way}")
        if not record["mechanisms"] and record["ruled_out"]:
            print(f"   ruled out: {'; '.join(record['ruled_out'])}")
