"""`tapscope congestion`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON, RUN, Duration


@click.command(short_help="Where each node's throughput stops growing (N*), and when it was beyond.")
@RUN
@click.option("--node", metavar="NAME", help="Only this node.")
@click.option(
    "--window",
    "width_ns",
    type=Duration(),
    metavar="TIME",
    help="Length of the windows (default: chosen from the data, 10 to 100 ms).",
)
@click.option("--series", is_flag=True, help="Every window of --node, with its state.")
@JSON
def congestion(run_path: Path, node: str | None, width_ns: int | None, series: bool, as_json: bool) -> None:
    """Relate load and throughput of every node (Wang et al., ICDCS 2013).

    Throughput counts work units: a call of a class that takes twice as long counts twice. N* is the load from
    which on it does not grow any more. A window is congested above N*, and stalled when next to nothing was
    completed although calls were inside.
    """
    from tapscope.cli import congestion as listing
    from tapscope.cli import show
    from tapscope.cli.output import print_json
    from tapscope.cli.reading import opened

    if series and node is None:
        raise click.UsageError("--series needs --node.")
    with opened(run_path) as run:
        names = run.node_names()
        found = listing.states(run, node, width_ns)
    if series:
        windows = listing.series(found[0], str(node)) if found else []
        columns = {
            "window_start_ns": "window (ns)",
            "load": "load",
            "units_per_s": "units/s",
            "completions": "completed",
            "state": "state",
            "speed": "speed",
        }
        if as_json:
            print_json(windows)
        else:
            show.records(f"Windows of {node}", windows, columns)
        return
    records = [listing.record(state, names[state.node]) for state in found]
    if as_json:
        print_json(records)
    else:
        listing.show(records)
