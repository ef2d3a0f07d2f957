"""The section that explains each episode in which users were hurt (analyze/findings.py): a table, and the
words of a page for each finding. What the pages draw is episodes.py's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tapscope.analyze.candidates import Candidate
from tapscope.analyze.finding import Finding, why_none
from tapscope.analyze.findings import WINDOW_NS
from tapscope.report.episodes import Page
from tapscope.report.run import Run
from tapscope.report.sections import table, tile
from tapscope.report.together import Together, together
from tapscope.report.words import count, duration, significant, utc

MARGIN_S = 0.5
"""Shown before and behind an episode when the timeline jumps to it."""

RANKING_WORDS = (
    "Of the growth: share of the queue's growth in windows in which the metric had risen; of quiet: the "
    "same share of quiet windows. r and p: correlation with the node's own queue over the run, and how often "
    "chance gives as much; FDR: false discovery rate, p controlled for the number of metrics. Queue behind: "
    "by how much the queue follows the metric (90 % interval)."
)


def section(run: Run, found: Sequence[Finding], pages: Sequence[Page]) -> str:
    """HTML of the table. A time is a link to the finding's page."""
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
        ("evidence", "wide"),
        ("", ""),
    )
    with_page = {page.number for page in pages}
    rows = (_row(one, run, i, i in with_page) for i, one in enumerate(found, start=1))
    made = table(head, rows, "findings-table", "Findings")
    if len(with_page) < len(found):
        made += (
            f'<p class="hint">The {len(with_page)} with the longest responses have a page of their own.</p>'
        )
    return made


def _row(found: Finding, run: Run, number: int, has_page: bool) -> tuple[str, ...]:
    episode = found.episode
    at = f"{(episode.begin_ns - run.start_ns) / 1e9:.3f}"
    evidence = f"ruled out: {escape('; '.join(found.ruled_out))}"
    if found.mechanisms:
        first, *others = found.mechanisms
        evidence = f"{escape(first.name)} ({first.strength:.2f}): {escape(first.words)}"
        evidence += "".join(f"; {escape(one.name)} ({one.strength:.2f})" for one in others)
    return (
        f'<a href="#finding-{number}">{at}</a>' if has_page else at,
        escape(duration(episode.end_ns - episode.begin_ns)),
        f"{escape(significant(episode.peak_load))}, {escape(significant(episode.usual_load))}",
        escape(duration(episode.longest_ns)),
        escape(count(len(episode.roots))),
        escape(_origin(found, run)),
        escape(found.cause),
        evidence,
        f'<a class="to-timeline" href="{_timeline(found, run)}">timeline</a>',
    )


def _origin(found: Finding, run: Run) -> str:
    return run.node_names[found.origin] if found.origin >= 0 else "no node"


def _since(found: Finding) -> str:
    """When the cause began, against the users' harm, in words."""
    if found.began_ms is None:
        return ""
    at, low, high = found.began_ms
    return f"; the cause from {at:+.0f} ms on ({low:+.0f} to {high:+.0f})"


def _timeline(found: Finding, run: Run) -> str:
    """Fragment that zooms the timeline to an episode."""
    begin, end = ((at - run.start_ns) / 1e9 for at in (found.episode.begin_ns, found.episode.end_ns))
    return f"#t={max(begin - MARGIN_S, 0.0):.6f},{end + MARGIN_S:.6f}"


def articles(run: Run, found: Sequence[Finding], pages: Sequence[Page]) -> str:
    """HTML of all pages; a script shows the one that the address names, and draws into it."""
    numbers = [None, *(page.number for page in pages), None]
    return "".join(
        _article(run, page, len(found), numbers[at], numbers[at + 2]) for at, page in enumerate(pages)
    )


