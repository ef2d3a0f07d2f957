"""CPU time per packet of every program on every capture, the programs taking turns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import generated
from measure import Spread, normalise_cache
from programs import FLOOR, FRAMER, SLOW_PACKETS, Program, prefix

IMPAIRED = {"displaced": 0.01, "duplicated": 0.01}
CAPTURES: dict[str, tuple[str, dict[str, float]]] = {
    **{kind: (kind, {}) for kind in generated.KINDS if kind != "http_window"},
    "tiers, displaced + duplicated": ("tiers", IMPAIRED),
    "tiers, and 0.2 % lost": ("tiers", {**IMPAIRED, "lost": 0.002}),
    "http_small, and 0.2 % lost": ("http_small", {**IMPAIRED, "lost": 0.002}),
}


@dataclass(frozen=True)
class Result:
    """One program on one capture. ns per packet of CPU and of wall time, without the program's start."""

    capture: str
    program: str
    cpu_ns: Spread
    wall_ns: Spread
    mb_per_s: float


def measure(
    name: str, made: generated.Generated, chosen: Sequence[Program], repeats: int, folder: Path
) -> list[Result]:
    """Every program on one capture, `repeats` times in turn; its start, on three packets, is taken off unless
    it tells its own cost."""
    kind = CAPTURES[name][0]
    small, tiny = folder / "small.pcap", folder / "tiny.pcap"
    few = prefix(made.path, small, SLOW_PACKETS)
    prefix(made.path, tiny, 3)
    for path in (made.path, small, tiny):
        normalise_cache(path)
    usable = [program for program in chosen if not program.only or kind in program.only]
    starts: dict[str, list[tuple[float, float]]] = {program.name: [] for program in usable}
    whole: dict[str, list[tuple[float, float]]] = {program.name: [] for program in usable}
    for turn in range(repeats):
        for program in usable:
            if program.slow and turn >= 3:
                continue
            for path, into in ((tiny, starts), (small if program.slow else made.path, whole)):
                into[program.name].append(
                    (0.0, 0.0) if program.tells and path == tiny else program.cost(path)
                )
    out = []
    for program in usable:
        packets = few if program.slow else made.packets
        per_packet = []
        for i in (0, 1):
            start = Spread.of([cost[i] for cost in starts[program.name]]).median
            per_packet.append(
                Spread.of([max(cost[i] - start, 0) / packets * 1e9 for cost in whole[program.name]])
            )
        mb_per_s = made.bytes / made.packets / max(per_packet[0].median, 1e-3) * 1e3
        out.append(Result(name, program.name, per_packet[0], per_packet[1], mb_per_s))
    return out


def table(results: Sequence[Result], name: str, made: generated.Generated) -> str:
    """One capture as a Markdown table."""
    rows = [result for result in results if result.capture == name]
    median = {row.program: row.cpu_ns.median for row in rows}
    lines = [
        f"### {name}: {made.bytes / 1e6:.0f} MB, {made.packets:,} packets, {made.messages:,} messages",
        "| | ns of CPU per packet | lowest | highest | MB/s | / framer | / floor | wall ns |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        cost = row.cpu_ns
        lines.append(
            f"| {row.program} | {cost.median:.0f} | {cost.lowest:.0f} | {cost.highest:.0f} "
            f"| {row.mb_per_s:,.0f} | {cost.median / median[FRAMER]:.2f} | {cost.median / median[FLOOR]:.1f} "
            f"| {row.wall_ns.median:.0f} |"
        )
    return "\n".join(lines) + "\n"


def summary(results: Sequence[Result]) -> str:
    """Programs by captures, medians, and what tapscope costs in framers."""
    captures = list(dict.fromkeys(result.capture for result in results))
    names = list(dict.fromkeys(result.program for result in results))
    cell = {(result.program, result.capture): result for result in results}
    lines = [
        "### ns of CPU per packet, medians",
        "| | " + " | ".join(captures) + " |",
        "| --- |" + " ---: |" * len(captures),
    ]
    for name in names:
        found = [cell.get((name, capture)) for capture in captures]
        lines.append(
            f"| {name} | " + " | ".join(f"{r.cpu_ns.median:,.0f}" if r else "-" for r in found) + " |"
        )
    ours = [name for name in names if name.startswith("tapscope")]
    if ours and FRAMER in names:
        ratios = [
            cell[ours[0], capture].cpu_ns.median / cell[FRAMER, capture].cpu_ns.median for capture in captures
        ]
        lines.append(f"| {ours[0]} / framer | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    if len(ours) > 1:
        gains = [
            cell[ours[0], capture].wall_ns.median / cell[ours[1], capture].wall_ns.median
            for capture in captures
        ]
        lines.append(
            f"| speed-up in wall time, {ours[1]} | " + " | ".join(f"{gain:.2f}" for gain in gains) + " |"
        )
    return "\n".join(lines) + "\n"


def linearity(program: Path, chosen: Program, sizes_mb: Sequence[int], repeats: int, folder: Path) -> str:
    """What a packet costs in files of growing size."""
    lines = [
        "### Growing files (tiers)",
        "| MB | ns of CPU per packet | lowest | highest |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for size in sizes_mb:
        made = generated.generate(program, "tiers", folder / "grow.pcap", bytes=size * 1e6)
        normalise_cache(made.path)
        runs = [chosen.cost(made.path)[0] / made.packets * 1e9 for _ in range(repeats)]
        made.path.unlink()
        cost = Spread.of(runs)
        lines.append(f"| {size} | {cost.median:.0f} | {cost.lowest:.0f} | {cost.highest:.0f} |")
        print(f"{size} MB: {cost.median:.0f} ns per packet", file=sys.stderr)
    return "\n".join(lines) + "\n"
