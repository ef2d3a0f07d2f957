"""Who calls whom, as a small SVG: a column per depth, an arrow per caller, callee and protocol."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np

from tapscope.analyze.inside import distinct, place_in
from tapscope.report.run import Run, protocol_name
from tapscope.report.words import count, duration

BOX_WIDTH, BOX_HEIGHT = 168, 56
COLUMN, ROW = 352, 76
MARGIN = 12
MAX_NODES = 40


@dataclass(frozen=True)
class Edge:
    """Calls of one protocol from one node to another; mean response time in ns, NaN if none ended."""

    client: int
    server: int
    protocol: int
    calls: int
    mean_ns: float


def edges(run: Run) -> list[Edge]:
    """Every caller, callee and protocol with its calls, the busiest first."""
    calls = run.calls
    nodes = len(run.node_names)
    key = (calls["client_node"].astype(np.int64) * nodes + calls["server_node"]) * 256 + calls["protocol"]
    values = distinct(key)
    place = place_in(values, key)
    number = np.bincount(place)
    ended = calls["depart_ns"] >= 0
    total = np.bincount(
        place[ended], weights=(calls["depart_ns"] - calls["arrive_ns"])[ended], minlength=len(values)
    )
    known = np.bincount(place[ended], minlength=len(values))
    found = [
        Edge(v // 256 // nodes, v // 256 % nodes, v % 256, int(n), float(t / k) if k else float("nan"))
        for v, n, t, k in zip(values.tolist(), number, total, known, strict=True)
    ]
    return sorted(found, key=lambda edge: -edge.calls)


def svg(run: Run) -> str:
    """The drawing; '' when there are no calls, or so many nodes that it would not help."""
    found = edges(run)
    used = sorted({edge.client for edge in found} | {edge.server for edge in found})
    if not found or len(used) > MAX_NODES:
        return ""
    depths = sorted({int(run.nodes["depth"][node]) for node in used})
    columns = {depth: [node for node in used if run.nodes["depth"][node] == depth] for depth in depths}
    tallest = max(len(column) for column in columns.values())
    height = 2 * MARGIN + tallest * ROW
    width = 2 * MARGIN + (len(depths) - 1) * COLUMN + BOX_WIDTH
    at: dict[int, tuple[float, float]] = {}
    for place, depth in enumerate(depths):
        column = columns[depth]
        top = MARGIN + (tallest - len(column)) * ROW / 2
        for row, node in enumerate(column):
            at[node] = (MARGIN + place * COLUMN, top + row * ROW + (ROW - BOX_HEIGHT) / 2)
    parts = [
        f'<svg class="topology" viewBox="0 0 {width} {height}" style="max-width:{width}px" role="img" '
        'aria-label="Topology: nodes and who calls whom">',
        '<defs><marker id="tip" orient="auto" markerUnits="userSpaceOnUse" viewBox="0 0 8 8" refX="7" '
        'refY="4" markerWidth="10" markerHeight="10"><path d="M0 0L8 4L0 8z" class="tip"/></marker></defs>',
    ]
    parts += [_arrow(run, edge, at, max(e.calls for e in found)) for edge in found]
    parts += [_box(run, node, *at[node]) for node in used]
    return "".join([*parts, "</svg>"])


def _arrow(run: Run, edge: Edge, at: dict[int, tuple[float, float]], most: int) -> str:
    (x1, y1), (x2, y2) = at[edge.client], at[edge.server]
    y1, y2 = y1 + BOX_HEIGHT / 2, y2 + BOX_HEIGHT / 2
    if x1 < x2:
        x1 += BOX_WIDTH
    else:  # a call back up or to a neighbour: leave and enter on the right
        x1, x2 = x1 + BOX_WIDTH, x2 + BOX_WIDTH
    middle = (x1 + x2) / 2 if x2 > x1 else x1 + 60
    weight = 1.2 + 3.0 * np.log1p(edge.calls) / np.log1p(most)
    name = f"{protocol_name(edge.protocol)}, {count(edge.calls, 'call')}"
    mean = f"mean {duration(edge.mean_ns)}"
    label_x, label_y = (x1 + x2) / 2, (y1 + y2) / 2
    return (
        f"<g><title>{escape(name)}, {escape(mean)}</title>"
        f'<path class="edge" style="stroke-width:{weight:.1f}" marker-end="url(#tip)" '
        f'd="M{x1:.0f} {y1:.0f}C{middle:.0f} {y1:.0f} {middle:.0f} {y2:.0f} {x2 - 1:.0f} {y2:.0f}"/>'
        f'<text class="edge-label" x="{label_x:.0f}" y="{label_y - 8:.0f}">{escape(name)}</text>'
        f'<text class="edge-label" x="{label_x:.0f}" y="{label_y + 17:.0f}">{escape(mean)}</text></g>'
    )


def _box(run: Run, node: int, x: float, y: float) -> str:
    tier = run.tier_of_node(node)
    colour = f"t{tier.colour}" if tier else "t0"
    role = protocol_name(tier.protocol) + " server" if tier else "client"
    name = run.node_names[node]
    return (
        f'<g class="{colour}"><title>{escape(name)}</title>'
        f'<rect class="box" x="{x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
        f'<rect class="band" x="{x:.0f}" y="{y:.0f}" width="6" height="{BOX_HEIGHT}" rx="3"/>'
        f'<text class="name" x="{x + 18:.0f}" y="{y + 24:.0f}">{escape(name[:22])}</text>'
        f'<text class="role" x="{x + 18:.0f}" y="{y + 43:.0f}">{escape(role)}</text></g>'
    )
