"""The section that explains each episode in which users were hurt (analyze/findings.py), as a table."""

from __future__ import annotations

from html import escape

from tapscope.analyze.findings import Finding, findings, why_none
from tapscope.report.run import Run
from tapscope.report.sections import table
from tapscope.report.words import count, duration, significant

MARGIN_S = 0.5
"""Shown before and behind an episode when the timeline jumps to it."""


def section(run: Run) -> str:
    """HTML of the section. A time is a link that zooms the timeline to its episode."""
    found = findings(run.file)
    if not found:
        return f"<p>None. {escape(why_none(run.file))}</p>"
    head = (
        ("at s", "n"),
        ("length", "n"),
        ("queue, usually", "n"),
        ("longest response", "n"),
        ("very long", "n"),
        ("began at", ""),
        ("cause", ""),
        ("evidence", ""),
    )
    return table(head, (_row(one, run) for one in found), "findings-table", "Findings")


def _row(found: Finding, run: Run) -> tuple[str, ...]:
    episode = found.episode
    begin_s, end_s = ((at - run.start_ns) / 1e9 for at in (episode.begin_ns, episode.end_ns))
    low, high = max(begin_s - MARGIN_S, 0.0), end_s + MARGIN_S
    evidence = "<br>".join(
        f"{escape(one.name)} ({one.strength:.2f}): {escape(one.words)}" for one in found.mechanisms
    )
    return (
        f'<a href="#t={low:.6f},{high:.6f}">{begin_s:.3f}</a>',
        escape(duration(episode.end_ns - episode.begin_ns)),
        f"{escape(significant(episode.peak_load))}, {escape(significant(episode.usual_load))}",
        escape(duration(episode.longest_ns)),
        escape(count(len(episode.roots))),
        escape(run.node_names[found.origin]) if found.origin >= 0 else "no node",
        escape(found.cause),
        evidence or f"ruled out: {escape('; '.join(found.ruled_out))}",
    )
