"""Draws docs/queue_length.svg from a run that was traced and validated, as the readme shows it.

tapscope trace pcaps/testbed_busy -o run.db
tapscope validate run.db --events pcaps/testbed_busy
python docs/queue_length.svg.py run.db docs/queue_length.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tapscope.store.runfile import RunFile

TIERS = {"web": "web (Apache httpd)", "app": "app (Tomcat)", "db": "db (MariaDB)"}
SECONDS = 10
WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 860, 104, 46, 14, 34, 26  # pixels
TAP, LOG, CALLER, INK, GRID = "#0b6e99", "#d9730d", "#b9c4a0", "#333333", "#dddddd"
SQL = """SELECT window_ns, width_ns, tap_load, load, coalesce(caller_load, load) FROM event_load
         WHERE tier = ? AND left_out = '' AND tap_load IS NOT NULL ORDER BY window_ns"""


def steps(x: np.ndarray, y: np.ndarray) -> str:
    """Path of a staircase: level y[i] from x[i] to x[i + 1] (x has one value more)."""
    parts = [f"M{x[0]:.1f} {y[0]:.1f}"]
    for i in range(len(y)):
        parts.append(f"V{y[i]:.1f}H{x[i + 1]:.1f}")
    return "".join(parts)


def panel(rows: np.ndarray, begin_ns: int, top: float, title: str) -> list[str]:
    """One tier: both queue lengths over time, its scale and its name."""
    rows = rows[(rows[:, 0] >= begin_ns) & (rows[:, 0] < begin_ns + SECONDS * 10**9)]
    tap, log, caller = rows[:, 2], rows[:, 3], rows[:, 4]
    highest = float(np.ceil(max(tap.max(), log.max(), caller.max(), 1) / 10) * 10)
    plot = WIDTH - LEFT - RIGHT
    edges = np.append(rows[:, 0], rows[-1, 0] + rows[-1, 1])
    x = LEFT + plot * (edges - begin_ns) / (SECONDS * 1e9)
    out = [f'<text x="{LEFT}" y="{top - 7:.0f}" fill="{INK}">{title}</text>']
    for level in (0.0, highest / 2, highest):
        y = top + PANEL * (1 - level / highest)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}">{level:g}</text>')
    for values, colour, width in ((caller, CALLER, 2.6), (log, LOG, 2.6), (tap, TAP, 1.2)):
        y_values = top + PANEL * (1 - values / highest)
        out.append(f'<path d="{steps(x, y_values)}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
    return out


def draw(run_path: Path) -> str:
    """The whole picture as SVG text."""
    with RunFile.open(run_path) as run:
        series = {tier: np.array(run.sql(SQL, (tier,)), dtype=np.float64) for tier in TIERS}
    # The ten seconds with the highest queue in the application tier.
    app = series["app"]
    busiest = int(app[np.argmax(app[:, 2]), 0])
    begin_ns = max(int(app[0, 0]), min(busiest - SECONDS * 10**9 // 2, int(app[-1, 0]) - SECONDS * 10**9))
    height = TOP + 3 * (PANEL + GAP) + 10
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="12" role="img" aria-label="Queue length of three tiers, tap and server logs">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{WIDTH - RIGHT}" y="16" text-anchor="end" fill="{INK}">queue length, 50 ms windows: '
        f'<tspan fill="{TAP}" font-weight="bold">tap</tspan>, '
        f'<tspan fill="{LOG}" font-weight="bold">server\'s log</tspan>, '
        f'<tspan fill="{CALLER}" font-weight="bold">caller\'s log</tspan></text>',
    ]
    for i, (tier, title) in enumerate(TIERS.items()):
        out += panel(series[tier], begin_ns, TOP + i * (PANEL + GAP), title)
    for second in range(SECONDS + 1):
        x = LEFT + (WIDTH - LEFT - RIGHT) * second / SECONDS
        label = f"{second} s"
        out.append(f'<text x="{x:.0f}" y="{height - 14}" text-anchor="middle" fill="{INK}">{label}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(draw(Path(sys.argv[1])), encoding="utf-8")