def _article(run: Run, page: Page, total: int, before: int | None, after: int | None) -> str:
    found, episode = page.found, page.found.episode
    name = f"finding-{page.number}"
    steps = ['<a href="#findings">← all findings</a>']
    steps += [f'<a href="#finding-{before}">‹ finding {before}</a>'] if before else []
    steps += [f'<a href="#finding-{after}">finding {after} ›</a>'] if after else []
    steps.append(f'<a href="{_timeline(found, run)}">in the timeline of the run</a>')
    origin = f" at {_origin(found, run)}" if found.origin >= 0 else ""
    begin_s = (episode.begin_ns - run.start_ns) / 1e9
    tiles = (
        tile(
            duration(episode.end_ns - episode.begin_ns),
            "long",
            f"from {begin_s:.3f} s, {utc(episode.begin_ns)}{_since(found)}",
        ),
        tile(
            significant(episode.peak_load),
            f"calls in the queue of {run.node_names[episode.entry]}",
            f"usually {significant(episode.usual_load)}",
        ),
        tile(duration(episode.longest_ns), "longest response", "with the wait for its connection"),
        tile(
            count(len(episode.roots)),
            "very long transactions",
            f"{count(episode.reconnected)} of them after a SYN sent again" if episode.reconnected else "",
        ),
    )
    scatter = (
        f"<h3>Load against throughput of {escape(_origin(found, run))}</h3>"
        '<div class="chart load-throughput"></div><p class="hint load-throughput-words"></p>'
        if found.origin >= 0
        else ""
    )
    return (
        f'<section id="{name}" class="finding" aria-labelledby="{name}-title">'
        f'<p class="steps">{" ".join(steps)}</p>'
        f'<h2 id="{name}-title" tabindex="-1">'
        f"Finding {page.number} of {total}: {escape(found.cause + origin)}</h2>"
        f'<div class="tiles">{"".join(tiles)}</div>'
        "<h3>What speaks for the cause</h3>"
        f"{_mechanisms(found)}{_ranking(found.ranking)}{_ruled_out(found)}{_not_told(found, run)}"
        '<h3>On one time axis</h3><div class="toolbar" role="toolbar" aria-label="Time axis">'
        '<span class="range"></span><button type="button" class="reset">All of it</button>'
        '<span class="cursor"></span></div><div class="strips"></div>'
        f"{scatter}<h3>How the queues rose</h3>{_path(found, run)}{_overflowed(found, run)}"
        f"{_tcp(found, run)}"
        "<h3>Transactions that it hit</h3>"
        '<div class="scroll hits"></div><div class="waterfall"></div>'
        '<div class="call-detail" role="status"></div>'
        f"{_together(run, together(run, page))}</section>"
    )


def _mechanisms(found: Finding) -> str:
    if not found.mechanisms:
        return "<p>No mechanism was recognised: the cause is unknown.</p>"
    rows = [(escape(one.name), f"{one.strength:.2f}", escape(one.words)) for one in found.mechanisms]
    head = (("mechanism", ""), ("strength", "n"), ("evidence", "wide"))
    return table(head, rows, "", "Mechanisms that were recognised, strongest first")


def _ranking(ranking: Sequence[Candidate]) -> str:
    """Every metric of the origin with its numbers, best first."""
    if not ranking:
        return ""
    head = (
        ("metric", "class"),
        ("score", "n"),
        ("most", "n"),
        ("usually", "n"),
        ("of the growth", "n"),
        ("of quiet", "n"),
        ("r", "n"),
        ("p", "n"),
        ("FDR", "n"),
        ("queue behind", "n"),
        ("also at", ""),
    )
    made = table(head, (_candidate(one) for one in ranking), "", "Ranking of the metrics")
    return (
        f"<details><summary>Ranking of every metric of the node, with its numbers</summary>{made}"
        f'<p class="hint">{RANKING_WORDS}</p></details>'
    )


def _candidate(one: Candidate) -> tuple[str, ...]:
    behind = "–"
    if one.lag is not None:
        width = WINDOW_NS / 1e6
        behind = f"{one.lag.windows * width:+.0f} ms"
        if math.isfinite(one.lag.low):
            behind += f" ({one.lag.low * width:+.0f} to {one.lag.high * width:+.0f})"
    return (
        escape(one.words),
        f"{one.score:.2f}",
        escape(f"{significant(one.level)} {one.unit}"),
        significant(one.usual),
        f"{one.covered:.0%}",
        f"{one.otherwise:.0%}",
        _number(one.r),
        _number(one.p),
        _number(one.q),
        behind,
        escape(", ".join(one.also_at)) or "–",
    )


