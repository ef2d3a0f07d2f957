"""`tapscope findings`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON, RAW_CLOCKS, RUN, time_option


@click.command(short_help="When users were hurt, where it began, and what made it.")
@RUN
@time_option("--window", "width_ns", default="50ms", help="Length of the windows that are compared.")
@RAW_CLOCKS
@JSON
def findings(run_path: Path, width_ns: int, raw_clocks: bool, as_json: bool) -> None:
    """Explain every episode of long queues or very long transactions.

    An episode begins where an entry node holds many more calls than usual, or where a transaction takes ten
    times the mean and more. Where its queue began is the node whose own queue rose: calls that wait for the
    nodes below do not count. Mechanisms are looked for in what the tap saw of that node and in its host's
    logs (tapscope load-hosts), and ranked by what speaks for them; "unknown" lists what was ruled out.
    """
    from tapscope.analyze.finding import why_none
    from tapscope.cli import findings as listing
    from tapscope.cli.output import note, print_json
    from tapscope.cli.reading import opened
    from tapscope.hostmon.fit import misfits

    with opened(run_path) as run:
        run.raw_clocks = raw_clocks
        listed = listing.records(run, width_ns)
        if as_json:
            print_json(listed)
        else:
            listing.show(listed, run)
        for why in (*misfits(run), *([why_none(run)] if as_json and not listed else [])):
            note(f"tapscope: {why}")
