"""The report: one self-contained HTML file that works offline.

Scripts are inlined and named by their SHA-256 in a content security policy, so that text from the network
could not run even if it got through the escaping; nothing may be loaded from anywhere. plotly.js is taken
from the installed plotly package when the report is written.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from tapscope.analyze.findings import findings as find
from tapscope.report import (
    agreement,
    analysis,
    encode,
    episodes,
    findings,
    health,
    hosts,
    sections,
    strips,
    tiers,
    topology,
    transactions,
)
from tapscope.report.export import opened
from tapscope.report.run import PROTOCOL_NAMES, Run, read
from tapscope.report.words import utc
from tapscope.store.codes import CallFlag
from tapscope.store.errors import TapscopeError
from tapscope.store.opening import refuse_over
from tapscope.store.runfile import RunFile

SCRIPTS = (
    "decode.js",
    "theme.js",
    "chart.js",
    "strips.js",
    "histogram.js",
    "waterfall.js",
    "transactions.js",
    "analysis.js",
    "findings.js",
    "page.js",
)
"""In the order in which they need each other."""

_MARK = re.compile(r"\{\{(\w+)\}\}")
_END_OF_SCRIPT = re.compile(r"</(?=script)", re.IGNORECASE)


def write(run_path: str | Path, out_path: str | Path, *, raw_clocks: bool = False) -> None:
    """Write the report of a run file to `out_path`, replacing it only when the new one is whole.

    `raw_clocks` leaves the times of host logs as they were logged.

    Raises TapscopeError when the run file cannot be read or the report not be written.
    """
    with RunFile.open(run_path) as file:
        refuse_over(Path(run_path), Path(out_path))
        file.raw_clocks = raw_clocks
        text = page(read(file))
    with opened(out_path) as out:
        out.write(text)


def page(run: Run) -> str:
    """The whole page as text."""
    figures = tiers.figures(run)
    healthy = health.findings(run)
    compared = agreement.section(run)
    known = analysis.analyse(run)
    explained = find(run.file, read=run.read, states=known.states)
    pages = episodes.pages(run, known, explained)
    code = [_END_OF_SCRIPT.sub(r"<\\/", text) for text in (_plotly(), _scripts())]
    return _fill(
        _asset("page.html"),
        {
            "policy": escape(_policy(code)),
            "style": _asset("page.css"),
            "plotly": code[0],
            "scripts": code[1],
            "data": encode.script_json(_data(run, known, pages)),
            "name": escape(run.name),
            "when": escape(utc(run.start_ns)) if run.end_ns > run.start_ns else "",
            "overview": sections.overview(run),
            "evidence": sections.evidence_words(run),
            "banner": sections.banner(healthy),
            "sources": sections.sources(run),
            "tiers": sections.tiers(figures),
            "topology": topology.svg(run),
            "agreement": compared
            or "<p>Not validated. <code>tapscope validate RUN.db --events DIR</code> compares "
            "the queue lengths of the tap with the servers' own logs.</p>",
            "findings": findings.section(run, explained, pages),
            "articles": findings.articles(run, explained, pages),
            "analysis": analysis.section(run, known),
            "lost": sections.lost(run),
            "version": escape(str(run.meta.get("tapscope_version", ""))),
        },
    )


def _data(run: Run, known: analysis.Analysis, pages: list[episodes.Page]) -> dict[str, Any]:
    none = np.empty(0, dtype=np.int64)
    flags = {int(flag): str(flag.name).lower().replace("_", " ") for flag in CallFlag if flag}
    return {
        "start_ns": str(run.start_ns),  # as text: beyond what a JavaScript number can hold
        "span_ns": run.end_ns - run.start_ns,
        "nodes": [{"name": name, "colour": _colour(run, node)} for node, name in enumerate(run.node_names)],
        "protocols": {int(protocol): name for protocol, name in PROTOCOL_NAMES.items()},
        "flags": flags,
        "strips": strips.strips(run) + hosts.strips(run),
        "analysis": analysis.figures(run, known),
        "findings": episodes.drawn(run, known, pages),
        **transactions.transactions(run, np.concatenate([none, *(page.hits for page in pages)])),
    }


def _colour(run: Run, node: int) -> int:
    tier = run.tier_of_node(node)
    return tier.colour if tier else 0


def _asset(name: str) -> str:
    return resources.files("tapscope.report").joinpath("assets", name).read_text(encoding="utf-8")


def _scripts() -> str:
    return "\n".join(_asset(name) for name in SCRIPTS)


def _plotly() -> str:
    """plotly.js as the installed package has it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise TapscopeError(
            "the report needs the Python package plotly", remedy="Install it: pip install 'tapscope[report]'"
        ) from error
    return str(get_plotlyjs())


def _policy(scripts: list[str]) -> str:
    """Content security policy: these scripts and nothing else, and no connection to anywhere."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Replace every {{name}} of the template once; what is put in is never searched again."""
    return _MARK.sub(lambda match: values[match[1]], template)
