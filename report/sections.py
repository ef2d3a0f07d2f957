"""The parts of the page that need no script: header, banner and tables, as HTML with every text escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

import numpy as np

from tapscope.report import losses
from tapscope.report.health import (
    AMBER,
    LEVEL_WORDS,
    RED,
    Finding,
    captures,
    packets,
    span_rows,
    stream_bytes,
    verdict,
)
from tapscope.report.run import Run, protocol_name
from tapscope.report.tiers import TierFigures
from tapscope.report.words import count, duration, milliseconds, share, significant, size, utc
from tapscope.store.codes import LinkKind

LEVEL_CLASSES = ("good", "care", "bad")
LEVEL_MARKS = ("✓", "!", "✗")
"""Beside the colour, so that the verdict does not depend on seeing it."""

EVIDENCE_WORDS = {
    "all": "all content evidence",
    "noids": "content evidence without propagated ids",
    "timing": "times, connections and classes only",
}


def tile(value: str, label: str, note: str = "") -> str:
    """One figure of the overview."""
    extra = f'<span class="note">{escape(note)}</span>' if note else ""
    return f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span>{extra}</div>'


def table(head: Iterable[tuple[str, str]], rows: Iterable[Iterable[str]], name: str, caption: str) -> str:
    """A table; `head` is (text, class of the column), cells are HTML already escaped. `name` is its id, "":
    none."""
    columns = list(head)
    identity = f' id="{name}"' if name else ""
    cells = "".join(f'<th scope="col" class="{kind}">{escape(text)}</th>' for text, kind in columns)
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{kind}">{cell}</td>' for cell, (_, kind) in zip(row, columns, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table{identity}>'
        f'<caption class="unseen">{escape(caption)}</caption><thead><tr>{cells}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def overview(run: Run) -> str:
    """What was captured, as tiles."""
    calls = len(run.calls["conn"])
    kind = run.links["kind"]
    inner = int(np.count_nonzero(kind != LinkKind.ROOT))
    linked = int(np.count_nonzero(kind == LinkKind.LINKED))
    traces = len(run.traces["root"])
    whole = int(np.count_nonzero(run.traces["complete"]))
    seen, _, _ = stream_bytes(run)
    rows = span_rows(run)
    origin = [
        tile(count(packets(run)), "packets", f"{count(len(captures(run)), 'capture file')}"),
        tile(count(len(run.connections["first_ns"])), "connections", f"{size(seen)} in streams"),
    ]
    if rows is not None:
        origin = [tile(count(rows[0]), "rows of span tables", f"{count(rows[1])} left out")]
    tiles = [
        tile(
            duration(run.end_ns - run.start_ns),
            "captured",
            f"from {utc(run.start_ns)}" if run.end_ns > run.start_ns else "nothing",
        ),
        *origin,
        tile(count(calls), "calls", f"at {count(len(run.tiers), 'tier')}"),
        tile(count(traces), "transactions", f"{share(whole, traces)} complete"),
    ]
    if inner:
        tiles.append(
            tile(share(linked, inner), "of inner calls linked", f"{count(inner - linked)} of unknown origin")
        )
    return "".join(tiles)


def evidence_words(run: Run) -> str:
    """Evidence mode and expected quality, as one line of HTML."""
    options = run.meta.get("options")
    mode = options.get("evidence") if isinstance(options, dict) else None
    parts = []
    if mode is not None and run.file.matched:
        text = EVIDENCE_WORDS.get(str(mode), "")
        parts.append(f"Evidence mode <b>{escape(str(mode))}</b>{': ' + text if text else ''}.")
    linked = run.links["kind"] == LinkKind.LINKED
    if linked.any():
        probability = run.links["probability"][linked]
        wrong = float((1.0 - probability).sum())
        parts.append(
            f"Expected quality: mean link probability {probability.mean():.4f}, that is about "
            f"{escape(significant(wrong, 2) if wrong >= 0.05 else 'no')} wrong links of "
            f"{escape(count(len(probability)))}; "
            f"{escape(share(int((probability < 0.9).sum()), len(probability)))} are below 0.9."
        )
    if expected := run.meta.get("expected"):
        twice = expected["twice_edges"]
        crowd = f" ({100 * twice:.1f} % of links with twice as many in flight)" if twice is not None else ""
        parts.append(
            f"Self-check: {100 * expected['edges']:.1f} % of links and {100 * expected['paths']:.1f} % of "
            f"whole transactions are expected to be right{crowd}; a sample of the run was matched again with "
            "known parents."
        )
    return " ".join(parts)


def banner(found: list[Finding]) -> str:
    """Health of the input in words, the worst first."""
    level = verdict(found)
    lines = "".join(
        f'<li class="{LEVEL_CLASSES[f.level]}">'
        f'<span class="mark" aria-hidden="true">{LEVEL_MARKS[f.level]}</span>'
        f'<span><span class="unseen">{LEVEL_WORDS[f.level]}: </span>{escape(f.what)}'
        f"{f' <span class=why>{escape(f.why)}</span>' if f.why else ''}</span></li>"
        for f in found
    )
    title = {RED: "Parts of this report cannot be trusted", AMBER: "Good, with losses to know about"}
    return (
        f'<div id="health" class="banner {LEVEL_CLASSES[level]}" data-level="{LEVEL_CLASSES[level]}">'
        f'<h2><span class="mark" aria-hidden="true">{LEVEL_MARKS[level]}</span>Input health: '
        f"{title.get(level, 'the capture is whole')}</h2><ul>{lines}</ul></div>"
    )


def sources(run: Run) -> str:
    """Table of every input that was loaded."""
    rows = []
    for source in run.sources:
        first, last = source["first_ns"], source["last_ns"]
        span = duration(last - first) if first >= 0 and last >= first else "–"
        number = source.get("packets", source.get("calls", source.get("lines")))
        rows.append(
            [
                escape(str(source["path"]).rpartition("/")[2]),
                escape(str(source.get("kind", "capture"))),
                escape(str(source.get("format", ""))),
                escape(size(int(source["bytes"]))),
                escape(count(number)) if isinstance(number, int) else "–",
                escape(utc(first)),
                escape(span),
            ]
        )
    head = [("source", ""), ("kind", ""), ("format", ""), ("size", "n"), ("packets or lines", "n")]
    return table([*head, ("first", "n"), ("span", "n")], rows, "sources", "Inputs that were loaded")


def tiers(figures: list[TierFigures]) -> str:
    """The tier table. Times in ms, queue lengths in calls."""
    rows = []
    for f in figures:
        name = f'<span class="dot t{f.tier.colour}"></span>{escape(f.tier.name)}'
        parents = (
            f"{escape(share(f.linked, 1))}" if f.linked else ("begins here" if f.root > 0.5 else "0\u00a0%")
        )
        rows.append(
            [
                name,
                escape(protocol_name(f.tier.protocol)),
                escape(count(f.tier.calls)),
                escape(significant(f.throughput_per_s)),
                escape(significant(f.queue_mean) if math.isfinite(f.queue_mean) else "–"),
                escape(count(f.queue_max)),
                *(escape(milliseconds(v)) for v in (f.mean_ns, f.p50_ns, f.p95_ns, f.p99_ns, f.max_ns)),
                parents,
                escape(share(f.unknown, 1) if f.unknown else "0\u00a0%"),
            ]
        )
    head = [
        ("tier", ""),
        ("protocol", ""),
        ("calls", "n"),
        ("calls/s", "n"),
        ("queue mean", "n"),
        ("queue max", "n"),
    ]
    head += [(f"{word} ms", "n") for word in ("mean", "p50", "p95", "p99", "max")]
    return table([*head, ("linked", "n"), ("unknown", "n")], rows, "tiers", "Figures per tier")


def lost(run: Run) -> str:
    """Losses per listener and every counter with words."""
    rows = run.file.sql(
        "SELECT server_addr, server_port, protocol, connections, midstream, bytes, missing_bytes, "
        "unparsed_bytes, retransmits, syn_retransmits, duplicates FROM v_loss"
    )
    listeners = [
        [
            escape(f"{addr}:{port}"),
            escape(str(protocol)),
            *(escape(count(n)) for n in (connections, midstream)),
            *(escape(size(n)) if n else "0" for n in (seen, missing, unparsed)),
            *(escape(count(n)) for n in rest),
        ]
        for addr, port, protocol, connections, midstream, seen, missing, unparsed, *rest in rows
    ]
    head = [
        ("listener", ""),
        ("protocol", ""),
        ("connections", "n"),
        ("open before", "n"),
        ("stream bytes", "n"),
    ]
    head += [
        ("missing", "n"),
        ("not understood", "n"),
        ("retransmitted", "n"),
        ("SYN again", "n"),
        ("duplicates", "n"),
    ]
    counters = [
        [
            escape(losses.stage(name)),
            escape(losses.words(name)),
            escape(count(value)),
            escape(unit),
            f"<code>{escape(name)}</code>",
        ]
        for name, value, unit in run.counters
        if value and name not in losses.NOT_LOST
    ]
    names = [("stage", ""), ("what", ""), ("number", "n"), ("unit", ""), ("counter", "")]
    text = (
        "<h3>Per listener</h3>"
        + table(head, listeners, "listeners", "Losses per listener")
        + "<h3>Counters</h3>"
    )
    if not counters:
        return text + "<p>No oddity was counted.</p>"
    return text + table(names, counters, "counters", "Counters")