def _number(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "–"


def _not_told(found: Finding, run: Run) -> str:
    if not found.not_told:
        return ""
    what = escape(", ".join(found.not_told))
    return f"<p>No log of {escape(_origin(found, run))} tells: {what}.</p>"


def _ruled_out(found: Finding) -> str:
    if not found.ruled_out:
        return ""
    items = "".join(f"<li>{escape(one)}</li>" for one in found.ruled_out)
    number = count(len(found.ruled_out), "mechanism")
    return f"<details><summary>Ruled out: {number}</summary><ul>{items}</ul></details>"


def _path(found: Finding, run: Run) -> str:
    """Table of the queues that rose, lowest tier first, and when each moved."""
    if not found.path:
        return "<p>No queue rose beyond what is usual.</p>"
    behind = {one.node: one for one in found.travel}
    rows = []
    for rise in found.path:
        moved = "–"
        if (one := behind.get(rise.node)) is not None:
            moved = f"{one.lag_ms:+.0f} ms"
            if math.isfinite(one.low_ms):
                moved += f" ({one.low_ms:+.0f} to {one.high_ms:+.0f}), r {one.r:.2f}"
        rows.append(
            (
                escape(run.node_names[rise.node]) + (" (origin)" if rise.node == found.origin else ""),
                significant(rise.usual_load),
                significant(rise.peak_load),
                significant(rise.excess * WINDOW_NS / 1e9),
                significant(rise.own_excess * WINDOW_NS / 1e9),
                moved,
            )
        )
    head = (
        ("node", ""),
        ("queue usually", "n"),
        ("at its peak", "n"),
        ("excess, call-seconds", "n"),
        ("of it its own", "n"),
        ("behind the origin", "n"),
    )
    return table(head, rows, "", "Queues that rose, lowest tier first")


def _overflowed(found: Finding, run: Run) -> str:
    if not found.overflowed:
        return ""
    addresses = run.file.addresses()
    listed = "; ".join(
        f"{escape(addresses[address])}:{port}, {count(number, 'SYN')} without an answer"
        for address, port, number in found.overflowed
    )
    return f"<p>Overflowed: {listed}.</p>"


def _tcp(found: Finding, run: Run) -> str:
    """Table of what TCP did to the calls that were under way."""
    if not found.tcp:
        return ""
    addresses = run.file.addresses()
    rows = (
        (
            escape(f"{addresses[one.server_addr]}:{one.server_port}"),
            escape(one.words),
            count(one.events),
            escape(duration(one.waited_ns)) if one.waited_ns else "–",
            count(one.calls),
            count(one.traces),
        )
        for one in found.tcp
    )
    head = (
        ("listener", ""),
        ("what TCP did", ""),
        ("times", "n"),
        ("longest wait", "n"),
        ("calls", "n"),
        ("transactions", "n"),
    )
    return table(head, rows, "", "What TCP did to calls under way")


def _together(run: Run, seen: Together | None) -> str:
    """Table of what else was inside during the slowest call, with the statements that each made."""
    if seen is None:
        return ""
    calls = run.calls
    rows = []
    for other in seen.others:
        made = "<br>".join(
            f"{escape(duration(took))} {escape(run.class_text(class_id) or '(no class)')}"
            for class_id, took in other.statements
        )
        more = other.made - len(other.statements)
        rows.append(
            (
                f"{(int(calls['arrive_ns'][other.row]) - run.start_ns) / 1e9:.6f}",
                escape(duration(other.took_ns)) if other.took_ns >= 0 else "no answer",
                escape(run.class_text(int(calls["class_id"][other.row])) or "(no class)"),
                (made + (f"<br>and {more} more" if more > 0 else "")) or "–",
            )
        )
    head = (("arrived s", "n"), ("response", "n"), ("class", "class"), ("its longest statements", "class"))
    name = run.node_names[int(calls["server_node"][seen.row])]
    what = escape(run.class_text(int(calls["class_id"][seen.row])) or "(no class)")
    shown = "" if len(rows) == seen.total else f", the {len(rows)} that were longest inside with it"
    return (
        f"<h3>What else was inside {escape(name)}</h3>"
        f"<p>During the slowest call of these transactions there (<code>{what}</code>, "
        f"{escape(duration(seen.took_ns))}): "
        f"{count(seen.total, 'other call')}{shown}.</p>"
        + (table(head, rows, "", "Concurrent calls") if rows else "")
    )
